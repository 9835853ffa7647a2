"""Sizes of pods and containers; sums as K:staging/src/k8s.io/component-helpers/resource."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.pods.resize import sizes
from nodeagent.pods.resize.allocations import allocation_of
from nodeagent.pods.resize.sizes import Size
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod

MI = 1 << 20


def made(*resources: Any, **spec: Any) -> Pod:
    listed = (container_data(f"c{n}", resources=each) for n, each in enumerate(resources))
    return pod(*listed, **spec)


amounts = st.integers(0, 2**62)


@given(st.builds(Size, amounts, amounts, amounts, amounts))
def test_what_is_written_is_read_back(size: Size) -> None:
    assert sizes.parse_size(size.text()) == size


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "1,2,3,x", "1,2,3,-4", "1,2,3,²"])
def test_other_texts_are_no_sizes(text: str) -> None:
    assert sizes.parse_size(text) is None


@pytest.mark.parametrize("limit", ["1E", "9223372036854775807"])
def test_the_largest_size_is_read_back_too(limit: str) -> None:
    largest = {"requests": {"cpu": "1m"}, "limits": {"cpu": limit, "memory": limit}}
    size = sizes.pod_size(made(largest, largest, largest))
    assert sizes.parse_size(size.text()) == size


BOTH = {"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "2Mi"}}


@pytest.mark.parametrize(
    ("wanted", "container", "whole"),
    [
        (made({}), Size(), Size()),
        (made(BOTH), Size(100, 1000, MI, 2 * MI), Size(100, 1000, MI, 2 * MI)),
        (made(BOTH, BOTH), Size(100, 1000, MI, 2 * MI), Size(200, 2000, 2 * MI, 4 * MI)),
        (made(BOTH, {}), Size(100, 1000, MI, 2 * MI), Size(100, 0, MI, 0)),
        # What the pod is limited to limits each container that has no limit of its own.
        (
            made({}, resources={"limits": {"cpu": "2", "memory": "8Mi"}}),
            Size(0, 2000, 0, 8 * MI),
            Size(2000, 2000, 8 * MI, 8 * MI),
        ),
        (
            made(BOTH, {}, resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
            Size(100, 1000, MI, 2 * MI),
            Size(1000, 2000, MI, 0),
        ),
    ],
)
def test_the_size_of_a_container_and_of_its_pod(wanted: Pod, container: Size, whole: Size) -> None:
    assert sizes.container_size(wanted, wanted.spec.containers[0]) == container
    assert sizes.pod_size(wanted) == whole


def test_an_allocated_pod_has_what_was_granted_and_all_else_that_is_desired() -> None:
    granted = allocation_of(made(BOTH))
    desired = made({"requests": {"cpu": "2"}}, nodeName="n1", resources={"limits": {"cpu": "3"}})
    allocated = sizes.allocated_pod(desired, granted)
    assert allocated.spec.containers[0].resources == made(BOTH).spec.containers[0].resources
    assert (allocated.spec.resources, allocated.spec.nodeName) == (None, "n1")
    assert not sizes.is_allocated(desired, granted)


def test_the_same_amounts_in_other_words_are_no_resize() -> None:
    granted = allocation_of(made(BOTH))
    same = made({"requests": {"cpu": "0.1", "memory": "1024Ki"}, "limits": BOTH["limits"]})
    assert sizes.allocated_pod(same, granted) is same
