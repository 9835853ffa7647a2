"""A resource request as its handler meets it: what was authorized, what was sent, the answer.

Reads bodies and writes answers with their headers, codes and warnings; nothing here decides or
stores. What cannot be understood is an ApiError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from orch.component.http import httpd
from orch.component.http.sliced_response import (
    SLICE_BYTES,
    Data,
    LazyBody,
    SlicedBody,
    compress,
    respond,
)
from orch.server import turns
from orch.server.flow import control
from orch.server.handlers import render
from orch.server.handlers.render import Rendering
from orch.server.objects import options
from orch.server.objects.document import (
    Document,
    Notes,
    ObjectTarget,
    decode,
    served_parts,
    served_size,
)
from orch.server.objects.list_watch import Page
from orch.server.objects.metadata import drop_double_owners
from orch.server.objects.modify import Transform
from orch.server.objects.options import WriteKind, WriteOptions
from orch.server.objects.selection import Selection, parse_selection
from orch.server.request import bodies, fields, media, protobuf
from orch.server.request.attributes import RequestInfo, is_true
from orch.server.storage.base import Hold, Stored
from orch.server.strategy.base import Strategy
from orch.wire.errors import Cause, bad_request, invalid
from orch.wire.records import aliases
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import Resource

_WARNINGS_MAX = 4096  # characters in all
_WARNING_MAX = 256
_MANY = 2_000  # objects, which are large together; to add up their sizes takes milliseconds
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")


# Judges the request by what is known now; ApiError 401, 403.
AUTHORIZE = web.RequestKey("authorize", partial)
INFO = web.RequestKey("info", RequestInfo)
IDENTITY = web.RequestKey("identity", Identity)
NOTES = web.RequestKey("notes", Notes)


class Call(NamedTuple):
    """An authorized request for a resource."""

    request: web.Request
    info: RequestInfo
    identity: Identity
    strategy: Strategy  # the kind's rules
    notes: Notes  # of admission; its warnings go into the answer

    @property
    def content_type(self) -> str:
        """As sent; "" when missing, where aiohttp has a default."""
        return self.request.headers.get("Content-Type", "")

    def target(self) -> ObjectTarget:
        namespace = self.info.namespace if self.strategy.resource.namespaced else ""
        return ObjectTarget(
            self.strategy,
            self.identity,
            namespace,
            self.info.name,
            self.info.subresource,
            self.notes,
            self.info.alias,
        )

    def write_options(
        self, kind: WriteKind = "CreateOptions", *, applies: bool = False
    ) -> WriteOptions:
        """As the query has them; ApiError 422."""
        agent = self.request.headers.get("User-Agent", "")
        return options.parse_write_options(self.request.query, kind, agent, applies=applies)

    async def take_advice(self) -> None:
        """Add the warnings of admission that take longer."""
        if self.notes.advice is not None:
            self.notes.warnings += await self.notes.advice()

    def selection(self) -> Selection:
        return parse_selection(self.strategy, self.info.label_selector, self.info.field_selector)

    def rendering(self, now: datetime) -> Rendering:
        """The form the client wants; ApiError 400 or 406 when there is no such form.

        Asked for before anything is written, so that a 406 means that nothing was.
        """
        return Rendering(
            self.strategy.resource,
            self.strategy.layout,
            media.negotiate(self.request.headers.get("Accept", "")),
            now,
            render.parse_include_object(self.request.query.get("includeObject", "")),
            self.info.alias,
        )

    def answer_object(
        self,
        rendering: Rendering,
        stored: Stored,
        *,
        status: int = 200,
        warnings: Sequence[str] = (),
    ) -> web.Response:
        body = render.render_object(rendering, stored)
        return self.answer(rendering, body, status=status, warnings=warnings)

    def answer_stored(self, rendering: Rendering, stored: Stored, hold: Hold) -> web.Response:
        """`answer_object` of what storage holds: a large one is not copied."""
        if len(stored.data) <= SLICE_BYTES or not rendering.is_stored:
            return self.answer_object(rendering, stored)
        pieces = partial(served_parts, stored, stored.revision)
        body = LazyBody(pieces, served_size(stored), hold)
        return self._with_warnings(
            web.Response(body=body, headers=rendering.representation.headers)
        )

    def answer_list(self, rendering: Rendering, page: Page, hold: Hold) -> web.Response:
        """A large list is made while it is sent, and never indented."""
        is_long = len(page.items) > _MANY
        if not is_long and sum(len(stored.data) for stored in page.items) <= SLICE_BYTES:
            return self.answer(rendering, render.render_list(rendering, page))
        pieces = partial(render.list_pieces, rendering, page)
        size = None if is_long else render.list_size(rendering, page)
        costly = not rendering.is_stored
        body = LazyBody(pieces, size, hold, costly=costly, held_bytes=page.held_bytes)
        return self._with_warnings(
            web.Response(body=body, headers=rendering.representation.headers)
        )

    def answer(
        self, rendering: Rendering, body: bytes, *, status: int = 200, warnings: Sequence[str] = ()
    ) -> web.Response:
        """JSON, indented for people unless it is large; one Warning header per warning."""
        if len(body) <= SLICE_BYTES and _wants_pretty(self.request):
            body = render.indented(body)
        response = respond(status, body, rendering.representation.headers)
        return self._with_warnings(response, warnings)

    def _with_warnings(self, response: web.Response, warnings: Sequence[str] = ()) -> web.Response:
        if warnings or self.notes.warnings:
            for header in warning_headers((*warnings, *self.notes.warnings)):
                response.headers.add("Warning", header)
        return response


async def read_document(call: Call) -> Document:
    """The object in the body, of any kind."""
    body, content_type = await received(call)
    return await turns.compute(partial(_decoded, call, content_type, body))


async def received(call: Call) -> tuple[bytes, str]:
    """The body and its content type, never YAML; weighed."""
    body = await httpd.read_body(call.request)
    weigh(call, body)
    decoded, content_type = await turns.as_json(body, call.content_type)
    if decoded is not body:
        weigh(call, decoded)
    return decoded, content_type


def weigh(call: Call, body: bytes) -> None:
    """Before work is done on a body: its values decide where, and are charged."""
    values = turns.weigh(body, httpd.connection_of(call.request).owner)
    control.charge(control.size_of_values(values))


async def small_json(call: Call, most: int) -> bytes | None:
    """The body, if it is JSON of at most so many bytes."""
    sent = call.content_type
    if sent != media.JSON and media.parse_media(sent).type != media.JSON:
        return None
    body = await httpd.read_body(call.request)
    return body if len(body) <= most else None


def _decoded(call: Call, content_type: str, body: bytes) -> Document:
    document = bodies.decode_object(body, content_type, call.strategy.resource.kind)
    return aliases.to_own(document) if call.info.alias else document


async def read_object(call: Call, wanted: WriteOptions) -> tuple[Document, list[str]]:
    """The object in the body, and warnings about fields that its kind does not have."""
    body, content_type = await received(call)
    decoded = partial(_decoded, call, content_type, body)
    return await turns.compute(partial(_checked_object, call, wanted, body, decoded))


def _checked_object(
    call: Call, wanted: WriteOptions, body: bytes, decoded: Callable[[], Document]
) -> tuple[Document, list[str]]:
    document = decoded()
    warnings = drop_double_owners(document)
    if wanted.field_validation == "Ignore" or body.startswith(protobuf.MAGIC):
        return document, warnings
    resource = call.strategy.resource
    problems = _unknown_fields(call.strategy, document)
    if wanted.field_validation:  # finding duplicates parses the body again: only on request
        problems += fields.duplicate_fields(body)
    if problems and wanted.field_validation == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a'
            f" {resource.kind}: strict decoding error: {', '.join(problems)}"
        )
    return document, problems + warnings


def _unknown_fields(strategy: Strategy, document: Document) -> list[str]:
    if strategy.unknown_fields is not None:
        return strategy.unknown_fields(document)
    return fields.unknown_fields(fields.name_of(strategy.resource), document)


def checked_patch(
    call: Call, wanted: WriteOptions, change: Transform, body: bytes, warnings: list[str]
) -> Transform:
    """The change, which also checks for unknown fields that it adds.

    Under Strict they are refused (422), else they are put into `warnings`.
    """
    resource = call.strategy.resource
    sent: list[str] = []
    if wanted.field_validation != "Ignore":
        sent = fields.duplicate_fields(body) if wanted.field_validation else []
        if media.parse_media(call.content_type).type == media.JSON_PATCH:
            sent = fields.of_operations(body, sent)

    def checked(current: Document) -> Document:
        changed = change(current)
        warnings[:] = drop_double_owners(changed)
        if wanted.field_validation == "Ignore":
            return changed
        known = set(_unknown_fields(call.strategy, current))  # stored by another release
        added = [text for text in _unknown_fields(call.strategy, changed) if text not in known]
        problems = added + sent
        if problems and wanted.field_validation == "Strict":
            text = f"strict decoding error: {', '.join(problems)}"
            cause = Cause("FieldValueInvalid", f"Invalid value: {text}", "patch")
            raise invalid(resource.kind, call.info.name, (cause,), resource.group)
        warnings[:] += problems
        return changed

    return checked


async def read_delete_options(call: Call) -> options.DeleteOptions:
    """From body and query; clients send the body without its kind."""
    body, content_type = await received(call)
    decode = partial(bodies.decode_object, body, content_type, "DeleteOptions")
    record = await turns.compute(decode) if body else {}
    if record.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f"the kind of the body is {record['kind']}, expected DeleteOptions")
    return options.parse_delete_options(call.request.query, record)


async def finished(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """The answer in YAML if that is what it says it is, and compressed if it is large."""
    if isinstance(response, web.Response) and response.content_type == media.YAML:
        turns.weigh(b"", httpd.connection_of(request).owner)
        read = partial(turns.beginning, response, bodies.YAML_MAX_BYTES + 1)
        response.body = await turns.aside_of(read, _in_yaml)
    if request.method == "GET":
        compress(request, response)
    return response


def _in_yaml(body: Data) -> SlicedBody:
    return SlicedBody(bodies.yaml_of(body), original=body)


def warning_headers(warnings: Sequence[str]) -> list[str]:
    """One header per warning, bounded in size: the texts may quote what a caller sent.

    Beyond 4 KiB in total each is cut to 256 characters, and those beyond another 4 KiB are dropped.
    """
    texts = [_printable(warning[: _WARNINGS_MAX + 1]) for warning in dict.fromkeys(warnings)]
    if sum(map(len, texts)) > _WARNINGS_MAX:
        texts = [text[:_WARNING_MAX] for text in texts][: _WARNINGS_MAX // _WARNING_MAX]
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return [f'299 - "{text}"' for text in quoted]


def _printable(text: str) -> str:
    ascii_text = text.encode("ascii", "backslashreplace").decode()
    return "".join(char if char.isprintable() else "?" for char in ascii_text)


def _wants_pretty(request: web.Request) -> bool:
    asked = request.query.get("pretty")
    if asked is not None:
        return is_true(asked)
    return request.headers.get("User-Agent", "").startswith(_PRETTY_AGENTS)


def success_status(code: int | None = None, details: dict[str, Any] | None = None) -> bytes:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if details:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return orjson.dumps(status)


def deleted_status(resource: Resource, stored: Stored) -> bytes:
    """Names the deleted object: clients wait until exactly this uid is gone."""
    metadata = decode(stored)["metadata"]
    details = {"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]}
    if resource.group:
        details["group"] = resource.group
    return success_status(details=details)
