from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from orch.server.objects.document import encode
from orch.server.objects.selection import concern_of, parse_selection, selectable
from orch.server.storage.base import Stored
from orch.server.strategy import events, namespaces, nodes, pods
from orch.wire.errors import ApiError


def stored(**document: Any) -> Stored:
    document.setdefault("metadata", {"name": "x", "namespace": "ns", "labels": {"a": "b"}})
    return Stored("/k/ns/x", 1, encode({"kind": "K", "apiVersion": "v1", **document}))


POD = stored(spec={"nodeName": "n1", "restartPolicy": "Always"}, status={"phase": "Running"})
EVENT = stored(involvedObject={"kind": "Pod", "uid": "u"}, source={"component": "c"}, type="Normal")


@pytest.mark.parametrize(
    ("strategy", "labels", "fields", "object_", "matches"),
    [
        (pods.STRATEGY, "", "", POD, True),
        (pods.STRATEGY, "a=b", "", POD, True),
        (pods.STRATEGY, "a=c", "", POD, False),
        (pods.STRATEGY, "", "metadata.name=x,metadata.namespace=ns", POD, True),
        (pods.STRATEGY, "", "spec.nodeName=n1", POD, True),
        (pods.STRATEGY, "", "spec.host=n1", POD, True),
        (pods.STRATEGY, "", "spec.nodeName=", POD, False),
        (pods.STRATEGY, "", "spec.nodeName=", stored(spec={}), True),
        (pods.STRATEGY, "", "status.phase!=Succeeded,status.phase!=Failed", POD, True),
        (pods.STRATEGY, "a=b", "spec.nodeName=n2", POD, False),
        (pods.STRATEGY, "", "spec.hostNetwork=false", POD, True),
        (pods.STRATEGY, "", "spec.hostNetwork=true", stored(spec={"hostNetwork": True}), True),
        (nodes.NODE_STRATEGY, "", "spec.unschedulable=false", stored(), True),
        (
            nodes.NODE_STRATEGY,
            "",
            "spec.unschedulable=true",
            stored(spec={"unschedulable": True}),
            True,
        ),
        (events.STRATEGY, "", "involvedObject.kind=Pod,involvedObject.uid=u", EVENT, True),
        (events.STRATEGY, "", "source=c,type=Normal", EVENT, True),
        (events.STRATEGY, "", "involvedObject.name=other", EVENT, False),
        (namespaces.STRATEGY, "", "status.phase=Active", stored(status={"phase": "Active"}), True),
    ],
)
def test_objects_are_selected_by_labels_and_fields(
    strategy, labels, fields, object_, matches
) -> None:
    fresh = Stored(object_.key, object_.revision, object_.data)
    assert parse_selection(strategy, labels, fields).matches(fresh) is matches


@pytest.mark.parametrize(
    ("strategy", "labels", "fields"),
    [
        (nodes.LEASE_STRATEGY, "", "spec.holderIdentity=x"),
        (nodes.NODE_STRATEGY, "", "metadata.namespace=x"),
        (pods.STRATEGY, "", "spec.nodeName"),
        (pods.STRATEGY, "a==b==c", ""),
        (pods.STRATEGY, "a in", ""),
    ],
)
def test_what_is_no_selector_for_the_kind_is_a_bad_request(strategy, labels, fields) -> None:
    with pytest.raises(ApiError) as caught:
        parse_selection(strategy, labels, fields)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("strategy", "fields", "concern"),
    [
        (pods.STRATEGY, "spec.nodeName=n1", ("spec.nodeName", "n1")),
        (pods.STRATEGY, "status.phase!=Failed,spec.nodeName=n1", ("spec.nodeName", "n1")),
        (pods.STRATEGY, "spec.nodeName=n1,metadata.name=x", ("metadata.name", "x")),
        (nodes.LEASE_STRATEGY, "metadata.name=n1", ("metadata.name", "n1")),
        (pods.STRATEGY, "spec.nodeName!=n1", None),
        (pods.STRATEGY, "status.phase=Running", None),
        (pods.STRATEGY, "", None),
    ],
)
def test_a_watch_of_one_node_or_one_name_is_only_about_that(strategy, fields, concern) -> None:
    found = concern_of(parse_selection(strategy, "", fields))
    assert (found and (found.name, found.value)) == concern
    if found and found.name == "spec.nodeName":
        assert found.of(Stored(POD.key, POD.revision, POD.data)) == "n1"


def test_what_is_selected_by_is_read_once_per_revision() -> None:
    fresh = Stored(POD.key, POD.revision, POD.data)
    first = selectable(pods.STRATEGY, fresh)
    assert selectable(pods.STRATEGY, fresh) is first
    assert first.labels == {"a": "b"}
    assert first.fields["spec.nodeName"] == "n1"


def test_an_unselective_reader_parses_nothing() -> None:
    fresh = Stored(POD.key, POD.revision, b"not even json")
    assert parse_selection(pods.STRATEGY, "", "").matches(fresh)
    assert fresh.memo == {}


def test_many_labels_are_selected_by_and_take_no_memory_beside_their_object() -> None:
    """A list by a label read them of all objects: 10 MiB of those took 38 MiB more."""
    selection = parse_selection(pods.STRATEGY, "k7", "")
    objects = [
        stored(
            metadata={"name": "x", "labels": {f"k{n * 1000 + label}": "" for label in range(1000)}}
        )
        for n in range(50)
    ]
    tracemalloc.start()
    try:
        assert [selection.matches(one) for one in objects] == [True] + 49 * [False]
        assert [selection.matches(one) for one in objects] == [True] + 49 * [False]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    few = 16 * 150_000  # are read at a time
    assert kept < sum(len(one.data) for one in objects) * 1.2 + few, kept


def test_long_fields_are_selected_by_and_take_no_memory_beside_their_object() -> None:
    """A list by a field kept them as texts of four bytes a character: 29 MB of events took 100."""
    text = "x" * 100_000 + "\U0001f600"
    selection = parse_selection(events.STRATEGY, "", f"type!=y,source={'x' * 100}")
    objects = [stored(reason=text, type=text, source={"component": "x" * 100}) for _ in range(20)]
    tracemalloc.start()
    try:
        assert [selection.matches(one) for one in objects] == 20 * [True]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    few = 16 * 200_000  # are read at a time
    assert kept < sum(len(one.data) for one in objects) * 0.5 + few, kept
