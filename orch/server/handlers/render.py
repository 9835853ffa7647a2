"""Objects, lists and watch events as bodies, in the form the client wants.

The ordinary form is joined from stored bytes and parses nothing; tables and partial objects are
built from JSON data. Knows no request: what varies is in `Rendering`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, get_args

import orjson

from orch.server.objects.document import Document, served
from orch.server.objects.list_watch import Event, Page
from orch.server.request.aliases import shown_as
from orch.server.request.media import META_GROUP, Form, Representation
from orch.server.storage.base import Stored
from orch.wire.errors import bad_request
from orch.wire.records.kinds import Resource
from orch.wire.tables import tables
from orch.wire.tables.tables import IncludeObject

_INCLUDED: tuple[IncludeObject, ...] = get_args(IncludeObject)


class Rendering(NamedTuple):
    """How one request's objects are shown."""

    resource: Resource
    representation: Representation
    now: datetime
    include_object: IncludeObject = "Metadata"
    alias: str = ""  # the group's name in the request, when not its own

    @property
    def api_version(self) -> str:
        resource = self.resource
        return f"{self.alias}/{resource.version}" if self.alias else resource.api_version

    @property
    def is_plain(self) -> bool:
        return self.representation.form is Form.OBJECT


def parse_include_object(text: str) -> IncludeObject:
    """The `includeObject` parameter; ApiError 400 for another value."""
    for known in _INCLUDED:
        if text == known:
            return known
    if text:
        raise bad_request(f"invalid includeObject value: {text!r}: use Metadata, Object or None")
    return "Metadata"


def render_object(rendering: Rendering, stored: Stored, revision: int | None = None) -> bytes:
    """One object; `revision` when not its own, 0 for none."""
    if rendering.is_plain:
        return _shown(rendering, stored, revision)
    document = orjson.loads(_shown(rendering, stored, revision))
    if rendering.representation.form is Form.TABLE:
        version = {"resourceVersion": document["metadata"].get("resourceVersion", "")}
        return orjson.dumps(_table(rendering, [document], version))
    return orjson.dumps(_partial(rendering, document))


def _shown(rendering: Rendering, stored: Stored, revision: int | None = None) -> bytes:
    body = served(stored, revision) if stored.revision else stored.data
    return shown_as(rendering.alias, body) if rendering.alias else body


def render_list(rendering: Rendering, page: Page) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continuation:
        metadata["continue"] = page.continuation
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    resource = rendering.resource
    if rendering.is_plain:
        head = {"kind": f"{resource.kind}List", "apiVersion": rendering.api_version}
        start = orjson.dumps({**head, "metadata": metadata})[:-1] + b',"items":['
        return start + b",".join([_shown(rendering, stored) for stored in page.items]) + b"]}"
    documents = [orjson.loads(_shown(rendering, stored)) for stored in page.items]
    if rendering.representation.form is Form.TABLE:
        return orjson.dumps(_table(rendering, documents, metadata))
    return orjson.dumps(
        {
            "kind": Form.PARTIAL_LIST.value,
            "apiVersion": _meta_api_version(rendering),
            "metadata": metadata,
            "items": [_partial(rendering, document) for document in documents],
        }
    )


def render_event(rendering: Rendering, event: Event, *, first: bool) -> bytes:
    """One line of a watch; only the `first` of a stream of tables names the columns."""
    body = _shown(rendering, event.stored, event.revision)
    if rendering.is_plain:
        return b'{"type":"%b","object":%b}\n' % (event.type.encode(), body)
    document = orjson.loads(body)
    shown: Mapping[str, Any]
    if rendering.representation.form is Form.TABLE:
        version = {"resourceVersion": str(event.revision)}
        shown = _table(rendering, [document], version, with_columns=first)
    else:
        shown = _partial(rendering, document)
    return orjson.dumps({"type": event.type, "object": shown}) + b"\n"


def render_bookmark(rendering: Rendering, revision: int, *, ends_initial: bool = False) -> bytes:
    """A line with the revision that the watch has reached."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if ends_initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    bookmark: dict[str, Any] = {
        "kind": rendering.resource.kind,
        "apiVersion": rendering.api_version,
        "metadata": metadata,
    }
    if rendering.representation.form is Form.TABLE:
        bookmark = _table(rendering, [], {"resourceVersion": str(revision)}, with_columns=False)
        if ends_initial:
            bookmark["rows"] = [{"cells": [], "object": {"metadata": metadata}}]
    elif not rendering.is_plain:
        bookmark = _partial(rendering, bookmark)
    return orjson.dumps({"type": "BOOKMARK", "object": bookmark}) + b"\n"


def render_error(status: Mapping[str, Any]) -> bytes:
    """The line that ends a watch with a Status."""
    return orjson.dumps({"type": "ERROR", "object": status}) + b"\n"


def indented(body: bytes) -> bytes:
    """The same JSON, indented for people."""
    return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2) + b"\n"


def _table(
    rendering: Rendering,
    documents: Sequence[Document],
    metadata: Mapping[str, Any],
    *,
    with_columns: bool = True,
) -> dict[str, Any]:
    table = tables.table_of(
        rendering.resource.kind,
        documents,
        rendering.now,
        include_object=rendering.include_object,
        list_metadata=metadata,
        with_columns=with_columns,
    )
    return {**table, "apiVersion": _meta_api_version(rendering)}


def _partial(rendering: Rendering, document: Document) -> dict[str, Any]:
    return {**tables.partial_metadata(document), "apiVersion": _meta_api_version(rendering)}


def _meta_api_version(rendering: Rendering) -> str:
    return f"{META_GROUP}/{rendering.representation.version}"
