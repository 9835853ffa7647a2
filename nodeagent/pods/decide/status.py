"""Observed pod → PodStatus as `kubectl` users know it; pure.

Container states, and the conditions with the reasons and messages that clients match on: those of
the reference agent (pkg/kubelet/status/generate.go). The phase is in `phase`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from nodeagent.pods.actions import NOT_PROBED, Plan, ProbeResults, Waiting
from nodeagent.pods.decide import resources, rounds
from nodeagent.pods.decide.phase import (
    DISRUPTED,
    FAILED,
    FINAL_PHASES,
    SUCCEEDED,
    is_done,
    pod_phase,
)
from nodeagent.pods.decide.restarts import first_waiting
from nodeagent.pods.observed import ObservedPod, is_ready
from nodeagent.pods.resize import changes
from nodeagent.pods.resize.changes import NO_RESIZE, Progress
from nodeagent.pods.resize.sizes import NOTHING_IN_FORCE, InForce
from nodeagent.pods.spec.mounts import mount_statuses
from nodeagent.runtime.base import ContainerDetail, ContainerState
from orch.wire import times
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import container_statuses, is_sidecar
from orch.wire.records.pods import (
    Container,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ContainerUser,
    LinuxContainerUser,
    Pod,
    PodCondition,
    PodIP,
    PodStatus,
    ResourceStatus,
)
from orch.wire.records.pods import ContainerState as State

OWN_CONDITIONS = frozenset(  # the agent says what they are; all others are left alone
    (
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
        rounds.CONDITION,
        DISRUPTED,
        *changes.CONDITIONS,
    )
)
_CREATING = Waiting("ContainerCreating")
_ENDED_MESSAGES, _WAITING_MESSAGES = 12 * 1024, 64 * 1024  # characters, of all containers
_LOST_CODE = 137  # as if it had been killed
_UNKNOWN = Waiting("ContainerStatusUnknown", "the runtime does not know the container's state")


@dataclass(frozen=True, slots=True)
class Facts:
    """The inputs of a status besides the pod and its observed state.

    `removed`: the pod was deleted, and none of its containers runs any more.
    """

    now: str
    host_ip: str = ""
    runtime_name: str = "containerd"
    probed: ProbeResults = NOT_PROBED
    messages: Mapping[str, str] = field(default_factory=dict)  # by id of an ended container
    plan: Plan = field(default_factory=Plan)
    creating: Waiting = _CREATING  # of a container that has not been created
    resize: Progress = NO_RESIZE
    in_force: InForce = NOTHING_IN_FORCE
    removed: bool = False
    devices: Mapping[str, list[ResourceStatus]] = field(default_factory=dict)  # by container
    recursion_possible: bool = False  # of read-only mounts
    containers: int = 1  # that share the room for messages


def pod_status(pod: Pod, seen: ObservedPod, facts: Facts, previous: PodStatus | None) -> PodStatus:
    """The whole status; `previous` keeps start, addresses and the times of conditions."""
    before = previous or pod.status
    count = len(podspec.all_containers(pod))
    facts = replace(facts, creating=first_waiting(pod), containers=count)
    records = pod.spec.initContainers or []
    over = _final_statuses(pod, before, removed=facts.removed)
    lost = _lost_inits(pod, seen)
    inits = [_init_status(c, _container_status(c, seen, facts, {**lost, **over})) for c in records]
    apps = [_app_status(c, seen, facts, over) for c in pod.spec.containers]
    if pod.status.phase in FINAL_PHASES and seen.empty and not over:
        return before  # it never had a container here: rejected, or failed early
    incomplete = [s.name for c, s in zip(records, inits, strict=True) if not is_done(c, s)]
    if facts.removed:
        inits = [_ended(s, facts) if _has_begun(s) else s for s in inits]
        apps = apps if incomplete else [_ended(s, facts) for s in apps]
    phase = pod_phase(pod, inits, apps, finished=facts.plan.finished, removed=facts.removed)
    ips = _addresses(pod, seen, facts, before)
    serving = [s for c, s in zip(records, inits, strict=True) if is_sidecar(c)] + apps
    conditions = [
        _condition("PodReadyToStartContainers", bool(seen.sandbox and is_ready(seen.sandbox))),
        _initialized(phase, incomplete, apps),
        _gated(pod, _ready("Ready", phase, serving)),
        _ready("ContainersReady", phase, serving),
        _condition("PodScheduled", True),
    ]
    if restarting := rounds.condition(pod, seen):
        conditions.append(restarting)
    generation = pod.metadata.generation
    conditions = [c.model_copy(update={"observedGeneration": generation}) for c in conditions]
    conditions += changes.conditions(facts.resize) if phase not in FINAL_PHASES else ()
    return PodStatus(
        observedGeneration=generation,
        phase=phase,
        conditions=_stamped(conditions, _known_conditions(pod, before), facts.now),
        resources=resources.of_pod(pod, facts.in_force),
        allocatedResources=resources.granted_to_pod(pod),
        hostIP=facts.host_ip or None,
        hostIPs=[PodIP(ip=facts.host_ip)] if facts.host_ip else None,
        podIP=ips[0] if ips else None,
        podIPs=[PodIP(ip=ip) for ip in ips] or None,
        startTime=before.startTime or _started(seen) or facts.now,
        initContainerStatuses=inits or None,
        containerStatuses=apps,
        ephemeralContainerStatuses=[
            _container_status(c, seen, facts, over) for c in pod.spec.ephemeralContainers or ()
        ]
        or None,
        qosClass=podspec.qos_class(pod),
        reason=pod.status.reason,
        message=pod.status.message,
    )


def refused_status(pod: Pod, reason: str, message: str, now: str) -> PodStatus:
    """The status of a pod that this node rejects."""
    return PodStatus(
        phase=FAILED,
        reason=reason,
        message=message,
        startTime=pod.status.startTime or now,
        qosClass=podspec.qos_class(pod),
        observedGeneration=pod.metadata.generation,
    )


def _known_conditions(pod: Pod, before: PodStatus) -> list[PodCondition]:
    """The agent's own of the last status, and those that others show with the pod now."""
    known = [c for c in before.conditions or () if c.type in OWN_CONDITIONS]
    ended = any(c.type == DISRUPTED for c in known)
    shown = [*(pod.status.conditions or ())]
    others = (c for c in shown if c.type not in OWN_CONDITIONS)
    return [*known, *others, *(c for c in shown if c.type == DISRUPTED and not ended)]


def _final_statuses(pod: Pod, before: PodStatus, *, removed: bool) -> Mapping[str, ContainerStatus]:
    """The last statuses of a finished pod's containers, for those that have been removed."""
    if pod.status.phase not in FINAL_PHASES and not removed:
        return {}
    return {status.name: status for status in container_statuses(before)}


def _lost_inits(pod: Pod, seen: ObservedPod) -> Mapping[str, ContainerStatus]:
    """Init containers of which the runtime has no record left; they did their work."""
    if not seen.is_initialized(pod):
        return {}
    ended = State(
        terminated=ContainerStateTerminated(
            exitCode=0,
            reason="Completed",
            message="Unable to get init container status: the runtime has no record of it left, "
            "and the pod is initialized",
        )
    )
    return {
        c.name: ContainerStatus(name=c.name, image=c.image, started=False, state=ended)
        for c in pod.spec.initContainers or ()
        if not is_sidecar(c)
    }


def _container_status(
    container: Container, seen: ObservedPod, facts: Facts, over: Mapping[str, ContainerStatus]
) -> ContainerStatus:
    instances = seen.instances(container.name)
    latest = instances[0] if instances else None
    waiting = _waiting(latest, facts, facts.plan.waiting.get(container.name))
    if latest is None and container.name in over:
        return over[container.name]
    if latest is None:
        return ContainerStatus(
            name=container.name,
            image=container.image,
            started=False,
            state=_waits(waiting or facts.creating, facts),
        )
    former = instances[1] if len(instances) > 1 else None
    ended_before = latest if waiting and _has_ended(latest) else former
    running = latest.container.state is ContainerState.RUNNING
    started = running and latest.container.id not in facts.probed.unstarted
    return ContainerStatus(
        name=container.name,
        state=_waits(waiting, facts) if waiting else _state(latest, facts),
        lastState=_last_state(ended_before, facts),
        ready=started and latest.container.id not in facts.probed.unready,
        started=started,
        restartCount=latest.container.attempt,
        image=latest.container.image or container.image,
        imageID=latest.container.image_ref,
        containerID=f"{facts.runtime_name}://{latest.container.id}",
        allocatedResources=resources.granted_to_container(container),
        resources=resources.in_container(container, latest, facts.in_force),
        volumeMounts=mount_statuses(container, recursive_possible=facts.recursion_possible),
        user=_user(latest),
        stopSignal=latest.stop_signal or None,
    )


def _user(detail: ContainerDetail) -> ContainerUser | None:
    if (user := detail.user) is None:
        return None
    groups = [*user.supplemental_groups] or None
    return ContainerUser(
        linux=LinuxContainerUser(uid=user.uid, gid=user.gid, supplementalGroups=groups)
    )


def _app_status(
    container: Container, seen: ObservedPod, facts: Facts, over: Mapping[str, ContainerStatus]
) -> ContainerStatus:
    """With the health of its devices, as the reference shows for app containers only."""
    status = _container_status(container, seen, facts, over)
    devices = facts.devices.get(container.name)
    return status.model_copy(update={"allocatedResourcesStatus": devices}) if devices else status


def _ended(status: ContainerStatus, facts: Facts) -> ContainerStatus:
    """A container of a deleted pod: if nothing is known of its end, it has failed."""
    if status.state and status.state.terminated:
        return status
    ended = ContainerStateTerminated(
        exitCode=_LOST_CODE,
        reason=_UNKNOWN.reason,
        message="The container could not be located when the pod was terminated",
        startedAt=facts.now,
        finishedAt=facts.now,
    )
    shown = {"state": State(terminated=ended), "ready": False, "started": False}
    return status.model_copy(update=shown)


def _has_begun(status: ContainerStatus) -> bool:
    return bool(status.lastState or (status.state and status.state.waiting is None))


def _waiting(
    latest: ContainerDetail | None, facts: Facts, planned: Waiting | None
) -> Waiting | None:
    """Why the container waits; None when it runs or has ended."""
    if latest is None:
        return planned or facts.creating
    match latest.container.state:
        case ContainerState.RUNNING:
            return None
        case ContainerState.EXITED:
            return planned
        case ContainerState.CREATED:
            return planned or facts.creating
    return _UNKNOWN


def _init_status(container: Container, status: ContainerStatus) -> ContainerStatus:
    """An init container is ready once it has succeeded; a sidecar while it runs."""
    if is_sidecar(container) or status.state is None:
        return status
    ended = status.state.terminated
    return status.model_copy(update={"ready": ended is not None and ended.exitCode == 0})


def _state(latest: ContainerDetail, facts: Facts) -> State:
    if latest.container.state is ContainerState.RUNNING:
        return State(running=ContainerStateRunning(startedAt=_time(latest.started_at_ns)))
    return State(terminated=_terminated(latest, facts))


def _waits(waiting: Waiting, facts: Facts) -> State:
    message = waiting.message[: _WAITING_MESSAGES // facts.containers]
    return State(waiting=ContainerStateWaiting(reason=waiting.reason, message=message or None))


def _last_state(detail: ContainerDetail | None, facts: Facts) -> State | None:
    if detail is None or not _has_ended(detail):
        return None
    return State(terminated=_terminated(detail, facts))


def _terminated(detail: ContainerDetail, facts: Facts) -> ContainerStateTerminated:
    # A container that never started has no times, and clients show missing ones as the year 1.
    finished_ns = detail.finished_at_ns if detail.finished_at_ns > 0 else detail.started_at_ns
    finished_ns = finished_ns if finished_ns > 0 else detail.container.created_at_ns
    started_ns = detail.started_at_ns if detail.started_at_ns > 0 else finished_ns
    message = facts.messages.get(detail.container.id) or detail.message
    return ContainerStateTerminated(
        exitCode=detail.exit_code,
        reason=detail.reason or ("Error" if detail.exit_code else "Completed"),
        message=message[: _ENDED_MESSAGES // facts.containers] or None,
        startedAt=_time(started_ns),
        finishedAt=_time(finished_ns),
        containerID=f"{facts.runtime_name}://{detail.container.id}",
    )


def _has_ended(detail: ContainerDetail) -> bool:
    return detail.container.state is ContainerState.EXITED


def _addresses(pod: Pod, seen: ObservedPod, facts: Facts, before: PodStatus) -> list[str]:
    if pod.spec.hostNetwork:
        return [facts.host_ip] if facts.host_ip and seen.sandbox else []
    ips = list(seen.sandbox.ips) if seen.sandbox else []
    kept = [ip.ip for ip in before.podIPs or ()]
    return ips or (kept if facts.plan.finished else [])


def _started(seen: ObservedPod) -> str | None:
    return _time(seen.sandboxes[-1].sandbox.created_at_ns) if seen.sandboxes else None


def _time(at_ns: int) -> str | None:
    """None for a time the runtime has not set."""
    if at_ns <= 0:
        return None
    return times.format_time(datetime.fromtimestamp(at_ns / 1e9, UTC))


def _condition(kind: str, holds: bool, reason: str = "", message: str = "") -> PodCondition:
    return PodCondition(
        type=kind, status=str(holds), reason=reason or None, message=message or None
    )


def _initialized(
    phase: str, incomplete: Sequence[str], apps: Sequence[ContainerStatus]
) -> PodCondition:
    if phase == SUCCEEDED:
        return _condition("Initialized", True, "PodCompleted")
    started = any(app.state and (app.state.running or app.state.terminated) for app in apps)
    if not incomplete or started:
        return _condition("Initialized", True)
    text = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return _condition("Initialized", False, "ContainersNotInitialized", text)


def _ready(kind: str, phase: str, serving: Sequence[ContainerStatus]) -> PodCondition:
    if phase in FINAL_PHASES:
        return _condition(kind, False, "PodCompleted" if phase == SUCCEEDED else "PodFailed")
    unready = [status.name for status in serving if not status.ready]
    if not unready:
        return _condition(kind, True)
    text = f"containers with unready status: [{' '.join(unready)}]"
    return _condition(kind, False, "ContainersNotReady", text)


def _gated(pod: Pod, ready: PodCondition) -> PodCondition:
    """Not ready while a condition that the pod waits for is not True."""
    shown = {c.type: c.status for c in pod.status.conditions or ()}
    unmet = []
    for name in (gate.conditionType for gate in pod.spec.readinessGates or ()):
        if name not in shown:
            unmet.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif shown[name] != "True":
            text = f'the status of pod readiness gate "{name}" is not "True", but {shown[name]}'
            unmet.append(text)
    if not unmet or ready.status != "True":
        return ready
    return _condition(ready.type, False, "ReadinessGatesNotReady", ", ".join(unmet))


def _stamped(
    conditions: Sequence[PodCondition], before: Sequence[PodCondition], now: str
) -> list[PodCondition]:
    """Keep the time of transition while a status stays the same, and conditions of others."""
    known = {condition.type: condition for condition in before}
    stamped = []
    for condition in conditions:
        former = known.pop(condition.type, None)
        kept = former.lastTransitionTime if former and former.status == condition.status else None
        stamped.append(condition.model_copy(update={"lastTransitionTime": kept or now}))
    others = [c for c in known.values() if c.type not in changes.CONDITIONS]
    return [*stamped, *others]  # a scheduler or a controller removes its own conditions
