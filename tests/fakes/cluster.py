"""A cluster in memory that obeys the lifecycle controller's actions; time is told, never taken.

`View` is what the controller sees of it; `apply` does what its actions say, as the monitor would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orch.lifecycle.decide.decision import decide
from orch.lifecycle.decide.records import (
    Action,
    EvictPod,
    MarkPodNotReady,
    MarkPodUnscheduled,
    Memory,
    Note,
    RemoveLease,
    RemoveOrphan,
    Settings,
    Stamp,
    UpdateNode,
    View,
)
from orch.wire import names, times
from orch.wire.records.configuration import Lease, LeaseSpec
from orch.wire.records.core import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from orch.wire.records.meta import ObjectMeta, OwnerReference
from orch.wire.records.pods import Pod, PodCondition, PodSpec, PodStatus, Toleration

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


def node(name: str, *, ready: str = "True", zone: str = "", beat: str = "0", **spec: Any) -> Node:
    """A node that reported once; `ready` "" is one that never did."""
    labels = {names.LABEL_ZONE: zone} if zone else None
    conditions = [condition(kind, "False", beat) for kind in PRESSURES]
    return Node(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", labels=labels, creationTimestamp="created"
        ),
        spec=NodeSpec(**spec),
        status=NodeStatus(conditions=[*conditions, condition("Ready", ready, beat)])
        if ready
        else NodeStatus(),
    )


def condition(kind: str, status: str, beat: str = "0") -> NodeCondition:
    return NodeCondition(
        type=kind, status=status, lastHeartbeatTime=beat, lastTransitionTime="before"
    )


def lease(name: str, renewed: str = "0") -> Lease:
    owner = OwnerReference(apiVersion="v1", kind="Node", name=name, uid=f"uid-{name}")
    return Lease(
        metadata=ObjectMeta(
            name=name,
            namespace=names.NODE_LEASE_NAMESPACE,
            uid=f"lease-{name}",
            ownerReferences=[owner],
        ),
        spec=LeaseSpec(renewTime=renewed),
    )


def pod(name: str, on: str, *, ready: bool = True, tolerations: Sequence[Toleration] = ()) -> Pod:
    status = "True" if ready else "False"
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"),
        spec=PodSpec(nodeName=on, tolerations=list(tolerations) or None),
        status=PodStatus(conditions=[PodCondition(type="Ready", status=status)]),
    )


class Cluster:
    """`settings` are the controller's; `told` collects the reasons of its events."""

    def __init__(self, *nodes: Node, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.nodes = {n.metadata.name: n for n in nodes}
        self.leases = {n.metadata.name: lease(n.metadata.name) for n in nodes}
        self.pods: dict[str, Pod] = {}
        self.memory = Memory()
        self.now_s = 1000.0
        self.age_s = 0.0
        self.told: list[tuple[str, str]] = []
        self._beats = 0

    # --- what happens to the cluster

    def add(self, *objects: Node | Pod) -> None:
        for obj in objects:
            if isinstance(obj, Node):
                self.nodes[obj.metadata.name] = obj
                self.leases[obj.metadata.name] = lease(obj.metadata.name)
            else:
                self.pods[obj.metadata.uid or ""] = obj

    def beat(self, *renewing: str) -> None:
        """These nodes renew their Leases."""
        self._beats += 1
        for name in renewing:
            self.leases[name] = lease(name, str(self._beats))

    def report(self, name: str, ready: str = "True") -> None:
        """The node's agent writes its whole status."""
        self._beats += 1
        fresh = node(name, ready=ready, beat=str(self._beats))
        self.nodes[name] = self.nodes[name].model_copy(update={"status": fresh.status})

    # --- the controller

    def view(self) -> View:
        by_node: dict[str, list[Pod]] = {}
        for one in self.pods.values():
            by_node.setdefault(one.spec.nodeName or "", []).append(one)
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now_s)
        stamp = Stamp(self.now_s, times.format_time(moment))
        unbound = by_node.pop("", [])
        return View(dict(self.nodes), dict(self.leases), by_node, stamp, self.age_s, unbound)

    def look(self) -> tuple[Action, ...]:
        """One decision; nothing of it is done."""
        decision = decide(self.memory, self.view(), self.settings)
        self.memory = decision.memory
        return decision.actions

    def sleep(self, seconds: float) -> None:
        """The controller itself does not run for so long."""
        self.now_s += seconds

    def tick(self, after_s: float = 0.0, *, beating: Iterable[str] = ()) -> list[Action]:
        """Time passes, the controller decides, and what it decided is done, until it rests."""
        assert after_s <= self.settings.max_view_age_s, "that is a sleep, and forgives everybody"
        self.now_s += after_s
        self.beat(*beating)
        done: list[Action] = []
        for _ in range(3):
            actions = self.look()
            if not actions:
                return done
            self.apply(actions)
            done += actions
        raise AssertionError(f"the controller does not come to rest: {actions}")

    def run(self, seconds: float, *, beating: Iterable[str] = ()) -> list[Action]:
        """Ticks every 5 s; the nodes named renew before each."""
        names_ = list(beating)
        ticks = int(seconds / self.settings.period_s)
        return [a for _ in range(ticks) for a in self.tick(self.settings.period_s, beating=names_)]

    def apply(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Note(obj=obj, reason=reason):
                    self.told.append((reason, obj.metadata.name))
                case MarkPodUnscheduled(pod=lost):
                    self.told.append(("FailedScheduling", lost.metadata.name))
                case UpdateNode():
                    self._update(action)
                case MarkPodNotReady(pod=marked):
                    changed = marked.model_copy(deep=True)
                    changed.status.conditions = [PodCondition(type="Ready", status="False")]
                    self.pods[marked.metadata.uid or ""] = changed
                case EvictPod(pod=gone) | RemoveOrphan(pod=gone):
                    del self.pods[gone.metadata.uid or ""]
                case RemoveLease(lease=old):
                    del self.leases[old.metadata.name]

    def _update(self, action: UpdateNode) -> None:
        name = action.node.metadata.name
        changed = self.nodes[name].model_copy(deep=True)
        if action.conditions is not None:
            changed.status.conditions = list(action.conditions)
        if action.taints is not None:
            changed.spec.taints = list(action.taints)
        self.nodes[name] = changed

    # --- what tests look at

    def ready(self, name: str) -> str:
        return next(
            (c.status for c in self.nodes[name].status.conditions or () if c.type == "Ready"), ""
        )

    def taints(self, name: str) -> set[str]:
        """`unreachable:NoExecute`, without the domain."""
        return {
            f"{t.key.rpartition('/')[2]}:{t.effect}" for t in self.nodes[name].spec.taints or ()
        }

    def conditions(self, name: str) -> dict[str, NodeCondition]:
        return {c.type: c for c in self.nodes[name].status.conditions or ()}


def taint(key: str, effect: str = "NoExecute", value: str | None = None) -> Taint:
    return Taint(key=key, effect=effect, value=value)
