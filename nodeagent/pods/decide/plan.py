"""Desired pod and observed state → the next step; pure.

One step at a time: after each the state is observed again, so that an agent killed at any point
continues from there. The rules are the reference agent's (kuberuntime computePodActions): a new
sandbox when the old one is dead, init containers in order, restarts by policy with back-off. How
containers restart is in `restarts`.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodeagent.pods.actions import (
    NOT_PROBED,
    Action,
    CreateSandbox,
    Plan,
    ProbeResults,
    RemoveContainer,
    RemoveSandbox,
    StepBackoff,
    StopContainers,
    StopSandbox,
    Waiting,
)
from nodeagent.pods.decide import restarts
from nodeagent.pods.decide.phase import FINAL_PHASES
from nodeagent.pods.decide.restarts import Decision
from nodeagent.pods.observed import ObservedPod, is_active, is_ready
from nodeagent.runtime.base import SandboxDetail
from orch.wire.podrules.podspec import all_containers, is_sidecar
from orch.wire.records.pods import Container, Pod

SANDBOX = ""  # the key of a sandbox's back-off among those of containers
KEPT_INSTANCES = 2  # of one container: the newest and the one before it (lastState, its log)

_WAITING_FOR_INIT = Waiting("PodInitializing")


def next_step(
    pod: Pod,
    seen: ObservedPod,
    backoffs: Mapping[str, StepBackoff],
    now_ns: int,
    probed: ProbeResults = NOT_PROBED,
) -> Plan:
    """The next step of a pod that should run.

    `backoffs` are the failed steps, by container name (`SANDBOX` for the sandbox); `now_ns` is wall
    time, compared with the runtime's timestamps.
    """
    stale = _stop_stale(seen)
    if is_finished(pod, seen, probed):
        return Plan(stale or _wind_down(seen) or _tidy(seen), finished=True)
    if stale:
        return Plan(stale, _all_waiting(pod))
    sandbox = seen.sandbox
    if sandbox is None or not is_ready(sandbox):
        return _new_sandbox(pod, sandbox, backoffs)
    return _run_containers(pod, seen, restarts.RestartRules(pod, seen, backoffs, now_ns, probed))


def removal_step(seen: ObservedPod, *, grace_s: int | None = None) -> Action | None:
    """The next step of a pod to be removed; None when the runtime has nothing of it."""
    if seen.active:
        ids = tuple(detail.container.id for detail in seen.active)
        return StopContainers(ids, "the pod is being removed", grace_s)
    for sandbox in seen.sandboxes:
        if is_ready(sandbox):
            return StopSandbox(sandbox.sandbox.id)
    if seen.sandboxes:
        return RemoveSandbox(seen.sandboxes[-1].sandbox.id)
    if seen.containers:
        return RemoveContainer(seen.containers[-1].container.id)
    return None


def is_finished(pod: Pod, seen: ObservedPod, probed: ProbeResults = NOT_PROBED) -> bool:
    """Whether every container has ended for good; a final phase in the API stays final."""
    if pod.status.phase in FINAL_PHASES:
        return True
    policy = restarts.pod_policy(pod)
    if policy == "Always":
        return False
    failed_init = any(
        restarts.has_failed_for_good(c, seen.latest(c.name), policy)
        for c in pod.spec.initContainers or ()
        if not is_sidecar(c)
    )
    return failed_init or all(
        restarts.has_ended_for_good(c, seen.latest(c.name), policy, probed.killed)
        for c in pod.spec.containers
    )


def _stop_stale(seen: ObservedPod) -> Action | None:
    """Sandboxes other than the current one must have no process."""
    for index, detail in enumerate(seen.sandboxes):
        if index == 0 and is_ready(detail):
            continue
        sandbox_id = detail.sandbox.id
        holds = any(c.container.sandbox_id == sandbox_id for c in seen.active)
        if is_ready(detail) or holds:
            return StopSandbox(sandbox_id)
    return None


def _wind_down(seen: ObservedPod) -> Action | None:
    if seen.active:
        ids = tuple(detail.container.id for detail in seen.active)
        return StopContainers(ids, "the pod has finished")
    if seen.sandbox and is_ready(seen.sandbox):
        return StopSandbox(seen.sandbox.sandbox.id)
    return None


def _new_sandbox(pod: Pod, dead: SandboxDetail | None, backoffs: Mapping[str, StepBackoff]) -> Plan:
    waiting = _all_waiting(pod)
    if backoff := backoffs.get(SANDBOX):
        shown = Waiting(restarts.first_waiting(pod).reason, f"{backoff.reason}: {backoff.message}")
        waiting = dict.fromkeys(waiting, shown)
        if backoff.remaining_s > 0:
            return Plan(None, waiting, backoff.remaining_s)
    if dead is None:
        return Plan(CreateSandbox(attempt=0), waiting)
    return Plan(CreateSandbox(dead.sandbox.attempt + 1, replaces=dead.sandbox.id), waiting)


def _run_containers(pod: Pod, seen: ObservedPod, rules: restarts.RestartRules) -> Plan:
    decisions: dict[str, Decision] = {}
    blocked = False  # by a container that must exit or start before the later ones
    for container in _in_order(pod, seen):
        if blocked:
            decisions[container.name] = Decision(waiting=_WAITING_FOR_INIT)
            continue
        decisions[container.name] = rules.decide(container)
        blocked = rules.blocks_later(container)
    for container in pod.spec.ephemeralContainers or ():
        decisions[container.name] = rules.decide_ephemeral(container)
    action = next((v.action for v in decisions.values() if v.action), None)
    wakes = [v.wake_in_s for v in decisions.values() if v.wake_in_s is not None]
    return Plan(
        action=action or _tidy(seen),
        waiting={name: v.waiting for name, v in decisions.items() if v.waiting},
        wake_in_s=min(wakes, default=None),
    )


def _in_order(pod: Pod, seen: ObservedPod) -> list[Container]:
    """Init containers first, until an app container has been created in this sandbox."""
    initialized = seen.is_initialized(pod)
    inits = [c for c in pod.spec.initContainers or () if is_sidecar(c) or not initialized]
    return [*inits, *pod.spec.containers]


def _all_waiting(pod: Pod) -> dict[str, Waiting]:
    return dict.fromkeys((c.name for c in all_containers(pod)), restarts.first_waiting(pod))


def _tidy(seen: ObservedPod) -> Action | None:
    """Remove instances beyond the kept ones, then sandboxes without containers."""
    kept: dict[str, int] = {}
    for detail in seen.containers:
        name = detail.container.name
        kept[name] = kept.get(name, 0) + 1
        if kept[name] > KEPT_INSTANCES and not is_active(detail):
            return RemoveContainer(detail.container.id)
    used = {c.container.sandbox_id for c in seen.containers}
    for old in seen.sandboxes[1:]:
        if old.sandbox.id not in used:
            return RemoveSandbox(old.sandbox.id)
    return None
