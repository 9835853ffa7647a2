from __future__ import annotations

import orjson
import pytest

from orch.server.objects.document import decode, encode, key_of, prefix_of, same, served
from orch.server.storage.base import StorageFailed, Stored
from orch.wire.records.kinds import LEASES, NODES, PODS

DOCUMENT = {
    "spec": {"note": 'tricky "metadata":{ inside'},
    "metadata": {"name": "x", "resourceVersion": "5", "selfLink": "/x"},
    "apiVersion": "v1",
    "kind": "Pod",
}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (key_of(PODS, "ns", "x"), "/pods/ns/x"),
        (key_of(NODES, "", "x"), "/nodes/x"),
        (key_of(NODES, "ignored", "x"), "/nodes/x"),
        (key_of(LEASES, "ns", "x"), "/leases.coordination.orch.io/ns/x"),
        (prefix_of(PODS), "/pods/"),
        (prefix_of(PODS, "ns"), "/pods/ns/"),
    ],
)
def test_keys_name_kind_namespace_and_name(key: str, expected: str) -> None:
    assert key == expected


def test_stored_bytes_begin_with_kind_version_and_metadata_and_hold_no_version() -> None:
    data = encode(DOCUMENT)
    assert data.startswith(b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}')
    assert DOCUMENT["metadata"]["resourceVersion"] == "5"


def test_an_object_that_cannot_be_read_is_named() -> None:
    """A server did not start, and nothing said which of thousands of objects was bad."""
    with pytest.raises(StorageFailed, match="/pods/ns/x is no JSON"):
        decode(Stored("/pods/ns/x", 42, b"{bad"))


def test_an_object_is_served_with_the_revision_it_is_stored_at() -> None:
    stored = Stored("/pods/ns/x", 42, encode(DOCUMENT))
    assert orjson.loads(served(stored))["metadata"] == {"resourceVersion": "42", "name": "x"}
    assert orjson.loads(served(stored, 43))["metadata"]["resourceVersion"] == "43"
    assert orjson.loads(served(stored))["spec"] == DOCUMENT["spec"]
    assert decode(stored) == orjson.loads(served(stored))


def test_objects_are_the_same_whatever_their_version() -> None:
    other = {**DOCUMENT, "metadata": {"name": "x", "resourceVersion": "6"}}
    assert same(DOCUMENT, other)
    assert not same(DOCUMENT, {**other, "spec": {}})
    assert not same(DOCUMENT, {**other, "metadata": {"name": "x", "labels": {"a": "b"}}})
