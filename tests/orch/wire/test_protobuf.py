"""Fields are counted as the parser makes objects of them, however deep they lie."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from nodeagent.pods.devices import deviceplugin_pb2 as pb
from orch.wire.protobuf import require_few_fields


def device(name: str, nodes: int) -> Any:
    return pb.Device(ID=name, topology=pb.TopologyInfo(nodes=[pb.NUMANode()] * nodes))


def test_fields_of_all_parts_count() -> None:
    listed = pb.ListAndWatchResponse(devices=[device("a", 3), device("b", 0)])
    found = listed.SerializeToString()
    fields = 2 + 2 + 2 + 3  # devices; their ids; topologies; nodes
    require_few_fields(found, listed.DESCRIPTOR, fields)
    with pytest.raises(ValueError, match=f"more than {fields - 1} fields"):
        require_few_fields(found, listed.DESCRIPTOR, fields - 1)


def test_a_part_that_is_given_again_counts_again() -> None:
    again = pb.Device(topology=pb.TopologyInfo()).SerializeToString() * 5
    require_few_fields(again, pb.Device.DESCRIPTOR, 5)
    with pytest.raises(ValueError, match="more than 4 fields"):
        require_few_fields(again, pb.Device.DESCRIPTOR, 4)


def test_parts_of_what_the_message_does_not_know_do_not_count() -> None:
    """The parser keeps them as bytes."""
    unknown = b"\x7a\x04" + b"\x0a\x00" * 2
    require_few_fields(unknown, pb.Device.DESCRIPTOR, 1)


@pytest.mark.slow
def test_counting_takes_no_memory_for_each_field() -> None:
    found = b"\x0a\x00" * 50_000
    tracemalloc.start()
    try:
        require_few_fields(found, pb.ListAndWatchResponse.DESCRIPTOR, 50_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(found)
