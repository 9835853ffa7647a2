"""Objects, lists and watch events as bodies, in the form the client wants.

The ordinary form is joined from stored bytes and parses nothing; tables and partial objects are
built from JSON data. Knows no request: what varies is in `Rendering`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, get_args

import orjson

from orch.component.http.sliced_response import SLICE_BYTES, Piece
from orch.server.objects.document import (
    Document,
    dumps,
    served,
    served_parts,
    served_size,
    shown_in_version,
)
from orch.server.objects.list_watch import Event, Page
from orch.server.request.aliases import shown_as
from orch.server.request.media import META_GROUP, Form, Representation
from orch.server.storage.base import Stored
from orch.wire.errors import bad_request
from orch.wire.records.kinds import Resource
from orch.wire.tables import tables
from orch.wire.tables.layout import Layout
from orch.wire.tables.tables import IncludeObject

_INCLUDED: tuple[IncludeObject, ...] = get_args(IncludeObject)
_PIECE_BYTES = SLICE_BYTES * 3 // 4  # of stored objects: a revision is added to each


class Rendering(NamedTuple):
    """How one request's objects are shown."""

    resource: Resource
    layout: Layout
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

    @property
    def is_stored(self) -> bool:
        """Whether objects are shown as they are stored."""
        return self.is_plain and not (self.alias or self.resource.is_converted)


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
        return dumps(_table(rendering, [document], version))
    return dumps(_partial(rendering, document))


def _shown(rendering: Rendering, stored: Stored, revision: int | None = None) -> bytes:
    body = served(stored, revision) if stored.revision else stored.data
    if rendering.resource.is_converted:
        body = shown_in_version(rendering.resource, body)
    return shown_as(rendering.alias, body) if rendering.alias else body


def render_list(rendering: Rendering, page: Page) -> bytes:
    return b"".join(list_pieces(rendering, page))


def list_size(rendering: Rendering, page: Page) -> int | None:
    """The bytes of all pieces; None where only making them tells."""
    if not rendering.is_stored:
        return None
    commas = max(len(page.items) - 1, 0)
    envelope = len(_envelope(rendering, page)) + len(_END)
    return envelope + commas + sum(map(served_size, page.items))


def list_pieces(rendering: Rendering, page: Page) -> Iterator[Piece]:
    """A list in pieces of mostly less than a slice, each made when it is asked for."""
    yield _envelope(rendering, page)
    comma: tuple[bytes, ...] = ()
    for batch in _batches(page.items):
        first = batch[0]
        if rendering.is_stored and len(first.data) > _PIECE_BYTES:
            head, rest = served_parts(first, first.revision)
            yield b",".join((*comma, head))
            yield rest
        else:
            yield b",".join((*comma, *_items(rendering, batch)))
        comma = (b"",)
    yield _END


_END = b"]}"


def _envelope(rendering: Rendering, page: Page) -> bytes:
    """A list up to its first item; its items are the last field."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continuation:
        metadata["continue"] = page.continuation
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    if rendering.representation.form is Form.TABLE:
        return orjson.dumps(_table(rendering, [], metadata)).removesuffix(_END)
    kind, version = Form.PARTIAL_LIST.value, _meta_api_version(rendering)
    if rendering.is_plain:
        kind, version = rendering.resource.list_kind, rendering.api_version
    empty = {"kind": kind, "apiVersion": version, "metadata": metadata, "items": []}
    return orjson.dumps(empty).removesuffix(_END)


def _items(rendering: Rendering, batch: Sequence[Stored]) -> list[bytes]:
    if rendering.is_plain:
        return [_shown(rendering, stored) for stored in batch]
    documents = [orjson.loads(_shown(rendering, stored)) for stored in batch]
    if rendering.representation.form is Form.TABLE:
        rows = _table(rendering, documents, {}, with_columns=False)["rows"]
        return [dumps(row) for row in rows]
    return [dumps(_partial(rendering, document)) for document in documents]


def _batches(items: Sequence[Stored]) -> Iterator[Sequence[Stored]]:
    """Neighbours that fill a piece together; a larger one alone."""
    start = size = 0
    for position, stored in enumerate(items):
        size += len(stored.data)
        if size > _PIECE_BYTES and position > start:
            yield items[start:position]
            start, size = position, len(stored.data)
    if items:
        yield items[start:]


def event_parts(rendering: Rendering, event: Event) -> tuple[Piece, ...]:
    """A line of a watch that sends objects as they are stored, without a copy of the object."""
    head, rest = served_parts(event.stored, event.revision)
    return b'{"type":"%b","object":' % event.type.encode() + head, rest, b"}\n"


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
        rendering.layout,
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
