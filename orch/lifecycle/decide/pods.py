"""Pods on unready or tainted nodes: which are marked, which are evicted, and when; pure.

A pod is evicted at once unless it tolerates every NoExecute taint, otherwise when the shortest of
the tolerations it uses expires. A pod without tolerations for the controller's own two taints
tolerates them for five minutes, as admission would have written.
Source: pkg/controller/tainteviction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orch.lifecycle.decide import heartbeats
from orch.lifecycle.decide.heartbeats import Judgement
from orch.lifecycle.decide.records import (
    Action,
    EvictPod,
    MarkPodNotReady,
    Memory,
    Note,
    Timer,
    View,
)
from orch.wire.podrules.podspec import (
    DEFAULT_TOLERATION_S,
    NO_EXECUTE,
    TOLERATED_BY_DEFAULT,
    Tolerations,
    is_mirror,
)
from orch.wire.records.core import Node, Taint
from orch.wire.records.pods import Pod


def tolerated_s(pod: Pod, node_taints: Sequence[Taint]) -> float:
    """How long the pod may stay under these NoExecute taints: 0 not at all, inf forever."""
    if is_mirror(pod) or not node_taints:
        return math.inf
    tolerations = Tolerations(pod.spec.tolerations)
    return min(_tolerated_s(tolerations, taint) for taint in node_taints)


def next_timer(before: Timer | None, stay_s: float, now_s: float) -> Timer | None:
    """The timer of a pod that may stay `stay_s`; None when it may stay forever.

    A running timer keeps its start, and is never extended.
    """
    if math.isinf(stay_s):
        return None
    started_s = before.started_s if before else now_s
    due_s = started_s + stay_s
    return Timer(started_s, min(due_s, before.due_s) if before else due_s)


def _tolerated_s(tolerations: Tolerations, taint: Taint) -> float:
    used = tolerations.of(taint)
    if not used:
        return DEFAULT_TOLERATION_S if taint.key in TOLERATED_BY_DEFAULT else 0.0
    limits = [t.tolerationSeconds for t in used if t.tolerationSeconds is not None]
    return max(0.0, min(limits, default=math.inf))


@dataclass(slots=True)
class PodPlan:
    """Actions, and what to remember: pods still to be marked, and timers of those that may stay."""

    actions: list[Action] = field(default_factory=list)
    unmarked: set[str] = field(default_factory=set)
    timers: dict[str, Timer] = field(default_factory=dict)


def decide(memory: Memory, view: View, judgements: Mapping[str, Judgement]) -> PodPlan:
    """Decide about every pod of a known node."""
    plan = PodPlan()
    for name, judgement in judgements.items():
        for pod in view.pods.get(name, ()):
            _mark(plan, memory, pod, judgement)
            _evict(plan, memory, pod, view.nodes[name], view.stamp.now_s)
    return plan


def is_ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())


def _mark(plan: PodPlan, memory: Memory, pod: Pod, judgement: Judgement) -> None:
    """Mark pods once their node becomes unready, until that succeeded, or while it is silent.

    An agent that is alive but not ready may report its pods ready again, and is not overruled.
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
    evicting = [taint for taint in heartbeats.of_node(node) if taint.effect == NO_EXECUTE]
    timer = next_timer(before, tolerated_s(pod, evicting), now_s)
    if timer is None:
        if before is not None:
            text = f"Cancelling deletion of Pod {pod.key}"
            plan.actions.append(Note(pod, "Normal", "TaintManagerEviction", text))
        return
    plan.timers[uid] = timer
    if now_s >= timer.due_s:
        plan.actions.append(EvictPod(pod))
