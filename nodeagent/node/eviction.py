"""Which pod goes when the node runs short of something, and what it is told; pure.

The order is the reference agent's (pkg/kubelet/eviction/helpers.go): first who uses more than it
asked for, then the lower priority, then who uses most beyond what it asked for. Static pods and
those of system priority stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodeagent.node.pressure import Observation, Threshold
from orch.wire import quantity

MEMORY, STORAGE, INODES, PIDS = "memory", "ephemeral-storage", "inodes", "pids"
RESOURCE_OF: Mapping[str, str] = {
    "memory.available": MEMORY,
    "nodefs.available": STORAGE,
    "nodefs.inodesFree": INODES,
    "imagefs.available": STORAGE,
    "imagefs.inodesFree": INODES,
    "pid.available": PIDS,
}
CRITICAL_PRIORITY = 2_000_000_000
_ORDER = (MEMORY, STORAGE, INODES, PIDS)  # what is looked after first when several are short
_BYTES = (MEMORY, STORAGE)


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What one container uses and asked for, by resource; absent is not known, or nothing asked."""

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
    """The threshold to act on; memory first, hard before soft. None when pods cannot help."""
    about_pods = [threshold for threshold in due if threshold.signal in RESOURCE_OF]
    return min(
        about_pods,
        key=lambda t: (_ORDER.index(RESOURCE_OF[t.signal]), t.grace_s > 0, t.signal),
        default=None,
    )


def ranked(resource: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that may be evicted, the first to go first."""
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
    """What the pod's status and its event say."""
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
    """Nobody asks for process ids or inodes: there the priority decides, then the use."""
    return resource in _BYTES and _excess(pod, resource) > 0


def _excess(pod: Candidate, resource: str) -> int:
    return pod.used.get(resource, 0) - pod.requested.get(resource, 0)


def _shown(resource: str, amount: int) -> str:
    return quantity.format_bytes(amount) if resource in _BYTES else str(amount)
