"""The table of docs/heartbeats.md once more, as plainly as it is told there: which action is due.

Kept apart from the code that it judges; shares nothing with it but the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from orch.lifecycle.decide.records import (
    Action,
    EvictPod,
    MarkPodNotReady,
    MarkPodUnscheduled,
    Note,
    RemoveLease,
    RemoveOrphan,
    UpdateNode,
)
from orch.wire import names
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod
from tests.fakes.cluster import Cluster

STAYS_S = {"default": 300.0, "brief": 30.0, "never": 0.0}  # by the first word of a pod's name
QUARANTINE_S, NODES_PER_S = 40.0, 0.1
KEYS = {"False": "not-ready", "Unknown": "unreachable"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A node at the last look."""

    uid: str
    ready: str


class Model:
    """What a controller that was told the table would remember, and what it must do now."""

    def __init__(self) -> None:
        self.shown: dict[str, Shown] | None = None
        self.started_s: dict[str, float] = {}  # pods that must leave, by uid
        self.unmarked: set[str] = set()  # pods to be marked until they show it, by uid
        self.orphaned_s: dict[str, float] = {}
        self.tokens: dict[str, tuple[float, float]] = {}  # by zone: how many, and when

    def expect(self, cluster: Cluster, silent: set[str]) -> Counter[str]:
        """The actions due, as words; call once for each decision."""
        ready = {n: "Unknown" if n in silent else cluster.ready(n) for n in cluster.nodes}
        seen = {n: Shown(cluster.nodes[n].metadata.uid or "", r) for n, r in ready.items()}
        known = self.shown or {}
        same = {n for n, one in seen.items() if n in known and known[n].uid == one.uid}
        due: list[str] = []
        if self.shown is not None:
            due += [f"RegisteredNode {name}" for name in seen if name not in same]
        due += [f"RemovingNode {name}" for name in known if name not in seen]
        turned = {n for n in same if known[n].ready == "True" and ready[n] != "True"}
        due += [f"NodeNotReady {name}" for name in turned]
        due += [f"judge {name}" for name in silent if cluster.ready(name) != "Unknown"]
        for one in cluster.pods.values():
            due += self._of_pod(cluster, one, ready, turned | silent)
        self.started_s = {u: s for u, s in self.started_s.items() if u in cluster.pods}
        due += self._unknown(cluster, known)
        due += self._orphans(cluster)
        due += self._evicting(cluster, ready)
        self.shown = seen
        return Counter(due)

    def _of_pod(
        self, cluster: Cluster, one: Pod, ready: dict[str, str], lost: set[str]
    ) -> list[str]:
        name, on, uid = one.metadata.name, one.spec.nodeName or "", one.metadata.uid or ""
        if on not in ready:
            self.started_s.pop(uid, None)
            self.unmarked.discard(uid)
            return []
        due = self._marked(one, ready[on], lost)
        stays_s = STAYS_S.get(name.partition("-")[0])
        if one.metadata.deletionTimestamp:
            self.started_s.pop(uid, None)
            return due
        if not _evicts(cluster, on):
            cancelled = self.started_s.pop(uid, None) is not None
            return [*due, f"TaintManagerEviction {name}"] if cancelled else due
        if stays_s is None:
            return due
        since_s = self.started_s.setdefault(uid, cluster.now_s)
        return [*due, f"evict {name}"] if cluster.now_s - since_s >= stays_s else due

    def _marked(self, one: Pod, ready: str, lost: set[str]) -> list[str]:
        uid = one.metadata.uid or ""
        if ready == "True" or not _is_ready(one):
            self.unmarked.discard(uid)
        elif one.spec.nodeName in lost or uid in self.unmarked:
            self.unmarked.add(uid)
            return [f"mark {one.metadata.name}"]
        return []

    def _unknown(self, cluster: Cluster, known: Collection[str]) -> list[str]:
        """Pods whose node does not exist and was not there at the last look either."""
        return [
            f"FailedScheduling {one.metadata.name}"
            for one in cluster.pods.values()
            if one.spec.nodeName not in (*cluster.nodes, *known)
            and one.metadata.uid not in self.orphaned_s
            and one.status.startTime is None
        ]

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
        zone_of = {name: _zone(node) for name, node in cluster.nodes.items()}
        zones = set(zone_of.values())
        self.tokens = {zone: self._dripped(zone, cluster.now_s) for zone in zones}
        if all(status != "True" for status in ready.values()):
            return due
        for zone in sorted(zones):
            bare = [
                n for n, status in ready.items()
                if zone_of[n] == zone and status in KEYS and not _evicts(cluster, n)
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
    conditions = one.status.conditions or ()
    return any((c.type, c.status) == ("Ready", "True") for c in conditions)


def _zone(node: Node) -> str:
    return node.metadata.label(names.LABEL_ZONE)


def _evicts(cluster: Cluster, name: str) -> bool:
    return any(taint.endswith(":NoExecute") for taint in cluster.taints(name))


def words(action: Action) -> list[str]:
    """An action as the model says it; what only mirrors is held by the invariants instead."""
    match action:
        case Note(obj=obj, reason=reason):
            return [f"{reason} {obj.metadata.name}"]
        case UpdateNode(node=node, conditions=conditions, evicting=evicting):
            said = [f"judge {node.metadata.name}"] if conditions is not None else []
            return [*said, f"evict zone {_zone(node)}"] if evicting else said
        case MarkPodUnscheduled(pod=one):
            return [f"FailedScheduling {one.metadata.name}"]
        case MarkPodNotReady(pod=one):
            return [f"mark {one.metadata.name}"]
        case EvictPod(pod=one):
            return [f"evict {one.metadata.name}"]
        case RemoveOrphan(pod=one):
            return [f"remove {one.metadata.name}"]
        case RemoveLease(lease=old):
            return [f"remove {old.metadata.name}"]
