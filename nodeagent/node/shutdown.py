"""In which order pods end when the node shuts down, and how long each group has; pure.

Groups are told by priority: a pod belongs to the group with the highest priority that is not above
its own, the rest to the lowest group. Groups end from the lowest priority to the highest
(pkg/kubelet/nodeshutdown).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.node.eviction import CRITICAL_PRIORITY


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
    """Pods that end side by side, each with its own grace period, and the time for all of them."""

    seconds: int
    pods: tuple[Member, ...]


def groups_of(config: NodeAgentConfiguration) -> tuple[Group, ...]:
    """What the configuration asks for; () when the feature is off.

    ValueError for settings that contradict each other; it begins with a field's name.
    """
    total_s, critical_s = config.shutdownGracePeriod, config.shutdownGracePeriodCriticalPods
    by_priority = [
        Group(one.priority, one.shutdownGracePeriodSeconds)
        for one in config.shutdownGracePeriodByPodPriority
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
    """Who ends when; groups without a pod are left out."""
    sorted_groups = sorted(groups, key=lambda group: group.priority)
    belonging: dict[int, list[Member]] = {group.priority: [] for group in sorted_groups}
    for member in members:
        below = [group.priority for group in sorted_groups if group.priority <= member.priority]
        belonging[below[-1] if below else sorted_groups[0].priority].append(member)
    return [
        Stage(group.seconds, tuple(belonging[group.priority]))
        for group in sorted_groups
        if belonging[group.priority]
    ]
