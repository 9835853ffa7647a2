"""The bounds of pod cgroups, from the limits and requests of containers."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.pods.cgroups import pod_cgroups
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod


def with_resources(*resources: dict[str, Any]) -> Pod:
    return pod(*(container_data(f"c{n}", resources=one) for n, one in enumerate(resources)))


def test_process_ids_are_bounded_where_a_limit_is_set() -> None:
    assert "pids.max" not in pod_cgroups.pod_bounds(pod(), unified=True)
    for unified in (True, False):
        bounds = pod_cgroups.pod_bounds(pod(), unified=unified, pids_limit=100)
        assert bounds["pids.max"] == "100"


BOTH = {"cpu": "100m", "memory": "100Mi"}
BOUNDS: list[tuple[Pod, bool, dict[str, str]]] = [
    (with_resources({}), False, {"cpu.shares": "2"}),
    (with_resources({}), True, {"cpu.weight": "1"}),
    (
        with_resources({"limits": BOTH}, {"limits": {"cpu": "1", "memory": "28Mi"}}),
        False,
        {
            "cpu.shares": "1126",
            "cpu.cfs_period_us": "100000",
            "cpu.cfs_quota_us": "110000",
            "memory.limit_in_bytes": str(128 * 2**20),
        },
    ),
    (
        with_resources({"limits": BOTH}),
        True,
        {"cpu.weight": "4", "cpu.max": "10000 100000", "memory.max": str(100 * 2**20)},
    ),
    (with_resources({"limits": BOTH}, {}), True, {"cpu.weight": "4"}),
    (with_resources({"limits": {"cpu": "0"}}), True, {"cpu.weight": "1"}),
    (  # an init container that needs more, beside a sidecar
        pod(
            container_data("app", resources={"limits": BOTH}),
            initContainers=[
                container_data("side", restartPolicy="Always", resources={"limits": BOTH}),
                container_data("init", resources={"limits": {"cpu": "1", "memory": "1Gi"}}),
            ],
        ),
        True,
        {"cpu.weight": "43", "cpu.max": "110000 100000", "memory.max": str(1124 * 2**20)},
    ),
    (  # an init container without limits
        pod(
            container_data("app", resources={"limits": BOTH}),
            initContainers=[container_data("init")],
        ),
        True,
        {"cpu.weight": "4"},
    ),
]


@pytest.mark.parametrize(("wanted", "unified", "expected"), BOUNDS)
def test_a_pod_is_bounded_by_the_sum_when_every_container_is_limited(
    wanted: Pod, unified: bool, expected: dict[str, str]
) -> None:
    assert pod_cgroups.pod_bounds(wanted, unified=unified) == expected


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1024, 39), (262_144, 10_000)])
def test_shares_become_weights_as_runtimes_convert_them(shares: int, weight: int) -> None:
    assert pod_cgroups.cpu_weight(shares) == weight
