"""The phase of a pod from the states of its containers; pure (reference agent, `getPhase`)."""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.pods.restarts import is_sidecar, pod_policy
from orch.wire.pods import Container, ContainerStatus, Pod

PENDING = "Pending"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
FINAL_PHASES = (SUCCEEDED, FAILED)


def pod_phase(pod: Pod, inits: Sequence[ContainerStatus], apps: Sequence[ContainerStatus]) -> str:
    """Pending, Running, Succeeded or Failed; a phase the API holds as final stays so."""
    if pod.status.phase in FINAL_PHASES:
        return pod.status.phase
    policy = pod_policy(pod)
    if any(_counts_as_started(status) for status in apps):
        return _phase_of_apps(apps, policy)
    for container, status in zip(pod.spec.initContainers or (), inits, strict=True):
        if not is_done(container, status):
            failed = _exit_code(status) not in (None, 0) and not is_sidecar(container)
            return FAILED if failed and policy == "Never" else PENDING
    return _phase_of_apps(apps, policy)


def _phase_of_apps(apps: Sequence[ContainerStatus], policy: str) -> str:
    codes = [_exit_code(status) for status in apps]
    running = any(status.state and status.state.running for status in apps)
    if any(not _counts_as_started(status) for status in apps):
        return PENDING
    if running or policy == "Always":
        return RUNNING
    if all(code == 0 for code in codes):
        return SUCCEEDED
    waits = any(status.state and status.state.waiting for status in apps)
    return FAILED if policy == "Never" and not waits else RUNNING


def _counts_as_started(status: ContainerStatus) -> bool:
    """Runs or has ended; one that waits for its next start has ended before."""
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
