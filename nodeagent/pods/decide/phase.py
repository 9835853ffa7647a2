"""The phase of a pod from the states of its containers (reference agent, `getPhase`); pure.

Also pods that the node fails: evicted, or on a node that shuts down. Their containers have the
ending's grace period, and until the last of them has stopped the status stays Running: a
replacement must not start too early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.pods.decide.restarts import pod_policy
from nodeagent.pods.observed import ObservedPod
from orch.wire.podrules.podspec import FINAL_PHASES as FINAL_PHASES
from orch.wire.podrules.podspec import is_sidecar
from orch.wire.records.pods import Container, ContainerStatus, Pod, PodCondition

PENDING = "Pending"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"


def pod_phase(
    pod: Pod,
    inits: Sequence[ContainerStatus],
    apps: Sequence[ContainerStatus],
    *,
    finished: bool,
) -> str:
    """Pending, Running, Succeeded or Failed; a phase the API holds as final stays so.

    `finished`: no container will be started again.
    """
    if pod.status.phase in FINAL_PHASES:
        return pod.status.phase
    policy = pod_policy(pod)
    if any(_counts_as_started(status) for status in apps):
        return _phase_of_apps(apps, policy, finished=finished)
    for container, status in zip(pod.spec.initContainers or (), inits, strict=True):
        if not is_done(container, status):
            failed = _exit_code(status) not in (None, 0) and not is_sidecar(container)
            return FAILED if failed and policy == "Never" else PENDING
    return _phase_of_apps(apps, policy, finished=finished)


def _phase_of_apps(apps: Sequence[ContainerStatus], policy: str, *, finished: bool) -> str:
    codes = [_exit_code(status) for status in apps]
    running = any(status.state and status.state.running for status in apps)
    if any(not _counts_as_started(status) for status in apps):
        return PENDING
    if running or policy == "Always" or not finished:
        return RUNNING
    if all(code == 0 for code in codes):
        return SUCCEEDED
    waits = any(status.state and status.state.waiting for status in apps)
    return FAILED if policy == "Never" and not waits else RUNNING


def _counts_as_started(status: ContainerStatus) -> bool:
    """Whether the container runs, has ended, or waits to be restarted."""
    if status.state is None:
        return False
    if status.state.waiting:
        return status.lastState is not None
    return status.state.running is not None or status.state.terminated is not None


def _exit_code(status: ContainerStatus) -> int | None:
    """None while it runs, or before its first end."""
    state = status.state
    if state and state.terminated:
        return state.terminated.exitCode
    if state and state.waiting and status.lastState and status.lastState.terminated:
        return status.lastState.terminated.exitCode
    return None


def is_done(container: Container, status: ContainerStatus) -> bool:
    """Whether an init container lets the next one start."""
    if is_sidecar(container):
        return bool(status.started)
    return bool(status.state and status.state.terminated and status.state.terminated.exitCode == 0)


EVICTED = "Evicted"
DISRUPTED = "DisruptionTarget"  # the condition controllers look for
HARD_GRACE_S = 1  # of an eviction that cannot wait, as in the reference agent
_BY_AGENT = "TerminationByNodeAgent"


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the pod fails, as its status shows it, and how long its containers have to stop."""

    reason: str
    message: str
    grace_s: int = HARD_GRACE_S


def fail_pod(pod: Pod, ending: Ending, now: str) -> Pod:
    """The pod with the status Failed and the ending's grace period."""
    condition = PodCondition(
        type=DISRUPTED,
        status="True",
        reason=_BY_AGENT,
        message=ending.message,
        lastTransitionTime=now,
    )
    kept = [c for c in pod.status.conditions or () if c.type != DISRUPTED]
    status = pod.status.model_copy(
        update={
            "phase": FAILED,
            "reason": ending.reason,
            "message": ending.message,
            "conditions": [*kept, condition],
        }
    )
    spec = pod.spec.model_copy(update={"terminationGracePeriodSeconds": ending.grace_s})
    return pod.model_copy(update={"status": status, "spec": spec})


def show_running(pod: Pod, seen: ObservedPod) -> Pod:
    """A failed pod for its status: Running while one of its containers runs."""
    if not seen.active:
        return pod
    status = pod.status.model_copy(update={"phase": RUNNING})
    return pod.model_copy(update={"status": status})
