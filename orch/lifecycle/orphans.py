"""What is left of nodes that are gone: their pods and Leases, removed after a quarantine; pure.

Nobody else would: no agent ends these pods, and no node owns them, so that the API server, which
collects what is owned, leaves them; Leases without an owner that it knows are removed here too. The
quarantine outlasts a node that is deleted and registers again. Source: pkg/controller/podgc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from orch.lifecycle.records import Action, Memory, RemoveLease, RemoveOrphan, Settings, View
from orch.wire.coordination import Lease
from orch.wire.meta import ApiObject
from orch.wire.pods import Pod


@dataclass(slots=True)
class OrphanPlan:
    actions: list[Action] = field(default_factory=list)
    first_seen_s: dict[str, float] = field(default_factory=dict)  # by uid


def decide(memory: Memory, view: View, settings: Settings) -> OrphanPlan:
    """Remove what has been without its node for the whole quarantine."""
    plan = OrphanPlan()
    now_s = view.stamp.now_s
    for obj in _orphans(view):
        uid = obj.metadata.uid or ""
        first_s = plan.first_seen_s[uid] = memory.orphans.get(uid, now_s)
        if now_s - first_s < settings.orphan_quarantine_s:
            continue
        if isinstance(obj, Pod):
            plan.actions.append(RemoveOrphan(obj))
        elif isinstance(obj, Lease):
            plan.actions.append(RemoveLease(obj))
    return plan


def _orphans(view: View) -> Iterator[ApiObject]:
    for name, pods in view.pods.items():
        if name not in view.nodes:
            yield from pods
    for name, lease in view.leases.items():
        if name not in view.nodes and _belongs_to_node(lease):
            yield lease


def _belongs_to_node(lease: Lease) -> bool:
    return any(owner.kind == "Node" for owner in lease.metadata.ownerReferences or ())
