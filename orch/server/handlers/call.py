"""A resource request as its handler needs it: what was authorized, and what was sent with it.

Reading only; nothing here decides or stores. What cannot be understood is an ApiError.
"""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import web

from orch.component.http import httpd
from orch.server.objects import options
from orch.server.objects.backend import Target
from orch.server.objects.document import Document
from orch.server.objects.metadata import drop_double_owners
from orch.server.objects.modify import Change
from orch.server.objects.selection import Selection, parse_selection
from orch.server.request import bodies, fields, protobuf
from orch.server.request.attributes import RequestInfo
from orch.server.strategy.base import Strategy
from orch.wire.errors import Cause, bad_request, invalid
from orch.wire.records import aliases
from orch.wire.records.authentication import Identity


class Call(NamedTuple):
    """An authorized request for a resource."""

    request: web.Request
    info: RequestInfo
    identity: Identity
    strategy: Strategy  # the kind's rules

    @property
    def content_type(self) -> str:
        """As sent; "" when not said, which is not what aiohttp makes of it."""
        return self.request.headers.get("Content-Type", "")

    def target(self) -> Target:
        namespace = self.info.namespace if self.strategy.resource.namespaced else ""
        return Target(
            self.strategy, self.identity, namespace, self.info.name, self.info.subresource
        )

    def selection(self) -> Selection:
        return parse_selection(self.strategy, self.info.label_selector, self.info.field_selector)


async def read_document(call: Call) -> Document:
    """The JSON object in the body, whatever it is."""
    return _decoded(call, await httpd.read_body(call.request))


def _decoded(call: Call, body: bytes) -> Document:
    document = bodies.decode_object(body, call.content_type)
    return aliases.to_own(document) if call.info.alias else document


async def read_object(call: Call, wanted: options.WriteOptions) -> tuple[Document, list[str]]:
    """The object in the body, and warnings about what is not part of its kind."""
    body = await httpd.read_body(call.request)
    document = _decoded(call, body)
    warnings = drop_double_owners(document)
    if wanted.field_validation == "Ignore" or body.startswith(protobuf.MAGIC):
        return document, warnings
    resource = call.strategy.resource
    problems = fields.unknown_fields(resource.kind, document)
    if wanted.field_validation:  # looking for duplicates reads the body again: only when asked
        problems += fields.duplicate_fields(body)
    if problems and wanted.field_validation == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a'
            f" {resource.kind}: strict decoding error: {', '.join(problems)}"
        )
    return document, problems + warnings


def checked_patch(
    call: Call, wanted: options.WriteOptions, change: Change, body: bytes, warnings: list[str]
) -> Change:
    """The change, which also looks for fields that it adds and its kind does not have.

    Under Strict they are its refusal (422), else they are put into `warnings`.
    """
    resource = call.strategy.resource
    duplicates = fields.duplicate_fields(body) if wanted.field_validation else []

    def checked(current: Document) -> Document:
        changed = change(current)
        warnings[:] = drop_double_owners(changed)
        if wanted.field_validation == "Ignore":
            return changed
        problems = fields.added_unknown_fields(resource.kind, current, changed) + duplicates
        if problems and wanted.field_validation == "Strict":
            text = f"strict decoding error: {', '.join(problems)}"
            cause = Cause("FieldValueInvalid", f"Invalid value: {text}", "patch")
            raise invalid(resource.kind, call.info.name, (cause,), resource.group)
        warnings[:] += problems
        return changed

    return checked


async def read_delete_options(call: Call) -> options.DeleteOptions:
    """From body and query; clients send the body without its kind."""
    body = await httpd.read_body(call.request)
    record = bodies.decode_object(body, call.content_type) if body else {}
    if record.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f"the kind of the body is {record['kind']}, expected DeleteOptions")
    return options.parse_delete_options(call.request.query, record)
