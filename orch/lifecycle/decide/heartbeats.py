"""Which nodes have been silent too long, and the conditions and taints that follow; pure.

A node is alive when its Lease or its Ready heartbeat changed, whatever the value: clocks of nodes
may be wrong, the controller's own counts. NoSchedule taints mirror conditions at once; whether a
node may get a NoExecute taint now is decided by `zones` and `decision`. Other taints stay as they
are. Source: pkg/controller/nodelifecycle tryUpdateNodeHealth.
"""

from __future__ import annotations

from dataclasses import dataclass

from orch.lifecycle.decide.records import NodeMemory, Settings, Stamp
from orch.wire import names
from orch.wire.podrules.podspec import NO_EXECUTE, NO_SCHEDULE
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node, NodeCondition, Taint

READY = "Ready"
JUDGED = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
_OF_CONTENTION = {
    "SystemMemoryContentionPressure": names.TAINT_MEMORY_CONTENTION,
    "SystemDiskContentionPressure": names.TAINT_DISK_CONTENTION,
    "KubepodsMemoryContentionPressure": names.TAINT_MEMORY_CONTENTION,
    "KubepodsDiskContentionPressure": names.TAINT_DISK_CONTENTION,
}
NEVER_REASON = "NodeStatusNeverUpdated"
NEVER_MESSAGE = "NodeAgent never posted node status."
UNKNOWN_REASON = "NodeStatusUnknown"
UNKNOWN_MESSAGE = "NodeAgent stopped posting node status."


@dataclass(frozen=True, slots=True)
class Judgement:
    """One node judged: what to remember of it, and the conditions it should have."""

    memory: NodeMemory
    conditions: tuple[NodeCondition, ...]
    silent: bool
    turned: bool  # from Ready to anything else, just now

    @property
    def ready(self) -> str:
        return self.memory.ready

    def status(self, kind: str) -> str:
        return next((c.status for c in self.conditions if c.type == kind), "")


def judge(
    before: NodeMemory | None, node: Node, lease: Lease | None, stamp: Stamp, settings: Settings
) -> Judgement:
    """Judge a node. A node not seen before, or a new node of the same name, is alive now."""
    if before is not None and before.uid != (node.metadata.uid or ""):
        before = None
    sign = _sign(before, node, lease)
    alive_s = before.alive_s if before and before.sign == sign else stamp.now_s
    grace_s = settings.grace_s if find_condition(node, READY) else settings.startup_grace_s
    silent = stamp.now_s - alive_s > grace_s
    conditions = tuple(node.status.conditions or ())
    if silent:
        conditions = unknown_conditions(node, stamp.now)
    ready = next((c.status for c in conditions if c.type == READY), "")
    turned = before is not None and before.ready == "True" and ready != "True"
    not_ready_s = stamp.now_s if before is None or turned else before.not_ready_s
    memory = NodeMemory(node.metadata.uid or "", sign, alive_s, ready, not_ready_s)
    return Judgement(memory, conditions, silent, turned)


def find_condition(node: Node, kind: str) -> NodeCondition | None:
    return next((c for c in node.status.conditions or () if c.type == kind), None)


def unknown_conditions(node: Node, now: str) -> tuple[NodeCondition, ...]:
    """The node's conditions once it is silent; equal to the present ones when nothing changes."""
    known = {c.type: c for c in node.status.conditions or ()}
    judged = [
        _unknown(known[kind], now) if kind in known else _never_reported(kind, node, now)
        for kind in JUDGED
    ]
    judged += [_unknown(known[kind], now) for kind in _OF_CONTENTION if kind in known]
    changed = {c.type: c for c in judged}
    kept = [changed.pop(kind, condition) for kind, condition in known.items()]
    return (*kept, *changed.values())


def _sign(before: NodeMemory | None, node: Node, lease: Lease | None) -> tuple[str, str]:
    """The node's last signs of life; missing values, and those written for it, do not count."""
    heartbeat, renewed = before.sign if before else ("", "")
    ready = find_condition(node, READY)
    if ready and ready.lastHeartbeatTime and ready.reason != NEVER_REASON:
        heartbeat = ready.lastHeartbeatTime
    if lease and lease.spec.renewTime:
        renewed = lease.spec.renewTime
    return heartbeat, renewed


def _unknown(condition: NodeCondition, now: str) -> NodeCondition:
    if condition.status == "Unknown":
        return condition
    change = {"status": "Unknown", "reason": UNKNOWN_REASON, "message": UNKNOWN_MESSAGE}
    return condition.model_copy(update={**change, "lastTransitionTime": now})


def _never_reported(kind: str, node: Node, now: str) -> NodeCondition:
    return NodeCondition(
        type=kind,
        status="Unknown",
        reason=NEVER_REASON,
        message=NEVER_MESSAGE,
        lastHeartbeatTime=node.metadata.creationTimestamp,
        lastTransitionTime=now,
    )


_OF_READY = {"False": names.TAINT_NOT_READY, "Unknown": names.TAINT_UNREACHABLE}
_OF_CONDITION = {
    "MemoryPressure": names.TAINT_MEMORY_PRESSURE,
    "DiskPressure": names.TAINT_DISK_PRESSURE,
    "PIDPressure": names.TAINT_PID_PRESSURE,
    "NetworkUnavailable": names.TAINT_NETWORK_UNAVAILABLE,
    **_OF_CONTENTION,
}
_EVICTING = tuple(_OF_READY.values())
_MIRRORING = (*_EVICTING, *_OF_CONDITION.values(), names.TAINT_UNSCHEDULABLE)


def of_node(node: Node) -> tuple[Taint, ...]:
    return tuple(node.spec.taints or ())


def mirrored(node: Node, judgement: Judgement) -> tuple[Taint, ...]:
    """The node's taints, with the NoSchedule taints that its conditions demand."""
    wanted = [key for kind, key in _OF_CONDITION.items() if judgement.status(kind) == "True"]
    if (status := judgement.status(READY)) in _OF_READY:
        wanted.append(_OF_READY[status])
    if node.spec.unschedulable:
        wanted.append(names.TAINT_UNSCHEDULABLE)
    wanted = list(dict.fromkeys(wanted))
    kept = [t for t in of_node(node) if not _mirrors(t) or t.key in wanted]
    there = {t.key for t in kept if _mirrors(t)}
    added = [Taint(key=key, effect=NO_SCHEDULE) for key in wanted if key not in there]
    return (*kept, *added)


def evicting_key(status: str) -> str:
    """The key of the NoExecute taint that a status of Ready requires; "" for none."""
    return _OF_READY.get(status, "")


def has_evicting(taints: tuple[Taint, ...]) -> bool:
    return any(_evicts(taint) for taint in taints)


def with_evicting(taints: tuple[Taint, ...], key: str, now: str) -> tuple[Taint, ...]:
    """Exactly this NoExecute taint of the two ("" removes both); an existing taint is kept."""
    kept = tuple(t for t in taints if not _evicts(t) or t.key == key)
    if not key or has_evicting(kept):
        return kept
    return (*kept, Taint(key=key, effect=NO_EXECUTE, timeAdded=now))


def _mirrors(taint: Taint) -> bool:
    return taint.effect == NO_SCHEDULE and taint.key in _MIRRORING


def _evicts(taint: Taint) -> bool:
    return taint.effect == NO_EXECUTE and taint.key in _EVICTING
