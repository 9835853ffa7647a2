"""Resource requests: read consistency, the operation, the answer, and storage failures as refusals.

Routed by the request's attributes, the same that were authorized. Reading and answering is in
`call`, operations are in `objects`, the form of answers is in `render`. Where several servers share
one storage, a request without a resourceVersion sees every write answered before it; with a
version, at least that version; with "0", whatever is in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import HttpVersion11, web

from orch.component.http import httpd
from orch.server import turns
from orch.server.audit.trail import TRAIL
from orch.server.flow.control import limit_rate, size_of
from orch.server.handlers import render, watch_stream
from orch.server.handlers.call import (
    AUTHORIZE,
    IDENTITY,
    INFO,
    NOTES,
    Call,
    checked_patch,
    deleted_status,
    finished,
    read_delete_options,
    read_document,
    read_object,
    received,
    small_json,
    success_status,
    weigh,
)
from orch.server.handlers.watch_stream import WatchRequest
from orch.server.objects import (
    apply,
    create,
    delete,
    list_watch,
    modify,
    options,
    pod_subresources,
    renewal,
)
from orch.server.objects.backend import Backend
from orch.server.objects.document import Notes, prefix_of
from orch.server.request import attributes, media
from orch.server.request.attributes import RequestInfo, parse_request
from orch.server.storage.base import (
    ObjectTooLarge,
    OutcomeUnknown,
    Storage,
    StorageFailed,
    StorageFull,
    StorageUnavailable,
)
from orch.wire.errors import ApiError, bad_request
from orch.wire.records import aliases
from orch.wire.records.kinds import LEASES, Resource

_READS = ("get", "list", "watch")
_MAX_DIGITS = 19  # of a revision; a longer one is refused later


async def ensure_read_consistency(
    storage: Storage, info: RequestInfo, query: Mapping[str, str]
) -> None:
    """Wait until reads are new enough for the request; StorageFailed when that is impossible."""
    version = query.get("resourceVersion", "")
    if info.verb not in _READS or not version:
        await storage.settle()
    elif version != "0" and version.isascii() and version.isdigit() and len(version) <= _MAX_DIGITS:
        await storage.reach(int(version))  # the handler refuses a revision not reached


def refusal_for(error: StorageFailed) -> ApiError:
    """The refusal a client gets; it invites a retry only if the request certainly had no effect."""
    match error:
        case ObjectTooLarge():
            return ApiError(413, "RequestEntityTooLarge", str(error))
        case OutcomeUnknown():
            return ApiError(504, "Timeout", f"the outcome of the write is unknown: {error}")
        case StorageFull():
            return ApiError(507, "InsufficientStorage", str(error))
        case StorageUnavailable():
            return ApiError(503, "ServiceUnavailable", str(error), retry_after_s=1)
    return ApiError(500, "InternalError", f"Internal error occurred: {error}")


async def _pace(size: int) -> None:
    """A tenant's rate, for a part of a change; ApiError 429."""
    await limit_rate(lambda: size)


_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PART_VERBS = ("get", "update", "patch")  # of subresources that are parts of the object

Handler = Callable[[Call], Awaitable[web.StreamResponse]]


class ResourceHandlers:
    """The verbs of every kind; `connectors` handle subresources that are not objects; `deleted`
    is called after every deletion. `parts` handle a subresource of any kind, by verb.
    """

    def __init__(
        self,
        backend: Backend,
        connectors: Mapping[tuple[str, str], Handler],
        deleted: Callable[[], None],
        parts: Mapping[tuple[str, str], Handler] | None = None,
    ) -> None:
        self._backend = backend
        self._deleted = deleted
        self._watches = watch_stream.Shared()
        self._connectors = connectors  # (qualified name, subresource) → handler
        self._verbs: dict[tuple[str, str], Handler] = {
            ("get", ""): self._get,
            ("list", ""): self._list,
            ("watch", ""): self._watch,
            ("create", ""): self._create,
            ("update", ""): self._update,
            ("patch", ""): self._patch,
            ("delete", ""): self._delete,
            ("deletecollection", ""): self._delete_collection,
            ("update", "finalize"): self._update,
            ("create", "binding"): partial(self._act_on_pod, pod_subresources.bind),
            ("create", "eviction"): partial(self._act_on_pod, pod_subresources.evict),
        }
        for part in ("status", "approval", "ephemeralcontainers", "resize"):
            self._verbs |= {(verb, part): self._verbs[verb, ""] for verb in _PART_VERBS}
        self._verbs |= parts or {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """ApiError for refused requests; 404 in plain text for paths that are not served."""
        info = request[INFO]
        strategy = self._backend.kinds.find(info.group, info.version, info.resource)
        if strategy is None or not attributes.is_served(strategy.resource, info):
            raise web.HTTPNotFound
        fits = attributes.fits(strategy.resource, info)
        handler = self._handler(strategy.resource, info) if fits else None
        if handler is None:
            allowed = self._methods(request.rel_url.raw_path, strategy.resource)
            raise web.HTTPMethodNotAllowed(request.method, allowed)
        try:
            if not info.is_long_running or info.verb == "watch":
                judged = self._backend.storage.revision
                await ensure_read_consistency(self._backend.storage, info, request.query)
                if self._backend.storage.revision != judged:  # what was not there may be by now
                    await request[AUTHORIZE]()
            rules = strategy.parts.get(info.subresource, strategy)
            trail = request.get(TRAIL)
            notes = Notes() if trail is None else Notes(annotations=trail.annotations)
            request[NOTES] = notes
            if strategy.deprecation:
                notes.warnings.append(strategy.deprecation)
            call = Call(request, info, request[IDENTITY], rules, notes)
            if info.verb not in _READS and not self._connector(strategy.resource, info):
                await limit_rate(partial(self._size, call))
            response = await handler(call)
        except StorageFailed as error:
            raise refusal_for(error) from error
        return await finished(request, response)

    def _size(self, call: Call) -> int:
        """What was sent and the object that it is about, in bytes of the rate; values that were
        sent are not known yet.
        """
        stored = self._backend.storage.get(call.target().key) if call.info.name else None
        return call.request.content.total_bytes + (size_of(stored.data) if stored else 0)

    def _handler(self, resource: Resource, info: RequestInfo) -> Handler | None:
        connector = self._connector(resource, info)
        return connector or self._verbs.get((info.verb, info.subresource))

    def _connector(self, resource: Resource, info: RequestInfo) -> Handler | None:
        return self._connectors.get((resource.qualified, info.subresource))

    def _methods(self, raw_path: str, resource: Resource) -> list[str]:
        """The methods that a path takes."""
        asked = ((method, parse_request(method, raw_path, {})) for method in _METHODS)
        return [
            method
            for method, info in asked
            if self._handler(resource, info) and attributes.fits(resource, info)
        ]

    async def _get(self, call: Call) -> web.Response:
        wanted = options.parse_list_options(call.request.query, watch=False)
        list_watch.require_revision(self._backend, wanted.resource_version)
        rendering = call.rendering(self._backend.now())
        stored = self._backend.find(call.target())
        hold = partial(self._backend.storage.hold, stored.key)
        return call.answer_stored(rendering, stored, hold)

    async def _list(self, call: Call) -> web.Response:
        wanted = options.parse_list_options(call.request.query, watch=False)
        selected = call.selection()
        rendering = call.rendering(self._backend.now())
        turns.weigh(b"", httpd.connection_of(call.request).owner)
        page = await list_watch.list_objects(self._backend, selected, call.info.namespace, wanted)
        prefix = prefix_of(call.strategy.resource, call.info.namespace)
        return call.answer_list(rendering, page, partial(self._backend.storage.hold, prefix))

    async def _watch(self, call: Call) -> web.StreamResponse:
        if call.request.version < HttpVersion11:
            raise bad_request("a watch needs HTTP/1.1: its answer comes in chunks")
        rendering = call.rendering(self._backend.now())
        if rendering.representation.language != media.JSON:
            raise media.not_acceptable((media.JSON,))  # as in the reference, which streams none
        wanted = WatchRequest(
            rendering,
            call.selection(),
            call.info.namespace,
            options.parse_list_options(call.request.query, watch=True),
        )
        turns.weigh(b"", httpd.connection_of(call.request).owner)
        try:
            opened = await list_watch.open_watch(
                self._backend, wanted.selection, call.info.namespace, wanted.options
            )
        except ApiError as error:
            if error.code != 410:
                raise
            # As in the reference: the stream opens, and its only event is the error.
            line = render.render_error(error.to_status())
            return web.Response(body=line, content_type=media.JSON)
        return await watch_stream.stream(call.request, wanted, opened, self._watches)

    async def _create(self, call: Call) -> web.Response:
        wanted = call.write_options()
        document, warnings = await read_object(call, wanted)
        target = call.target()
        rendering = call.rendering(self._backend.now())
        stored = await create.create(self._backend, target, document, wanted)
        return call.answer_object(rendering, stored, status=201, warnings=warnings)

    async def _update(self, call: Call) -> web.Response:
        rendering = call.rendering(self._backend.now())
        if call.strategy.resource is LEASES and not (call.request.query or call.info.alias):
            target = call.target()
            body = await small_json(call, renewal.MAX_BYTES)
            if body and (renewed := await renewal.renew(self._backend, target, body)):
                return call.answer_object(rendering, renewed)
        wanted = call.write_options("UpdateOptions")
        document, warnings = await read_object(call, wanted)
        stored, created = await modify.replace(self._backend, call.target(), document, wanted)
        await call.take_advice()
        status = 201 if created else 200
        return call.answer_object(rendering, stored, status=status, warnings=warnings)

    async def _patch(self, call: Call) -> web.Response:
        target = call.target()
        kind = media.parse_media(call.content_type).type
        if kind == media.APPLY_PATCH:
            return await self._apply(call)
        body = await httpd.read_body(call.request)
        weigh(call, body)
        if kind == media.STRATEGIC_PATCH and not target.strategy.is_patched_by_keys:
            raise media.unknown_format(m for m in media.PATCHES if m != kind)
        read = partial(modify.change_of, target.strategy.resource, kind, body)
        change = await turns.compute(read)
        wanted = call.write_options("PatchOptions")
        if call.info.alias:
            change = aliases.through(change)
        warnings: list[str] = []
        check = partial(checked_patch, call, wanted, change, body, warnings)
        change = await turns.compute(check)
        rendering = call.rendering(self._backend.now())
        stored = await modify.modify(self._backend, target, change, wanted)
        await call.take_advice()
        return call.answer_object(rendering, stored, warnings=warnings)

    async def _apply(self, call: Call) -> web.Response:
        target = call.target()
        wanted = call.write_options("PatchOptions", applies=True)
        rendering = call.rendering(self._backend.now())
        body, _ = await received(call)
        read = partial(apply.configuration, target, body, call.info.alias)
        change = apply.change_of(self._backend, target, wanted, await turns.compute(read))
        warnings: list[str] = []
        check = partial(checked_patch, call, wanted, change, body, warnings)
        change = await turns.compute(check)
        stored, created = await apply.apply(self._backend, target, change, wanted)
        await call.take_advice()
        status = 201 if created else 200
        return call.answer_object(rendering, stored, status=status, warnings=warnings)

    async def _delete(self, call: Call) -> web.Response:
        rendering = call.rendering(self._backend.now())
        target = call.target()
        wanted = await read_delete_options(call)
        deleted = await delete.delete(self._backend, target, wanted)
        self._deleted()
        if deleted.gone and not target.strategy.returns_deleted:
            body = deleted_status(target.strategy.resource, deleted.stored)
            return call.answer(rendering, body)
        # As in the reference, whose older clients take 202 for a failure.
        status = 202 if wanted.cascades and not deleted.gone else 200
        return call.answer_object(rendering, deleted.stored, status=status)

    async def _delete_collection(self, call: Call) -> web.Response:
        rendering = call.rendering(self._backend.now())
        wanted = await read_delete_options(call)
        target, selection = call.target(), call.selection()
        await delete.delete_collection(self._backend, target, selection, wanted, _pace)
        self._deleted()
        return call.answer(rendering, success_status())

    async def _act_on_pod(self, action: Callable[..., Awaitable[None]], call: Call) -> web.Response:
        wanted = call.write_options()
        document = await read_document(call)
        rendering = call.rendering(self._backend.now())
        await action(self._backend, call.target(), document, dry_run=wanted.dry_run)
        return call.answer(rendering, success_status(201), status=201)
