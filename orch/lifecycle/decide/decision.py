"""The node lifecycle decision: memory and view in, new memory and actions out; pure.

Judges by the controller's own clock, and judges no node while its own view is stale; after such a
time every node gets its whole grace period again. Pods and Leases of nodes that no longer exist
are removed after a quarantine, which outlasts a node that is deleted and registers again. Deciding
again after the actions gives no further actions. Source: pkg/controller/nodelifecycle and
pkg/controller/podgc, and the defects reported against them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from orch.lifecycle.decide import heartbeats, zones
from orch.lifecycle.decide import pods as decide_pods
from orch.lifecycle.decide.heartbeats import Judgement
from orch.lifecycle.decide.records import (
    Action,
    Bucket,
    Decision,
    MarkPodUnscheduled,
    Memory,
    NodeMemory,
    Note,
    RemoveLease,
    RemoveOrphan,
    Settings,
    UpdateNode,
    View,
)
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node, Taint
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod

_UNBOUND = (
    "nothing has given this pod a node: set spec.nodeName, or let orch-controller-manager choose"
    " one (--bind-pods, for pods of the default scheduler)"
)
_TOLD_MAX = 100  # pods of a namespace at once: events that wait push out those of nodes, too


def _plan_orphans(
    memory: Memory, view: View, settings: Settings
) -> tuple[list[Action], dict[str, float]]:
    """Removals of pods and Leases whose node has not existed for the whole quarantine.

    Also when each of them was first seen, by uid.
    """
    now_s = view.stamp.now_s
    orphans = [(obj.metadata.uid or "", obj) for obj in _orphans(view)]
    first_seen_s = {uid: memory.orphans.get(uid, now_s) for uid, _ in orphans}
    removals: list[Action] = [
        RemoveOrphan(obj) if isinstance(obj, Pod) else RemoveLease(obj)
        for uid, obj in orphans
        if now_s - first_seen_s[uid] >= settings.orphan_quarantine_s
    ]
    return removals, first_seen_s


def _few(pods: Iterable[Pod]) -> Iterator[Pod]:
    """Of each namespace's, the first few."""
    told: Counter[str] = Counter()
    for pod in pods:
        namespace = pod.metadata.namespace or ""
        told[namespace] += 1
        if told[namespace] <= _TOLD_MAX:
            yield pod


def _unknown_nodes(memory: Memory, view: View, settings: Settings) -> list[Action]:
    """A condition and an event for each pod that has just been given a node which does not exist.

    Not for those whose node went, nor for those that an agent had accepted.
    """
    found = (
        pod
        for name, pods in view.pods.items()
        if name not in view.nodes and name not in memory.nodes
        for pod in pods
        if pod.metadata.uid not in memory.orphans and pod.status.startTime is None
    )
    return [
        MarkPodUnscheduled(
            pod,
            f'node "{pod.spec.nodeName}" does not exist: this pod is removed after'
            f" {settings.orphan_quarantine_s:g} s unless it registers",
        )
        for pod in _few(found)
    ]


def _plan_unbound(
    memory: Memory, view: View, settings: Settings
) -> tuple[list[Action], dict[str, float]]:
    """An event for each pod that nobody has given a node for a while, and again before it expires.

    Also when each of them was first seen, by uid. A scheduler, where there is one, says itself what
    is wrong, and leaves a condition.
    """
    now_s = view.stamp.now_s
    waiting = {pod.metadata.uid or "": pod for pod in view.unbound if _is_waiting(pod)}
    first_seen_s = {uid: memory.unbound.get(uid, now_s) for uid in waiting}
    looked_s = now_s if memory.looked_s is None else memory.looked_s
    again = (
        pod
        for uid, pod in waiting.items()
        if _times_told(looked_s - first_seen_s[uid], settings)
        < _times_told(now_s - first_seen_s[uid], settings)
    )
    notes = [Note(pod, "Warning", "FailedScheduling", _UNBOUND) for pod in _few(again)]
    return [*notes], first_seen_s


def _times_told(waited_s: float, settings: Settings) -> int:
    """How often a pod that has waited so long is to be told of."""
    return max(0, 1 + math.floor((waited_s - settings.unbound_s) / settings.unbound_again_s))


def _is_waiting(pod: Pod) -> bool:
    conditions = pod.status.conditions or ()
    scheduled = any(condition.type == "PodScheduled" for condition in conditions)
    return not (scheduled or pod.metadata.deletionTimestamp)


def _orphans(view: View) -> Iterator[Pod | Lease]:
    for name, pods in view.pods.items():
        if name not in view.nodes:
            yield from pods
    for name, lease in view.leases.items():
        owners = lease.metadata.ownerReferences or ()
        if name not in view.nodes and any(owner.kind == "Node" for owner in owners):
            yield lease


def decide(memory: Memory, view: View, settings: Settings) -> Decision:
    """The actions to take now; the next decision needs the memory returned."""
    if view.age_s > settings.max_view_age_s:
        return Decision(replace(memory, blind=True))
    memory = _with_fresh_grace(memory, view, settings)
    judgements = {
        name: heartbeats.judge(
            memory.nodes.get(name), node, view.leases.get(name), view.stamp, settings
        )
        for name, node in view.nodes.items()
    }
    plan = _Plan(memory, view, settings, judgements)
    updates = plan.node_updates()
    pods = decide_pods.decide(memory, view, judgements)
    removals, first_seen_s = _plan_orphans(memory, view, settings)
    unbound, waiting_since_s = _plan_unbound(memory, view, settings)
    after = Memory(
        looked_s=view.stamp.now_s,
        nodes=plan.node_memories(),
        buckets=plan.buckets,
        disrupted=plan.disrupted,
        unmarked=frozenset(pods.unmarked),
        timers=pods.timers,
        orphans=first_seen_s,
        unbound=waiting_since_s,
    )
    notes = [*_notes(memory, view, judgements), *_unknown_nodes(memory, view, settings), *unbound]
    return Decision(after, (*notes, *updates, *pods.actions, *removals))


def _with_fresh_grace(memory: Memory, view: View, settings: Settings) -> Memory:
    """The memory, with every grace period restarted if the view was stale for a while."""
    now_s = view.stamp.now_s
    slept = memory.looked_s is not None and now_s - memory.looked_s > settings.max_view_age_s
    if not (memory.blind or slept):
        return memory
    return replace(memory, blind=False, nodes=_alive_since(memory.nodes, now_s))


def _alive_since(nodes: Mapping[str, NodeMemory], now_s: float) -> dict[str, NodeMemory]:
    return {name: replace(node, alive_s=now_s) for name, node in nodes.items()}


def _notes(memory: Memory, view: View, judgements: Mapping[str, Judgement]) -> list[Action]:
    """Events about nodes that came, went, or stopped being ready."""
    notes: list[Action] = []
    for name, node in view.nodes.items():
        before = memory.nodes.get(name)
        if memory.looked_s is not None and (before is None or before.uid != node.metadata.uid):
            text = f"Registered Node {name} in Controller"
            notes.append(Note(node, "Normal", "RegisteredNode", text))
        if judgements[name].turned:
            text = f"Node {name} status is now: NodeNotReady"
            notes.append(Note(node, "Normal", "NodeNotReady", text))
    for name, before in memory.nodes.items():
        if name not in view.nodes:
            gone = Node(metadata=ObjectMeta(name=name, uid=before.uid))
            text = f"Removing Node {name} from Controller"
            notes.append(Note(gone, "Normal", "RemovingNode", text))
    return notes


_ROUNDING = 1e-9  # tokens are refilled by fractions


class _Plan:
    """Conditions and taints of all nodes in one decision; spends the tokens of their zones."""

    def __init__(
        self, memory: Memory, view: View, settings: Settings, judgements: Mapping[str, Judgement]
    ) -> None:
        self._view = view
        self._settings = settings
        self._judgements = judgements
        ready = {name: judgement.ready == "True" for name, judgement in judgements.items()}
        states = zones.survey(view.nodes, ready, settings)
        self.disrupted = zones.all_down(states)
        self._leaving = memory.disrupted and not self.disrupted
        self._rates = {zone: zones.rate(state, settings) for zone, state in states.items()}
        self.buckets: dict[str, Bucket] = {
            zone: zones.refill(memory.buckets.get(zone), rate, view.stamp.now_s, settings)
            for zone, rate in self._rates.items()
        }

    def node_updates(self) -> list[Action]:
        """One write for every node that needs a change, the longest not ready first."""
        order = sorted(self._view.nodes, key=lambda n: (self._judgements[n].memory.not_ready_s, n))
        updates = (self._update(self._view.nodes[name], self._judgements[name]) for name in order)
        return [update for update in updates if update is not None]

    def node_memories(self) -> dict[str, NodeMemory]:
        """When the cluster recovers from a full outage, every node gets its whole grace again."""
        nodes = {name: judgement.memory for name, judgement in self._judgements.items()}
        return _alive_since(nodes, self._view.stamp.now_s) if self._leaving else nodes

    def _update(self, node: Node, judgement: Judgement) -> UpdateNode | None:
        before = heartbeats.of_node(node)
        wanted = self._evicting(node, judgement, heartbeats.mirrored(node, judgement))
        conditions = judgement.conditions
        changed = conditions != tuple(node.status.conditions or ())
        if not changed and wanted == before:
            return None
        return UpdateNode(
            node,
            conditions=conditions if changed else None,
            taints=wanted if wanted != before else None,
            evicting=heartbeats.has_evicting(wanted) and not heartbeats.has_evicting(before),
            zone=zones.zone_of(node),
        )

    def _evicting(
        self, node: Node, judgement: Judgement, others: tuple[Taint, ...]
    ) -> tuple[Taint, ...]:
        """With the NoExecute taint the node should have; adding it costs a token of its zone."""
        now = self._view.stamp.now
        key = "" if self.disrupted else heartbeats.evicting_key(judgement.ready)
        if not key or heartbeats.has_evicting(others) or self._spend(zones.zone_of(node)):
            return heartbeats.with_evicting(others, key, now)
        return others

    def _spend(self, zone: str) -> bool:
        bucket = self.buckets.get(zone)
        if bucket is None or self._rates[zone] <= 0 or bucket.tokens < 1 - _ROUNDING:
            return False
        self.buckets[zone] = replace(bucket, tokens=bucket.tokens - 1)
        return True
