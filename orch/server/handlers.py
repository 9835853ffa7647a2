"""A resource request carried out: parse what was sent, call the operation, answer.

Routing is by the request's attributes, the same that were authorized. What an operation does is in
`resources`; how the answer looks in `render`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from orch.component import httpd
from orch.server import bodies, fieldcheck, media, protobuf, render, watchstream
from orch.server.render import Rendering
from orch.server.requestinfo import RequestInfo, is_true
from orch.server.resources import (
    binding,
    create,
    delete,
    listing,
    modify,
    options,
    patching,
    selection,
    watching,
)
from orch.server.resources.backend import Backend, Target
from orch.server.resources.document import Document
from orch.server.storage.base import StorageFailed, Stored
from orch.server.strategy.base import Strategy
from orch.server.strategy.table import find_strategy
from orch.server.success import deleted_status, success_status
from orch.server.watchstream import WatchRequest
from orch.wire.errors import ApiError, bad_request
from orch.wire.identity import Identity
from orch.wire.kinds import NAMESPACES, Resource

_COLLECTION_VERBS = ("list", "watch", "deletecollection")
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")


@dataclass(frozen=True, slots=True)
class Call:
    """An authorized request for a resource."""

    request: web.Request
    info: RequestInfo
    identity: Identity


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


class ResourceHandlers:
    """The verbs of every kind; `connectors` take over subresources that are not objects."""

    def __init__(
        self, backend: Backend, connectors: Mapping[tuple[str, str], Handler] | None = None
    ) -> None:
        self._backend = backend
        self._connectors = dict(connectors or {})  # (plural, subresource) → handler
        self._verbs: Mapping[tuple[str, str], Handler] = {
            ("get", ""): self._get,
            ("list", ""): self._list,
            ("watch", ""): self._watch,
            ("create", ""): self._create,
            ("update", ""): self._update,
            ("patch", ""): self._patch,
            ("delete", ""): self._delete,
            ("deletecollection", ""): self._delete_collection,
            ("get", "status"): self._get,
            ("update", "status"): self._update,
            ("patch", "status"): self._patch,
            ("update", "finalize"): self._update,
            ("create", "binding"): self._bind,
        }

    async def handle(self, call: Call) -> web.StreamResponse:
        """ApiError for what cannot be done; 404 in plain text for what is not served at all."""
        info = call.info
        strategy = find_strategy(info.group, info.version, info.resource)
        if strategy is None or not _is_served(strategy.resource, info):
            raise web.HTTPNotFound
        connector = self._connectors.get((info.resource, info.subresource))
        handler = connector or self._verbs.get((info.verb, info.subresource))
        if handler is None or not _fits(strategy.resource, info):
            raise web.HTTPMethodNotAllowed(call.request.method, ())
        try:
            return await handler(call)
        except StorageFailed as error:
            raise ApiError(500, "InternalError", f"Internal error occurred: {error}") from error

    async def _get(self, call: Call) -> web.Response:
        wanted = options.parse_list_options(call.request.query, watch=False)
        listing.require_revision(self._backend, wanted.resource_version)
        return self._answer_object(call, self._backend.find(_target(call)))

    async def _list(self, call: Call) -> web.Response:
        wanted = options.parse_list_options(call.request.query, watch=False)
        selected = _selection(call)
        rendering = self._rendering(call)
        page = listing.list_objects(self._backend, selected, call.info.namespace, wanted)
        return _answer(call, rendering, render.render_list(rendering, page))

    async def _watch(self, call: Call) -> web.StreamResponse:
        wanted = WatchRequest(
            self._rendering(call),
            _selection(call),
            options.parse_list_options(call.request.query, watch=True),
        )
        try:
            opened = watching.open_watch(
                self._backend, wanted.selection, call.info.namespace, wanted.options
            )
        except ApiError as error:
            if error.code != 410:
                raise
            # As the reference does: the stream opens, and its only event says so.
            line = render.render_error(error.to_status())
            return web.Response(body=line, content_type=media.JSON)
        return await watchstream.stream(call.request, wanted, opened)

    async def _create(self, call: Call) -> web.Response:
        wanted = options.parse_write_options(call.request.query)
        document, warnings = await _read_object(call, wanted)
        target = _target(call)
        stored = await create.create(self._backend, target, document, wanted)
        return self._answer_object(call, stored, status=201, warnings=warnings)

    async def _update(self, call: Call) -> web.Response:
        wanted = options.parse_write_options(call.request.query)
        document, warnings = await _read_object(call, wanted)
        stored, created = await modify.replace(self._backend, _target(call), document, wanted)
        status = 201 if created else 200
        return self._answer_object(call, stored, status=status, warnings=warnings)

    async def _patch(self, call: Call) -> web.Response:
        wanted = options.parse_write_options(call.request.query)
        if "force" in call.request.query:
            raise bad_request("force is only for server-side apply, which this server does not do")
        target = _target(call)
        kind = media.parse_media(call.request.headers.get("Content-Type", "")).type
        change = patching.change_of(
            target.strategy.resource, kind, await httpd.read_body(call.request)
        )
        stored = await modify.modify(self._backend, target, change, wanted)
        return self._answer_object(call, stored)

    async def _delete(self, call: Call) -> web.Response:
        target = _target(call)
        deleted = await delete.delete(self._backend, target, await _delete_options(call))
        if deleted.gone and not target.strategy.returns_deleted:
            status = deleted_status(target.strategy.resource, deleted.stored)
            return _answer(call, self._rendering(call), status)
        return self._answer_object(call, deleted.stored)

    async def _delete_collection(self, call: Call) -> web.Response:
        wanted = await _delete_options(call)
        await delete.delete_collection(self._backend, _target(call), _selection(call), wanted)
        return _answer(call, self._rendering(call), success_status())

    async def _bind(self, call: Call) -> web.Response:
        wanted = options.parse_write_options(call.request.query)
        body = await httpd.read_body(call.request)
        document = bodies.decode_object(body, call.request.headers.get("Content-Type", ""))
        await binding.bind(self._backend, _target(call), document, dry_run=wanted.dry_run)
        return _answer(call, self._rendering(call), success_status(201), status=201)

    def _rendering(self, call: Call) -> Rendering:
        return Rendering(
            _strategy(call.info).resource,
            media.negotiate(call.request.headers.get("Accept", "")),
            self._backend.now(),
            render.parse_include_object(call.request.query.get("includeObject", "")),
        )

    def _answer_object(
        self, call: Call, stored: Stored, *, status: int = 200, warnings: Sequence[str] = ()
    ) -> web.Response:
        rendering = self._rendering(call)
        body = render.render_object(rendering, stored)
        return _answer(call, rendering, body, status=status, warnings=warnings)


def _strategy(info: RequestInfo) -> Strategy:
    strategy = find_strategy(info.group, info.version, info.resource)
    if strategy is None:
        raise AssertionError(f"{info.resource} was routed but is not served")
    return strategy


def _is_served(resource: Resource, info: RequestInfo) -> bool:
    """Is there such a path? Scope and subresource must be the kind's own."""
    if info.subresource and info.subresource not in resource.subresources:
        return False
    if resource is NAMESPACES:
        return True  # its own name is also the namespace of the request
    named = info.name and info.verb not in _COLLECTION_VERBS
    return not info.namespace if not resource.namespaced else bool(info.namespace or not named)


def _fits(resource: Resource, info: RequestInfo) -> bool:
    """May the verb be used at this path: collections are created in, objects are changed."""
    if info.subresource:
        return bool(info.name)
    if info.verb not in resource.verbs:
        return False
    if info.verb in ("create", "deletecollection"):
        placed = bool(info.namespace or not resource.namespaced)
        return placed and not (info.verb == "create" and info.name)
    return bool(info.name) or info.verb in _COLLECTION_VERBS


def _target(call: Call) -> Target:
    info = call.info
    strategy = _strategy(info)
    namespace = info.namespace if strategy.resource.namespaced else ""
    return Target(strategy, call.identity, namespace, info.name, info.subresource)


def _selection(call: Call) -> selection.Selection:
    return selection.parse_selection(
        _strategy(call.info), call.info.label_selector, call.info.field_selector
    )


async def _read_object(call: Call, wanted: options.WriteOptions) -> tuple[Document, list[str]]:
    """The object in the body, and warnings about what is not part of it."""
    body = await httpd.read_body(call.request)
    content_type = call.request.headers.get("Content-Type", "")
    document = bodies.decode_object(body, content_type)
    if wanted.field_validation == "Ignore" or body.startswith(protobuf.MAGIC):
        return document, []
    resource = _strategy(call.info).resource
    problems = fieldcheck.unknown_fields(resource.kind, document)
    if wanted.field_validation:  # looking for duplicates reads the body again: only when asked
        problems += fieldcheck.duplicate_fields(body)
    if problems and wanted.field_validation == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a'
            f" {resource.kind}: strict decoding error: {', '.join(problems)}"
        )
    return document, problems


async def _delete_options(call: Call) -> options.DeleteOptions:
    body = await httpd.read_body(call.request)
    content_type = call.request.headers.get("Content-Type", "")
    record = bodies.decode_object(body, content_type) if body else {}
    if record.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f"the kind of the body is {record['kind']}, expected DeleteOptions")
    return options.parse_delete_options(call.request.query, record)


def _answer(
    call: Call,
    rendering: Rendering,
    body: bytes,
    *,
    status: int = 200,
    warnings: Sequence[str] = (),
) -> web.Response:
    if _wants_pretty(call.request):
        body = render.indented(body)
    headers = {
        "Content-Type": rendering.representation.content_type,
        "Cache-Control": "no-cache, private",
    }
    response = web.Response(status=status, body=body, headers=headers)
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _wants_pretty(request: web.Request) -> bool:
    asked = request.query.get("pretty")
    if asked is not None:
        return is_true(asked)
    return request.headers.get("User-Agent", "").startswith(_PRETTY_AGENTS)
