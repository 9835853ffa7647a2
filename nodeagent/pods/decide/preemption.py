"""Which pods end so that a critical pod finds room; pure.

The rules are the reference agent's (pkg/kubelet/preemption): pods that are not critical, or of a
lower priority; as few as possible of the best class of service, then of the next; of those that do
equally well, the smaller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nodeagent.pods.decide import admission
from nodeagent.pods.decide.phase import Ending
from nodeagent.pods.spec import spec
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import BEST_EFFORT, BURSTABLE, GUARANTEED
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod

PREEMPTING = "Preempting"

Amounts = Mapping[str, int]  # by resource, in thousandths


def victims(pod: Pod, node: Node, others: Sequence[Pod]) -> list[Pod]:
    """The pods to end; none where none would do, or none is needed."""
    missing = admission.missing(pod, node, others)
    by_class: dict[str, list[Pod]] = {BEST_EFFORT: [], BURSTABLE: [], GUARANTEED: []}
    for other in others:
        if _yields(other, pod):
            by_class[podspec.qos_class(other)].append(other)
    least, middle, best = by_class[BEST_EFFORT], by_class[BURSTABLE], by_class[GUARANTEED]
    if _left(missing, (*least, *middle, *best)):
        return []
    ends = _chosen(best, _left(missing, (*least, *middle)))
    ends += _chosen(middle, _left(missing, (*least, *ends)))
    return ends + _chosen(least, _left(missing, ends))


def ending_of(victim: Pod) -> Ending:
    """It has its own grace period."""
    text = "Preempted in order to admit critical pod"
    return Ending(PREEMPTING, text, spec.grace_period_s(victim))


def _yields(other: Pod, pod: Pod) -> bool:
    if not podspec.is_critical(other):
        return True
    lower = (other.spec.priority, pod.spec.priority)
    return None not in lower and (other.spec.priority or 0) < (pod.spec.priority or 0)


def _left(missing: Amounts, ended: Iterable[Pod]) -> dict[str, int]:
    """What is still missing without these pods."""
    pods = list(ended)
    left = {
        name: amount - sum(admission.amount_of(each, name) for each in pods)
        for name, amount in missing.items()
    }
    return {name: amount for name, amount in left.items() if amount > 0}


def _chosen(pods: Iterable[Pod], missing: Amounts) -> list[Pod]:
    """Always the pod next that leaves the least missing."""
    left, candidates, chosen = dict(missing), list(pods), list[Pod]()
    while left and candidates:
        nearest = min(candidates, key=lambda each: _distance(each, left))
        candidates.remove(nearest)
        chosen.append(nearest)
        left = _left(left, (nearest,))
    return chosen


def _distance(pod: Pod, missing: Amounts) -> tuple[float, int, int]:
    """How much would be missing, each resource counting alike; then the pod's size."""
    amounts = {name: admission.amount_of(pod, name) for name in (*missing, "memory", "cpu")}
    shares = (max(0, amount - amounts[name]) / amount for name, amount in missing.items())
    return sum(share * share for share in shares), amounts["memory"], amounts["cpu"]
