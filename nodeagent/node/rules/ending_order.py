"""The order in which pods end when the node is short of a resource, or shuts down; pure.

Evictions follow the reference agent (pkg/kubelet/eviction/helpers.go): first pods that use more
than they request, then by priority, then by use above the request; static pods and those of system
priority stay. A shutdown ends groups from the lowest priority to the highest; a pod belongs to the
highest group that is not above it (pkg/kubelet/nodeshutdown).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.node.rules.pressure import Observation, Threshold
from orch.wire import quantity
from orch.wire.names import CRITICAL_PRIORITY

MEMORY, STORAGE, INODES, PIDS = "memory", "ephemeral-storage", "inodes", "pids"
RESOURCE_OF: Mapping[str, str] = {
    "memory.available": MEMORY,
    "nodefs.available": STORAGE,
    "nodefs.inodesFree": INODES,
    "imagefs.available": STORAGE,
    "imagefs.inodesFree": INODES,
    "pid.available": PIDS,
}
_ORDER = (MEMORY, STORAGE, INODES, PIDS)  # of resources, when several are short
_BYTES = (MEMORY, STORAGE)


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """Usage and requests of a container by resource; absent means unknown, or not requested."""

    name: str
    used: Mapping[str, int] = field(default_factory=dict)
    requested: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running pod; `used` and `requested` are sums over its containers and its own."""

    uid: str
    priority: int = 0
    static: bool = False
    used: Mapping[str, int] = field(default_factory=dict)
    requested: Mapping[str, int] = field(default_factory=dict)
    containers: tuple[ContainerUse, ...] = ()

    @property
    def critical(self) -> bool:
        return self.static or self.priority >= CRITICAL_PRIORITY


def most_urgent(due: Iterable[Threshold]) -> Threshold | None:
    """The threshold to act on; memory first, hard before soft. None when evictions cannot help."""
    about_pods = [threshold for threshold in due if threshold.signal in RESOURCE_OF]
    return min(
        about_pods,
        key=lambda t: (_ORDER.index(RESOURCE_OF[t.signal]), t.grace_s > 0, t.signal),
        default=None,
    )


def ranked(resource: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that may be evicted, in order."""
    return sorted(
        (candidate for candidate in candidates if not candidate.critical),
        key=lambda candidate: (
            not _exceeds(candidate, resource),
            candidate.priority,
            -_excess(candidate, resource),
            candidate.uid,
        ),
    )


def message(threshold: Threshold, seen: Observation, pod: Candidate) -> str:
    """For the pod's status and its event."""
    resource = RESOURCE_OF[threshold.signal]
    limit = threshold.value.of(seen.capacity)
    text = (
        f"The node was low on resource: {resource}. Threshold quantity: {_shown(resource, limit)}, "
        f"available: {_shown(resource, seen.available)}."
    )
    for container in pod.containers:
        used, asked = container.used.get(resource), container.requested.get(resource, 0)
        if used is not None and used > asked:
            text += (
                f" Container {container.name} was using {_shown(resource, used)}, "
                f"request is {_shown(resource, asked)}, has larger consumption of {resource}."
            )
    return text


def _exceeds(pod: Candidate, resource: str) -> bool:
    """Process ids and inodes cannot be requested: priority decides there, then usage."""
    return resource in _BYTES and _excess(pod, resource) > 0


def _excess(pod: Candidate, resource: str) -> int:
    return pod.used.get(resource, 0) - pod.requested.get(resource, 0)


def _shown(resource: str, amount: int) -> str:
    return quantity.format_bytes(amount) if resource in _BYTES else str(amount)


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of this priority and above have `seconds` to end."""

    priority: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Member:
    """A running pod; `grace_s` is its own grace period."""

    uid: str
    priority: int = 0
    grace_s: int = 30


@dataclass(frozen=True, slots=True)
class Stage:
    """Pods that end concurrently, each with its own grace period, and the time for all of them."""

    seconds: int
    pods: tuple[Member, ...]


def groups_of(config: NodeAgentConfiguration) -> tuple[Group, ...]:
    """As configured; () when the feature is off.

    ValueError, beginning with a field's name, for settings that contradict each other.
    """
    total_s, critical_s = config.shutdownGracePeriod, config.shutdownGracePeriodCriticalPods
    by_priority = [
        Group(group.priority, group.shutdownGracePeriodSeconds)
        for group in config.shutdownGracePeriodByPodPriority
    ]
    if by_priority and (total_s or critical_s):
        raise ValueError(
            "shutdownGracePeriodByPodPriority excludes shutdownGracePeriod and "
            "shutdownGracePeriodCriticalPods"
        )
    for name in ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods"):
        if 0 < getattr(config, name) < 1:
            raise ValueError(f"{name} must be 0s or at least 1s")
    if critical_s > total_s:
        raise ValueError(
            f"shutdownGracePeriodCriticalPods ({critical_s:g}s) must not exceed "
            f"shutdownGracePeriod ({total_s:g}s)"
        )
    if by_priority:
        return tuple(sorted(by_priority, key=lambda group: group.priority))
    if not total_s:
        return ()
    return (Group(0, int(total_s - critical_s)), Group(CRITICAL_PRIORITY, int(critical_s)))


def stages(groups: Sequence[Group], members: Iterable[Member]) -> list[Stage]:
    """The pods of each group in order; groups without a pod are omitted."""
    sorted_groups = sorted(groups, key=lambda group: group.priority)
    belonging: list[list[Member]] = [[] for _ in sorted_groups]
    for member in members:
        above = bisect_right(sorted_groups, member.priority, key=lambda group: group.priority)
        belonging[max(above - 1, 0)].append(member)
    ended = zip(sorted_groups, belonging, strict=True)
    return [Stage(group.seconds, tuple(pods)) for group, pods in ended if pods]
