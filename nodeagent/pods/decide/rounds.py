"""Rounds of a pod: all its containers start anew when a rule says `RestartAllContainers`; pure.

Every container is created in a round, whose number is in its annotations; one that ends and fits
such a rule ends the round. What is of an earlier round is stopped, and then started again in the
pod's order, init containers first. So a restarted agent goes on where the last one was, and no
clock is asked.
"""

from __future__ import annotations

from nodeagent.pods.observed import ObservedPod, is_active
from nodeagent.runtime.base import ContainerDetail, ContainerState
from orch.wire import names
from orch.wire.podrules.podspec import RESTART_ALL, fitting_rule, lasting
from orch.wire.records.pods import Container, Pod, PodCondition

CONDITION = "AllContainersRestarting"
WHY = "all containers of the pod restart"


def current(pod: Pod, seen: ObservedPod) -> int:
    """The number of the round; 0 until a rule has ended one."""
    if not _has_rule(pod):
        return 0
    found = (
        _recorded(detail) + _ends_round(container, detail)
        for container in lasting(pod)
        for detail in seen.instances(container.name)
    )
    return max(found, default=0)


def former(pod: Pod, seen: ObservedPod, number: int) -> tuple[ContainerDetail, ...]:
    """The latest instances that are of an earlier round."""
    latest = (seen.latest(container.name) for container in lasting(pod) if number)
    return tuple(detail for detail in latest if detail and _recorded(detail) < number)


def condition(pod: Pod, seen: ObservedPod) -> PodCondition | None:
    """Whether containers still have to stop; None for a pod without such a rule."""
    if not _has_rule(pod):
        return None
    stopping = any(map(is_active, former(pod, seen, current(pod, seen))))
    return PodCondition(type=CONDITION, status="True" if stopping else "False")


def _has_rule(pod: Pod) -> bool:
    rules = (rule for c in lasting(pod) for rule in c.restartPolicyRules or ())
    return any(rule.action == RESTART_ALL for rule in rules)


def _recorded(detail: ContainerDetail) -> int:
    text = detail.container.annotations.get(names.RUNTIME_ANNOTATION_ROUND, "")
    return int(text) if text.isdecimal() else 0


def _ends_round(container: Container, detail: ContainerDetail) -> bool:
    if detail.container.state is not ContainerState.EXITED:
        return False
    rule = fitting_rule(container, detail.exit_code)
    return rule is not None and rule.action == RESTART_ALL
