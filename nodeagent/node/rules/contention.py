"""Conditions from stalls: so much time lost to memory or disks that no pod should be added; pure.

A condition is set when the averages of both a minute and ten seconds reach its threshold, and
cleared when the minute's falls below it. Processors have none: a task waits for them through its
own limit, too. For the same reason the stalls of containers at their own memory limit do not count.
Source: KEP-5394 (PSINodeCondition), with the averages of `full`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nodeagent.stats.samples import CgroupSample, Sample

SYSTEM_MEMORY = "SystemMemoryContentionPressure"
SYSTEM_DISK = "SystemDiskContentionPressure"
PODS_MEMORY = "KubepodsMemoryContentionPressure"
PODS_DISK = "KubepodsDiskContentionPressure"
KINDS = (SYSTEM_MEMORY, SYSTEM_DISK, PODS_MEMORY, PODS_DISK)
_AT_LIMIT = 0.95


class StallShare(NamedTuple):
    """Percent of time in which nothing ran for lack of a resource."""

    avg10: float
    avg60: float


def stalls(sample: Sample) -> dict[str, StallShare]:
    """By condition, for those whose pressure the kernel reports."""
    pods = next((part.cgroup for part in sample.node.system if part.name == "pods"), None)
    own = _at_own_limit(sample)
    found = {
        SYSTEM_MEMORY: _less(_stall(sample.node.cgroup, "memory"), own),
        SYSTEM_DISK: _stall(sample.node.cgroup, "io"),
        PODS_MEMORY: _less(_stall(pods, "memory"), own),
        PODS_DISK: _stall(pods, "io"),
    }
    return {kind: stall for kind, stall in found.items() if stall is not None}


def step(
    before: frozenset[str], seen: Mapping[str, StallShare], thresholds: Mapping[str, float]
) -> frozenset[str]:
    """The conditions that are True now, of those with a threshold."""
    return frozenset(
        kind
        for kind, threshold in thresholds.items()
        if (stall := seen.get(kind)) is not None
        and stall.avg60 >= threshold
        and (stall.avg10 >= threshold or kind in before)
    )


def _stall(cgroup: CgroupSample | None, resource: str) -> StallShare | None:
    pressure = getattr(cgroup, f"{resource}_pressure", None)
    full = pressure.full if pressure else None
    return StallShare(full.avg10, full.avg60) if full else None


def _less(stall: StallShare | None, own: StallShare) -> StallShare | None:
    if stall is None:
        return None
    return StallShare(max(0.0, stall.avg10 - own.avg10), max(0.0, stall.avg60 - own.avg60))


def _at_own_limit(sample: Sample) -> StallShare:
    """What containers at their own memory limit lose, together."""
    found = [
        _stall(container.cgroup, "memory") or StallShare(0.0, 0.0)
        for pod in sample.pods
        for container in pod.containers
        if container.cgroup and _is_at_limit(container.cgroup)
    ]
    return StallShare(sum(stall.avg10 for stall in found), sum(stall.avg60 for stall in found))


def _is_at_limit(cgroup: CgroupSample) -> bool:
    limit, usage = cgroup.limits.memory_bytes, cgroup.memory and cgroup.memory.usage_bytes
    return limit is not None and usage is not None and usage >= _AT_LIMIT * limit
