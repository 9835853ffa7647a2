"""Amounts of resources become settings of cgroup v2 by the configuration of the node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.pods.spec import spec
from nodeagent.pods.spec.policy import (
    NodeMemory,
    ResourcePolicy,
    container_unified,
    hugepage_bounds,
    hugepage_bytes,
    pod_unified,
)
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod

MIB = 2**20
NODE = NodeMemory(capacity_bytes=1000 * MIB, allocatable_bytes=900 * MIB)
PLAIN = ResourcePolicy(unified=True)
QOS = replace(PLAIN, throttling_factor=0.9)
TIERED = replace(QOS, protects_memory=True)
SWAP = replace(PLAIN, swap_bytes=500 * MIB)

ASKING = {"requests": {"memory": "100Mi"}}
BOUNDED = {"requests": {"memory": "100Mi"}, "limits": {"memory": "200Mi"}}
EQUAL = {"limits": {"memory": "100Mi"}}
GUARANTEED = {"limits": {"memory": "100Mi", "cpu": "1"}}


def asking(resources: dict[str, Any], **spec: Any) -> Pod:
    return pod(container_data("app", resources=resources), **spec)


def files(wanted: Pod, policy: ResourcePolicy) -> dict[str, str]:
    return container_unified(wanted, wanted.spec.containers[0], policy, NODE)


# kuberuntime_container_linux_test.go: memory.high = requests + factor x (limit or allocatable -
# requests), down to a page
HIGH: list[tuple[dict[str, Any], int | None]] = [
    (BOUNDED, 190 * MIB),
    (ASKING, 820 * MIB),
    (EQUAL, None),
    (GUARANTEED, None),
    ({}, None),
    ({"requests": {"memory": "900Mi"}}, None),
    ({"requests": {"memory": "5000"}, "limits": {"memory": "20001"}}, 16384),
]


@pytest.mark.parametrize(("resources", "high"), HIGH)
def test_a_container_is_slowed_down_before_its_limit(
    resources: dict[str, Any], high: int | None
) -> None:
    shown = files(asking(resources), QOS).get("memory.high")
    assert shown == (None if high is None else str(high))
    assert "memory.high" not in files(asking(resources), PLAIN)


PROTECTED = [
    (GUARANTEED, "104857600", "0"),
    (BOUNDED, "0", "104857600"),
    (EQUAL, "0", "104857600"),
    ({}, "0", "0"),
]


@pytest.mark.parametrize(("resources", "least", "soft"), PROTECTED)
def test_what_a_container_requests_is_protected_where_that_is_wanted(
    resources: dict[str, Any], least: str, soft: str
) -> None:
    wanted = asking(resources)
    for policy, expected in ((TIERED, (least, soft)), (QOS, ("0", "0"))):
        shown = files(wanted, policy)
        assert (shown["memory.min"], shown["memory.low"]) == expected
    of_pod = pod_unified(wanted, TIERED)
    assert (of_pod.get("memory.min", "0"), of_pod.get("memory.low", "0")) == (least, soft)
    assert pod_unified(wanted, PLAIN) == {}


# LimitedSwap: the request's share of the machine's memory, of the machine's swap
SWAPPING: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    (ASKING, {}, 50 * MIB),
    (BOUNDED, {}, 50 * MIB),
    (EQUAL, {}, 0),
    (GUARANTEED, {}, 0),
    ({}, {}, 0),
    (ASKING, {"priority": 2_000_000_000}, 0),
]


@pytest.mark.parametrize(("resources", "spec", "swap"), SWAPPING)
def test_burstable_containers_share_in_the_swap_by_their_requests(
    resources: dict[str, Any], spec: dict[str, Any], swap: int
) -> None:
    wanted = asking(resources, **spec)
    assert files(wanted, SWAP) == {"memory.swap.max": str(swap)}
    assert files(wanted, replace(SWAP, swap_bytes=0)) == {"memory.swap.max": "0"}
    assert files(wanted, PLAIN) == {}, "the kernel cannot limit it"


def test_the_kernel_kills_a_container_as_a_whole_where_it_may() -> None:
    assert files(pod(), replace(PLAIN, kills_groups=True)) == {"memory.oom.group": "1"}


def test_without_cgroup_v2_nothing_of_it_is_asked_for() -> None:
    every = replace(TIERED, unified=False, swap_bytes=MIB, kills_groups=True)
    assert files(asking(BOUNDED), every) == {}
    assert pod_unified(asking(BOUNDED), every) == {}


def test_huge_pages_are_bounded_and_others_may_have_none() -> None:
    resources = {"limits": {"hugepages-2Mi": "4Mi", "hugepages-64Ki": "128Ki", "cpu": "1"}}
    wanted = asking(resources)
    memory = NodeMemory(huge_pages=frozenset({"hugepages-2Mi", "hugepages-1Gi"}))
    shown = hugepage_bytes(wanted, wanted.spec.containers[0], memory)
    assert shown == {"2MB": 4 * MIB, "64KB": 2**17, "1GB": 0}
    assert hugepage_bytes(pod(), pod().spec.containers[0], NODE) == {}
    expected = {"2MB": str(4 * MIB), "64KB": str(2**17)}
    assert hugepage_bounds(wanted, unified=True) == {
        f"hugetlb.{size}.max": text for size, text in expected.items()
    }
    assert hugepage_bounds(wanted, unified=False) == {
        f"hugetlb.{size}.limit_in_bytes": text for size, text in expected.items()
    }
    assert hugepage_bounds(pod(), unified=True) == {}


@pytest.mark.parametrize(("own", "shown"), [({}, 8), ({"hugepages-2Mi": "2Mi"}, 2)])
def test_containers_share_the_huge_pages_of_their_pod(own: dict[str, str], shown: int) -> None:
    limits = {"cpu": "1", "hugepages-2Mi": "8Mi"}
    app = container_data("app", resources={"limits": own})
    wanted = pod(app, resources={"limits": limits})
    assert hugepage_bytes(wanted, wanted.spec.containers[0], NODE) == {"2MB": shown * MIB}
    assert hugepage_bounds(wanted, unified=True) == {"hugetlb.2MB.max": str(8 * MIB)}


@given(st.integers(0, 10_000), st.integers(1_000, 1_000_000))
def test_a_quota_is_the_share_of_its_period(milli: int, period_usec: int) -> None:
    quota = ResourcePolicy(cfs_period_usec=period_usec).quota_usec(milli)
    assert quota == (max(milli * period_usec // 1000, 1000) if milli else None)
    assert ResourcePolicy(cfs_quota=False).quota_usec(milli) is None


@pytest.mark.parametrize("limit", ["1E", "9223372036854775807"])
def test_a_quota_is_no_larger_than_the_kernel_takes(limit: str) -> None:
    wanted = asking({"requests": {"cpu": "1m"}, "limits": {"cpu": limit}})
    told = spec.container_resources(wanted, wanted.spec.containers[0], NODE)
    assert told.cpu_quota_usec == 2**44 - 1  # kernel/sched/core.c: max_cfs_runtime
