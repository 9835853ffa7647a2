from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from orch.component.http.sliced_response import SLICE_BYTES
from orch.server.handlers import render
from orch.server.handlers.render import Rendering
from orch.server.objects.document import encode
from orch.server.objects.list_watch import Event, Page
from orch.server.request.media import Form, Representation
from orch.server.storage.base import Stored
from orch.wire.errors import ApiError
from orch.wire.records.kinds import NODES
from orch.wire.tables.columns import layout_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def rendering(form: Form = Form.OBJECT, version: str = "v1", **more: Any) -> Rendering:
    return Rendering(NODES, layout_of("Node"), Representation(form, version), NOW, **more)


def stored(name: str = "n1", revision: int = 7) -> Stored:
    metadata = {"name": name, "creationTimestamp": "2025-12-31T23:00:00Z"}
    document = {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {"x": 1}}
    return Stored(f"/nodes/{name}", revision, encode(document))


PAGE = Page([stored("a", 3), stored("b", 5)], 9, "token", 4)


def test_a_plain_list_is_joined_from_the_stored_bytes() -> None:
    listed = orjson.loads(render.render_list(rendering(), PAGE))
    assert (listed["kind"], listed["apiVersion"]) == ("NodeList", "v1")
    assert listed["metadata"] == {
        "resourceVersion": "9",
        "continue": "token",
        "remainingItemCount": 4,
    }
    assert [item["metadata"]["resourceVersion"] for item in listed["items"]] == ["3", "5"]
    empty = orjson.loads(render.render_list(rendering(), Page([], 9)))
    assert (empty["items"], empty["metadata"]) == ([], {"resourceVersion": "9"})


def test_tables_carry_the_lists_metadata_and_what_was_asked_for_of_each_object() -> None:
    table = orjson.loads(render.render_list(rendering(Form.TABLE), PAGE))
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"]["continue"] == "token"
    assert [row["cells"][0] for row in table["rows"]] == ["a", "b"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = rendering(Form.TABLE, "v1beta1", include_object="Object")
    older = orjson.loads(render.render_list(whole, PAGE))
    assert older["apiVersion"] == "meta.k8s.io/v1beta1"
    assert older["rows"][0]["object"]["spec"] == {"x": 1}
    bare = rendering(Form.TABLE, include_object="None")
    assert "object" not in orjson.loads(render.render_list(bare, PAGE))["rows"][0]


def test_reduced_objects_are_metadata_alone() -> None:
    reduced = orjson.loads(render.render_list(rendering(Form.PARTIAL_LIST), PAGE))
    assert reduced["kind"] == "PartialObjectMetadataList"
    assert reduced["items"][0]["kind"] == "PartialObjectMetadata"
    assert "spec" not in reduced["items"][0]
    one = orjson.loads(render.render_object(rendering(Form.PARTIAL), stored()))
    assert (one["kind"], one["metadata"]["name"]) == ("PartialObjectMetadata", "n1")


def test_an_object_is_shown_at_its_revision_or_without_one() -> None:
    plain = orjson.loads(render.render_object(rendering(), stored(revision=7)))
    assert plain["metadata"]["resourceVersion"] == "7"
    dry = orjson.loads(render.render_object(rendering(), stored(revision=0)))
    assert "resourceVersion" not in dry["metadata"]
    table = orjson.loads(render.render_object(rendering(Form.TABLE), stored()))
    assert table["rows"][0]["cells"][0] == "n1"


@pytest.mark.parametrize("form", [Form.OBJECT, Form.TABLE, Form.PARTIAL])
def test_events_are_one_line_each(form: Form) -> None:
    event = Event("DELETED", stored(revision=7), 8)
    line = render.render_event(rendering(form), event, first=True)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    parsed = orjson.loads(line)
    assert parsed["type"] == "DELETED"
    assert parsed["object"]["metadata"]["resourceVersion"] == "8"


def test_only_a_first_table_has_columns() -> None:
    event = Event("ADDED", stored(), 7)
    tables = [
        orjson.loads(render.render_event(rendering(Form.TABLE), event, first=first))["object"]
        for first in (True, False)
    ]
    assert tables[0]["columnDefinitions"]
    assert not tables[1]["columnDefinitions"]


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        (Form.OBJECT, "Node"),
        (Form.TABLE, "Table"),
        (Form.PARTIAL, "PartialObjectMetadata"),
    ],
)
def test_bookmarks_only_say_how_far(form: Form, kind: str) -> None:
    bookmark = orjson.loads(render.render_bookmark(rendering(form), 9))
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == kind
    assert bookmark["object"]["metadata"]["resourceVersion"] == "9"
    marked = orjson.loads(render.render_bookmark(rendering(form), 9, ends_initial=True))
    shown = marked["object"]
    metadata = shown["rows"][0]["object"]["metadata"] if form is Form.TABLE else shown["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    ("text", "value"), [("", "Metadata"), ("Object", "Object"), ("None", "None")]
)
def test_what_to_include_is_one_of_three(text: str, value: str) -> None:
    assert render.parse_include_object(text) == value
    with pytest.raises(ApiError, match="includeObject"):
        render.parse_include_object("object")


def test_json_for_human_eyes_is_the_same_json() -> None:
    body = render.render_list(rendering(), PAGE)
    pretty = render.indented(body)
    assert orjson.loads(pretty) == orjson.loads(body)
    assert pretty.startswith(b"{\n  ")


def test_a_line_of_a_watch_is_that_of_its_event() -> None:
    for each in (stored("a", 5), stored("b", 5)):
        for kind, revision in (("ADDED", 5), ("MODIFIED", 5), ("DELETED", 6)):
            line = render.render_event(rendering(), Event(kind, each, revision), first=True)
            shown = orjson.loads(line)
            assert shown["type"] == kind
            assert shown["object"] == orjson.loads(each.data) | {
                "metadata": orjson.loads(each.data)["metadata"] | {"resourceVersion": str(revision)}
            }


def large(name: str, size: int) -> Stored:
    metadata = {"name": name, "annotations": {"x": "y" * size}}
    return Stored(
        f"/nodes/{name}", 7, encode({"kind": "Node", "apiVersion": "v1", "metadata": metadata})
    )


SIZES = (10, 300_000, 10, 60_000, 60_000, 10, 300_000, 300_000, 5, 5)
LARGE = Page([large(f"n{n}", size) for n, size in enumerate(SIZES)], 9)


@pytest.mark.parametrize("form", [Form.OBJECT, Form.TABLE, Form.PARTIAL_LIST])
@pytest.mark.parametrize("page", [Page([], 9), PAGE, LARGE])
def test_a_list_in_pieces_is_one_document_with_every_item(form: Form, page: Page) -> None:
    shown = rendering(form, include_object="Object")
    pieces = list(render.list_pieces(shown, page))
    listed = orjson.loads(b"".join(pieces))
    items = listed["rows"] if form is Form.TABLE else listed["items"]
    names = [(item["object"] if form is Form.TABLE else item)["metadata"]["name"] for item in items]
    assert names == [stored.key.removeprefix("/nodes/") for stored in page.items]
    size = render.list_size(shown, page)
    assert size == (sum(map(len, pieces)) if form is Form.OBJECT else None)
    for piece in pieces:
        assert len(piece) <= SLICE_BYTES or len(piece) > 300_000


def test_a_large_object_is_not_copied_into_its_list_or_event() -> None:
    event = render.event_parts(rendering(), Event("MODIFIED", LARGE.items[1], 8))
    line = render.render_event(rendering(), Event("MODIFIED", LARGE.items[1], 8), first=True)
    assert b"".join(event) == line
    for pieces in (render.list_pieces(rendering(), LARGE), event):
        views = [piece.obj for piece in pieces if isinstance(piece, memoryview)]
        assert views and all(any(view is s.data for s in LARGE.items) for view in views)
