from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.server.storage.tally import NodeTally, Tally, growth, place_in

KEYS = ("/pods/a/x", "/pods/a/y", "/pods/b/x", "/leases.coordination.orch.io/a/x", "/nodes/x")


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("/pods/a/x", ("a", "pods")),
        ("/leases.coordination.orch.io/a/x", ("a", "leases.coordination.orch.io")),
        ("/nodes/n1", ("/nodes", "nodes")),
        ("/nodes/pods", ("/nodes", "nodes")),
    ],
)
def test_a_key_lies_in_its_namespace_or_in_its_kind(key: str, place: tuple[str, str]) -> None:
    assert place_in(key) == place


DATA = st.binary(max_size=9) | st.sampled_from((b"{}", b'{"a":[{},{}]}'))


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.none() | DATA)))
def test_the_tally_is_what_a_recount_would_find(changes: list[tuple[str, bytes | None]]) -> None:
    tally = Tally()
    stored: dict[str, bytes] = {}
    for key, data in changes:
        tally.record(key, stored.get(key), data)
        stored.pop(key, None)
        if data is not None:
            stored[key] = data
    for name, kind in map(place_in, KEYS):
        there = {key: data for key, data in stored.items() if place_in(key) == (name, kind)}
        found = tally.scope(name).of(kind)
        assert found.objects == len(there)
        assert found.bytes == sum(len(key) + len(data) for key, data in there.items())
        assert found.records == sum(data.count(b"{") for data in there.values())
    assert tally.all.objects == len(stored)
    assert tally.all.bytes == sum(len(key) + len(data) for key, data in stored.items())


def test_an_emptied_namespace_leaves_nothing_behind() -> None:
    tally = Tally()
    tally.record("/pods/a/x", None, b"1")
    before = tally.scope("a")
    tally.record("/pods/a/x", b"1", None)
    assert tally.scope("a") is not before


PODS = ("/pods/a/x", "/pods/a/y", "/pods/b/x")
NODES = ("", "n1", "n2")


@given(st.lists(st.tuples(st.sampled_from(PODS), st.sampled_from(NODES), st.none() | DATA)))
def test_a_nodes_tally_is_what_its_pods_take(
    changes: list[tuple[str, str, bytes | None]],
) -> None:
    tally = NodeTally()
    there: dict[str, tuple[str, bytes]] = {}
    for key, node, data in changes:
        there.pop(key, None)
        if data is None:
            tally.drop(key)
        else:
            tally.put(key, node, growth("", None, data))
            there[key] = node, data
    for node in filter(None, NODES):
        for namespace in "ab":
            found = tally.amounts.scope(node).of(namespace)
            of_it = [
                data
                for key, (its_node, data) in there.items()
                if its_node == node and key.startswith(f"/pods/{namespace}/")
            ]
            assert found.objects == len(of_it)
            assert found.bytes == sum(map(len, of_it))
            assert found.records == sum(data.count(b"{") for data in of_it)
    bound = [data for node, data in there.values() if node]
    assert tally.amounts.all.bytes == sum(map(len, bound))
