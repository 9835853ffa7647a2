"""The bounds of pod cgroups, from the limits and requests of containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.cgroups import pod_cgroups, tree
from nodeagent.pods.cgroups.pod_cgroups import CgroupError, PodCgroups
from nodeagent.pods.counts import Timings
from nodeagent.pods.spec.policy import ResourcePolicy
from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, container_data, pod


def with_resources(*resources: dict[str, Any]) -> Pod:
    return pod(*(container_data(f"c{n}", resources=one) for n, one in enumerate(resources)))


def test_process_ids_are_bounded_where_a_limit_is_set() -> None:
    assert "pids.max" not in pod_cgroups.pod_bounds(pod(), unified=True)
    for unified in (True, False):
        bounds = pod_cgroups.pod_bounds(pod(), unified=unified, pids_limit=100)
        assert bounds["pids.max"] == "100"


def tree_of(tmp_path: Path, *, unified: bool, **files: str) -> Path:
    """A pod's cgroup below a root of either version, with these files."""
    root = tmp_path / "root"
    folder = root if unified else root / "all"
    cgroup = folder / "orchpods" / "burstable" / f"pod{UID}"
    cgroup.mkdir(parents=True)
    if unified:
        (root / "cgroup.controllers").write_text("cpu memory")
    for name, value in files.items():
        (cgroup / name.replace("__", ".")).write_text(value)
    return cgroup


def in_force(cgroup: Path) -> dict[str, str]:
    return {path.name: path.read_text().strip() for path in cgroup.iterdir()}


def test_a_host_with_both_versions_has_not_v2_alone(tmp_path: Path) -> None:
    """There the runtime takes no settings of v2."""
    for name in ("cpu", "memory", "unified"):
        (tmp_path / name).mkdir()
    assert not tree.is_unified(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    assert tree.is_unified(tmp_path)


RESIZED = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "64Mi"}}


@pytest.mark.parametrize(
    ("unified", "before", "grown", "after"),
    [
        (
            True,
            {"cpu__weight": "4", "cpu__max": "50000 100000", "memory__max": str(128 << 20)},
            {"cpu.weight": "20", "cpu.max": "100000 100000", "memory.max": str(128 << 20)},
            {"cpu.weight": "20", "cpu.max": "100000 100000", "memory.max": str(64 << 20)},
        ),
        (
            False,
            {
                "cpu__shares": "1024",
                "cpu__cfs_quota_us": "-1",
                "memory__limit_in_bytes": "9223372036854771712",
            },
            {
                "cpu.shares": "1024",
                "cpu.cfs_quota_us": "-1",
                "memory.limit_in_bytes": "9223372036854771712",
            },
            {
                "cpu.shares": "512",
                "cpu.cfs_quota_us": "100000",
                "memory.limit_in_bytes": str(64 << 20),
            },
        ),
    ],
)
async def test_what_grows_of_a_pod_grows_first_and_what_shrinks_comes_last(
    tmp_path: Path, unified: bool, before: Any, grown: Any, after: Any
) -> None:
    cgroup = tree_of(tmp_path, unified=unified, **before)
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path / "root"))
    wanted = with_resources(RESIZED)
    await cgroups.resize(wanted, grow=True)
    assert in_force(cgroup) == grown
    await cgroups.resize(wanted, grow=False)
    assert in_force(cgroup) == after


async def test_what_the_kernel_refuses_is_told_and_what_is_used_is_read(tmp_path: Path) -> None:
    cgroup = tree_of(tmp_path, unified=True, memory__current="4096")
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path / "root"))
    wanted = with_resources(RESIZED)
    assert await cgroups.memory_used_bytes(wanted) == 4096
    (cgroup / "memory.max").mkdir()
    with pytest.raises(CgroupError, match="cannot resize the cgroup of the pod: Is a directory"):
        await cgroups.resize(wanted, grow=False)


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


SLOW = ResourcePolicy(cfs_period_usec=10_000)
OFF = ResourcePolicy(cfs_quota=False)
TIERED = ResourcePolicy(unified=True, throttling_factor=0.9, protects_memory=True)
BY_POLICY: list[tuple[ResourcePolicy, dict[str, Any], bool, dict[str, str]]] = [
    (SLOW, {"limits": BOTH}, True, {"cpu.max": "1000 10000"}),
    (SLOW, {"limits": BOTH}, False, {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "1000"}),
    (OFF, {"limits": BOTH}, True, {"cpu.max": "max 100000"}),
    (OFF, {"limits": BOTH}, False, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"}),
    (TIERED, {"limits": BOTH}, True, {"memory.min": str(100 * 2**20), "memory.low": "0"}),
    (TIERED, {"requests": {"memory": "1Mi"}}, True, {"memory.min": "0", "memory.low": "1048576"}),
]


@pytest.mark.parametrize(("policy", "resources", "unified", "expected"), BY_POLICY)
def test_the_bounds_of_a_pod_follow_the_configuration(
    policy: ResourcePolicy, resources: dict[str, Any], unified: bool, expected: dict[str, str]
) -> None:
    wanted = with_resources(resources)
    bounds = pod_cgroups.pod_bounds(wanted, unified=unified, policy=policy)
    assert {file: bounds[file] for file in expected} == expected


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1024, 39), (262_144, 10_000)])
def test_shares_become_weights_as_runtimes_convert_them(shares: int, weight: int) -> None:
    assert pod_cgroups.cpu_weight(shares) == weight


def test_only_a_host_with_nothing_else_has_cgroup_v2(tmp_path: Path) -> None:
    for name in ("memory", "cpu", "unified"):
        (tmp_path / name).mkdir()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    assert not tree.is_unified(tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    assert tree.is_unified(tmp_path)
