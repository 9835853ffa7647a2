"""What becomes of the pods on nodes that are not ready or tainted: marked, and evicted; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orch.lifecycle import eviction, taints
from orch.lifecycle.probes import Judgement
from orch.lifecycle.records import Action, EvictPod, MarkPodNotReady, Memory, Note, Timer, View
from orch.wire.core import Node
from orch.wire.pods import Pod


@dataclass(slots=True)
class PodPlan:
    """Actions, and what to remember: pods still to be marked, and timers of those that may stay."""

    actions: list[Action] = field(default_factory=list)
    unmarked: set[str] = field(default_factory=set)
    timers: dict[str, Timer] = field(default_factory=dict)


def decide(memory: Memory, view: View, judgements: Mapping[str, Judgement]) -> PodPlan:
    """Look at every pod of a known node."""
    plan = PodPlan()
    for name, judgement in judgements.items():
        for pod in view.pods.get(name, ()):
            _mark(plan, memory, pod, judgement)
            _evict(plan, memory, pod, view.nodes[name], view.stamp.now_s)
    return plan


def is_ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())


def _mark(plan: PodPlan, memory: Memory, pod: Pod, judgement: Judgement) -> None:
    """Pods of a node that turned are marked until that is done, those of a silent one always.

    An agent that is alive but not ready may find its pods ready again: it is not argued with.
    """
    if judgement.ready == "True" or not is_ready(pod):
        return
    uid = pod.metadata.uid or ""
    if judgement.turned or judgement.silent or uid in memory.unmarked:
        plan.actions.append(MarkPodNotReady(pod))
        plan.unmarked.add(uid)


def _evict(plan: PodPlan, memory: Memory, pod: Pod, node: Node, now_s: float) -> None:
    if pod.metadata.deletionTimestamp:
        return
    uid = pod.metadata.uid or ""
    before = memory.timers.get(uid)
    evicting = eviction.evicting_taints(taints.of_node(node))
    timer = eviction.next_timer(before, eviction.tolerated_s(pod, evicting), now_s)
    if timer is None:
        if before is not None:
            text = f"Cancelling deletion of Pod {pod.key}"
            plan.actions.append(Note(pod, "Normal", "TaintManagerEviction", text))
        return
    plan.timers[uid] = timer
    if now_s >= timer.due_s:
        plan.actions.append(EvictPod(pod))
