"""Desired pod and observed state → the next step; pure.

One step at a time: after each the state is observed again, so that an agent killed at any point
continues from there. The rules are the reference agent's (kuberuntime computePodActions): a new
sandbox when the old one is dead, init containers in order, restarts by policy with back-off. How
containers restart is in `restarts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from nodeagent.pods.decide import restarts, rounds
from nodeagent.pods.decide.phase import FINAL_PHASES
from nodeagent.pods.decide.restarts import Decision
from nodeagent.pods.observed import ObservedPod, is_active, is_ready
from nodeagent.pods.resize.changes import RESIZE, next_change
from nodeagent.pods.resize.sizes import NOTHING_IN_FORCE, InForce
from nodeagent.runtime.base import ContainerDetail, SandboxDetail
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
    in_force: InForce = NOTHING_IN_FORCE,
) -> Plan:
    """The next step of a pod that should run.

    `backoffs` are the failed steps, by container name (`SANDBOX` for the sandbox, `RESIZE` for a
    resize); `now_ns` is wall time, compared with the runtime's timestamps.
    """
    stale = _stop_stale(seen)
    former = rounds.former(pod, seen, rounds.current(pod, seen))
    in_force = _restarting(in_force, former)
    if is_finished(pod, seen, probed, in_force):
        return Plan(stale or _wind_down(seen) or _tidy(seen), finished=True)
    if stale:
        return Plan(stale, _all_waiting(pod))
    sandbox = seen.sandbox
    if sandbox is None or not is_ready(sandbox):
        return _new_sandbox(pod, sandbox, backoffs)
    if stopping := tuple(detail.container.id for detail in former if is_active(detail)):
        return Plan(StopContainers(stopping, rounds.WHY), _all_waiting(pod))
    rules = restarts.RestartRules(pod, seen, backoffs, now_ns, probed, in_force)
    decided = _run_containers(pod, seen, rules, begins_anew=bool(former))
    return _resized(decided, next_change(pod, seen, in_force), backoffs.get(RESIZE))


def _restarting(in_force: InForce, former: Sequence[ContainerDetail]) -> InForce:
    """With what is of an earlier round among those that start again."""
    if not former:
        return in_force
    ids = in_force.restarting | {detail.container.id for detail in former}
    return replace(in_force, restarting=ids)


def _resized(decided: Plan, change: Action | None, backoff: StepBackoff | None) -> Plan:
    """A resize comes first, because others may need its room, but holds up nothing if it fails."""
    if change is None:
        return decided
    if backoff is None or backoff.remaining_s <= 0:
        return replace(decided, action=change)
    wakes = [wake for wake in (decided.wake_in_s, backoff.remaining_s) if wake is not None]
    return replace(decided, wake_in_s=min(wakes))


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


def is_finished(
    pod: Pod,
    seen: ObservedPod,
    probed: ProbeResults = NOT_PROBED,
    in_force: InForce = NOTHING_IN_FORCE,
) -> bool:
    """Whether every container has ended for good; a final phase in the API stays final."""
    if pod.status.phase in FINAL_PHASES:
        return True
    failed_init = any(
        restarts.has_failed_for_good(pod, c, seen.latest(c.name), in_force)
        for c in pod.spec.initContainers or ()
        if not is_sidecar(c)
    )
    return failed_init or all(
        restarts.has_ended_for_good(pod, c, seen.latest(c.name), probed.killed, in_force)
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


def _run_containers(
    pod: Pod, seen: ObservedPod, rules: restarts.RestartRules, *, begins_anew: bool
) -> Plan:
    decisions: dict[str, Decision] = {}
    blocked = False  # by a container that must exit or start before the later ones
    for container in _in_order(pod, seen, begins_anew=begins_anew):
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


def _in_order(pod: Pod, seen: ObservedPod, *, begins_anew: bool) -> list[Container]:
    """Init containers first, until an app container has been created in this sandbox, and while
    something of an earlier round has not been.
    """
    initialized = seen.is_initialized(pod) and not begins_anew
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
