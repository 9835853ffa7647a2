"""The phase of a pod from the states of its containers (reference agent, `getPhase`); pure.

Also pods that the node fails: evicted, or on a node that shuts down. Their containers have the
ending's grace period, and until the last of them has stopped the status stays Running: a
replacement must not start too early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeagent.pods.observed import ObservedPod
from orch.wire import times
from orch.wire.podrules.podspec import FINAL_PHASES as FINAL_PHASES
from orch.wire.podrules.podspec import is_sidecar, starts_again
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
    removed: bool = False,
) -> str:
    """Pending, Running, Succeeded or Failed; a phase the API holds as final stays so.

    `finished`: no container will be started again. `removed`: nor does one run, since the pod was
    deleted: it has failed unless all its main containers succeeded.
    """
    if pod.status.phase in FINAL_PHASES:
        return pod.status.phase
    if removed:
        ends = [status.state and status.state.terminated for status in apps]
        return SUCCEEDED if all(end and end.exitCode == 0 for end in ends) else FAILED
    pairs = list(zip(pod.spec.initContainers or (), inits, strict=True))
    first = [(each, status) for each, status in pairs if not is_sidecar(each)]
    sidecars = [status for container, status in pairs if is_sidecar(container)]
    if finished and any(_has_failed(pod, *pair) for pair in first):
        return PENDING if any(_runs(status) for status in sidecars) else FAILED
    starting = not any(_counts_as_started(app) for app in apps)
    if any(_is_pending(status) for _, status in first):
        return PENDING
    if starting and not all(_is_up(status) for status in sidecars):
        return PENDING
    return _phase_of_apps(pod, apps, sidecars, finished=finished)


def _phase_of_apps(
    pod: Pod,
    apps: Sequence[ContainerStatus],
    sidecars: Sequence[ContainerStatus],
    *,
    finished: bool,
) -> str:
    """A sidecar that runs keeps the phase; how it ends does not matter."""
    if any(not _counts_as_started(status) for status in apps):
        return PENDING
    running = any(_runs(status) for status in (*apps, *sidecars))
    if running or not finished:
        return RUNNING
    if all(_exit_code(status) == 0 for status in apps):
        return SUCCEEDED
    pairs = zip(pod.spec.containers, apps, strict=True)
    return FAILED if any(_has_failed(pod, *pair) for pair in pairs) else RUNNING


def _has_failed(pod: Pod, container: Container, status: ContainerStatus) -> bool:
    """Whether it ended badly and is not to start again."""
    code = _exit_code(status)
    return bool(code) and not starts_again(pod, container, code or 0)


def _runs(status: ContainerStatus) -> bool:
    return status.state is not None and status.state.running is not None


def _is_pending(status: ContainerStatus) -> bool:
    """Whether an init container runs, or waits for its first start."""
    return _runs(status) or not _counts_as_started(status)


def _is_up(status: ContainerStatus) -> bool:
    """Whether a sidecar has been started, or waits to be again."""
    return bool(status.started) if _runs(status) else _counts_as_started(status)


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
    is_disruption: bool = True  # caused by the node, not by the pod itself


def deadline_left_s(pod: Pod, started: str | None, now: datetime) -> float | None:
    """How long a pod that started then may go on; None: for ever."""
    deadline_s = pod.spec.activeDeadlineSeconds
    if deadline_s is None or not started:
        return None
    return deadline_s - (now - times.parse_time(started)).total_seconds()


def overdue(grace_s: int) -> Ending:
    """The ending of a pod whose deadline has passed."""
    text = "Pod was active on the node longer than the specified deadline"
    return Ending("DeadlineExceeded", text, grace_s, is_disruption=False)


def fail_pod(pod: Pod, ending: Ending, now: str) -> Pod:
    """The pod with the status Failed and the ending's grace period, which no deletion extends."""
    condition = PodCondition(
        type=DISRUPTED,
        status="True",
        reason=_BY_AGENT,
        message=ending.message,
        lastTransitionTime=now,
    )
    kept = [c for c in pod.status.conditions or () if c.type != DISRUPTED]
    added = [condition] if ending.is_disruption else []
    status = pod.status.model_copy(
        update={
            "phase": FAILED,
            "reason": ending.reason,
            "message": ending.message,
            "conditions": [*kept, *added],
        }
    )
    spec = pod.spec.model_copy(update={"terminationGracePeriodSeconds": ending.grace_s})
    metadata = pod.metadata
    if (metadata.deletionGracePeriodSeconds or 0) > ending.grace_s:
        shorter = {"deletionGracePeriodSeconds": ending.grace_s}
        metadata = metadata.model_copy(update=shorter)
    return pod.model_copy(update={"metadata": metadata, "status": status, "spec": spec})


def show_running(pod: Pod, seen: ObservedPod) -> Pod:
    """A failed pod for its status: Running while one of its containers runs."""
    if not seen.active:
        return pod
    status = pod.status.model_copy(update={"phase": RUNNING})
    return pod.model_copy(update={"status": status})
