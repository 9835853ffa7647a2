"""Every action of the lifecycle decision has its stated trigger, and every trigger its action.

The table of docs/heartbeats.md is written down a second time here, as plainly as it is told there,
and compared with each single decision of a random history: nothing more, nothing less.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, rule

from orch.lifecycle.records import (
    Action,
    EvictPod,
    MarkPodNotReady,
    Memory,
    Note,
    RemoveLease,
    RemoveOrphan,
    UpdateNode,
)
from orch.wire.core import Node
from orch.wire.pods import Pod, Toleration
from tests.fakes.cluster import Cluster, pod
from tests.orch.lifecycle.test_replay import GRACE_S, History, names

STAYS_S = {"default": 300.0, "brief": 30.0, "never": 0.0}  # by the first word of a pod's name
QUARANTINE_S, NODES_PER_S = 40.0, 0.1
KEYS = {"False": "not-ready", "Unknown": "unreachable"}


def pods_on(name: str) -> list[Pod]:
    """One for each way of tolerating; `forever` is never evicted."""
    ways = {"brief": [30], "never": [0], "forever": [None], "default": []}
    return [
        pod(
            f"{way}-{name}",
            name,
            tolerations=[Toleration(operator="Exists", tolerationSeconds=s) for s in seconds],
        )
        for way, seconds in ways.items()
    ]


class Model:
    """What a controller that was told the table would remember, and what it must do now."""

    def __init__(self) -> None:
        self.shown: dict[str, str] | None = None  # Ready of each node at the last look
        self.started_s: dict[str, float] = {}  # pods that must leave, by uid
        self.orphaned_s: dict[str, float] = {}
        self.tokens: dict[str, tuple[float, float]] = {}  # by zone: how many, and when

    def expect(self, cluster: Cluster, silent: set[str]) -> Counter[str]:
        """The actions due, as words; call once for each decision."""
        ready = {n: "Unknown" if n in silent else cluster.ready(n) for n in cluster.nodes}
        known = self.shown or {}
        due: list[str] = []
        if self.shown is not None:
            due += [f"RegisteredNode {name}" for name in ready if name not in known]
        due += [f"RemovingNode {name}" for name in known if name not in ready]
        turned = {n for n, r in ready.items() if known.get(n) == "True" and r != "True"}
        due += [f"NodeNotReady {name}" for name in turned]
        due += [f"judge {name}" for name in silent if cluster.ready(name) != "Unknown"]
        self.started_s = {u: s for u, s in self.started_s.items() if u in cluster.pods}
        for one in cluster.pods.values():
            due += self._of_pod(cluster, one, ready, turned | silent)
        due += self._orphans(cluster)
        due += self._evicting(cluster, ready)
        self.shown = ready
        return Counter(due)

    def _of_pod(
        self, cluster: Cluster, one: Pod, ready: dict[str, str], lost: set[str]
    ) -> list[str]:
        name, on, uid = one.metadata.name, one.spec.nodeName or "", one.metadata.uid or ""
        if on not in ready:
            self.started_s.pop(uid, None)
            return []
        due = [f"mark {name}"] if on in lost and _is_ready(one) and ready[on] != "True" else []
        stays_s = STAYS_S.get(name.partition("-")[0])
        if not any(taint.endswith("NoExecute") for taint in cluster.taints(on)):
            cancelled = self.started_s.pop(uid, None) is not None
            return [*due, f"TaintManagerEviction {name}"] if cancelled else due
        if stays_s is None:
            return due
        since_s = self.started_s.setdefault(uid, cluster.now_s)
        return [*due, f"evict {name}"] if cluster.now_s - since_s >= stays_s else due

    def _orphans(self, cluster: Cluster) -> list[str]:
        left = {p.metadata.uid: p for p in cluster.pods.values()} | {
            held.metadata.uid: held for held in cluster.leases.values()
        }
        on = {uid: o.spec.nodeName if isinstance(o, Pod) else o.metadata.name
              for uid, o in left.items()}  # fmt: skip
        gone = {str(uid): o for uid, o in left.items() if on[uid] not in cluster.nodes}
        self.orphaned_s = {uid: self.orphaned_s.get(uid, cluster.now_s) for uid in gone}
        return [
            f"remove {o.metadata.name}"
            for uid, o in gone.items()
            if cluster.now_s - self.orphaned_s[uid] >= QUARANTINE_S
        ]

    def _evicting(self, cluster: Cluster, ready: dict[str, str]) -> list[str]:
        """How many nodes of each zone get a NoExecute taint that had none."""
        due: list[str] = []
        zones = {name[0] for name in cluster.nodes}
        self.tokens = {zone: self._dripped(zone, cluster.now_s) for zone in zones}
        if all(status != "True" for status in ready.values()):
            return due
        for zone in sorted(zones):
            bare = [
                n for n, status in ready.items()
                if n[0] == zone and status in KEYS and not _evicts(cluster, n)
            ]  # fmt: skip
            tokens, at_s = self.tokens[zone]
            if bare and tokens >= 1 - 1e-9:
                self.tokens[zone] = (tokens - 1, at_s)
                due.append(f"evict zone {zone}")
        return due

    def _dripped(self, zone: str, now_s: float) -> tuple[float, float]:
        tokens, at_s = self.tokens.get(zone, (1.0, now_s))
        return min(1.0, tokens + NODES_PER_S * (now_s - at_s)), now_s


def _is_ready(one: Pod) -> bool:
    return any(c.status == "True" for c in one.status.conditions or ())


def _evicts(cluster: Cluster, name: str) -> bool:
    return any(taint.endswith(":NoExecute") for taint in cluster.taints(name))


def words(action: Action) -> list[str]:
    """An action as the model says it; what only mirrors is held by the invariants instead."""
    match action:
        case Note(obj=obj, reason=reason):
            return [f"{reason} {obj.metadata.name}"]
        case UpdateNode(node=node, conditions=conditions, evicting=evicting):
            said = [f"judge {node.metadata.name}"] if conditions is not None else []
            return [*said, f"evict zone {node.metadata.name[0]}"] if evicting else said
        case MarkPodNotReady(pod=one):
            return [f"mark {one.metadata.name}"]
        case EvictPod(pod=one):
            return [f"evict {one.metadata.name}"]
        case RemoveOrphan(pod=one):
            return [f"remove {one.metadata.name}"]
        case RemoveLease(lease=old):
            return [f"remove {old.metadata.name}"]


class Triggers(History):
    """The same histories, and nodes that are cordoned; each decision against the model."""

    model: Model

    def arrive(self, name: str) -> None:
        if not self.heard_s and not hasattr(self, "model"):
            self.model = Model()
        super().arrive(name)
        del self.cluster.pods[f"uid-pod-{name}"]
        self.cluster.add(*pods_on(name))

    def forgive(self) -> None:
        if self.cluster.memory.looked_s is not None and self.model.shown is None:
            self.model.expect(self.cluster, set())  # the first look, before the history
        super().forgive()

    @rule()
    def the_controller_restarts(self) -> None:
        self.cluster.memory = Memory()
        self.forgive_after_restart()
        self.decide()

    def forgive_after_restart(self) -> None:
        self.model = Model()
        super().forgive()

    @rule(name=names)
    def a_node_is_cordoned_or_not(self, name: str) -> None:
        if name in self.cluster.nodes:
            node = self.cluster.nodes[name]
            spec = node.spec.model_copy(
                update={"unschedulable": None if node.spec.unschedulable else True}
            )
            self.cluster.nodes[name] = node.model_copy(update={"spec": spec})
            self.decide()

    def decide(self) -> None:
        for _ in range(4):
            disrupted = self.cluster.memory.disrupted
            now_s = self.cluster.now_s
            silent = {n for n in self.cluster.nodes if now_s - self.heard_s[n] > GRACE_S}
            expected = self.model.expect(self.cluster, silent)
            actions = self.cluster.look()
            assert Counter(word for action in actions for word in words(action)) == expected
            self.cluster.apply(actions)
            if disrupted and not self.cluster.memory.disrupted:
                super().forgive()
            if not actions:
                return
        raise AssertionError(f"the controller does not come to rest: {actions}")

    @invariant()
    def no_schedule_taints_mirror_ready(self) -> None:
        for name, node in self.cluster.nodes.items():
            found = {t for t in self.cluster.taints(name) if t.endswith(":NoSchedule")}
            assert found == {f"{word}:NoSchedule" for word in self._mirrored(name, node)}

    def _mirrored(self, name: str, node: Node) -> set[str]:
        cordoned = {"unschedulable"} if node.spec.unschedulable else set()
        return cordoned | {KEYS.get(self.cluster.ready(name), "")} - {""}


Triggers.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTriggers = pytest.mark.timeout(300)(Triggers.TestCase)
