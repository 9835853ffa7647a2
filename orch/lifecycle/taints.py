"""Taints that follow from a node's conditions; pure. Others' taints are never touched.

NoSchedule taints mirror conditions at once. NoExecute ones evict pods: whether a node may get one
now is `zones`' and `decide`'s business. Source: pkg/controller/nodelifecycle.
"""

from __future__ import annotations

from orch.lifecycle.probes import READY, Judgement
from orch.wire import names
from orch.wire.core import Node, Taint

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
_OF_READY = {"False": names.TAINT_NOT_READY, "Unknown": names.TAINT_UNREACHABLE}
_OF_CONDITION = {
    "MemoryPressure": names.TAINT_MEMORY_PRESSURE,
    "DiskPressure": names.TAINT_DISK_PRESSURE,
    "PIDPressure": names.TAINT_PID_PRESSURE,
    "NetworkUnavailable": names.TAINT_NETWORK_UNAVAILABLE,
}
_EVICTING = tuple(_OF_READY.values())
_MIRRORING = (*_EVICTING, *_OF_CONDITION.values(), names.TAINT_UNSCHEDULABLE)


def of_node(node: Node) -> tuple[Taint, ...]:
    return tuple(node.spec.taints or ())


def mirrored(node: Node, judgement: Judgement) -> tuple[Taint, ...]:
    """The node's taints with the NoSchedule ones as its conditions demand."""
    wanted = [key for kind, key in _OF_CONDITION.items() if judgement.status(kind) == "True"]
    if (status := judgement.status(READY)) in _OF_READY:
        wanted.append(_OF_READY[status])
    if node.spec.unschedulable:
        wanted.append(names.TAINT_UNSCHEDULABLE)
    kept = [t for t in of_node(node) if not _mirrors(t) or t.key in wanted]
    there = {t.key for t in kept if _mirrors(t)}
    added = [Taint(key=key, effect=NO_SCHEDULE) for key in wanted if key not in there]
    return (*kept, *added)


def evicting_key(status: str) -> str:
    """The key of the NoExecute taint that a status of Ready calls for; "" for none."""
    return _OF_READY.get(status, "")


def has_evicting(taints: tuple[Taint, ...]) -> bool:
    return any(_evicts(taint) for taint in taints)


def with_evicting(taints: tuple[Taint, ...], key: str, now: str) -> tuple[Taint, ...]:
    """Exactly this NoExecute taint of the two ("" removes both); one that is there stays."""
    kept = tuple(t for t in taints if not _evicts(t) or t.key == key)
    if not key or has_evicting(kept):
        return kept
    return (*kept, Taint(key=key, effect=NO_EXECUTE, timeAdded=now))


def _mirrors(taint: Taint) -> bool:
    return taint.effect == NO_SCHEDULE and taint.key in _MIRRORING


def _evicts(taint: Taint) -> bool:
    return taint.effect == NO_EXECUTE and taint.key in _EVICTING
