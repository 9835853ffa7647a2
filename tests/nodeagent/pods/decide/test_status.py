"""Observed pods → statuses; phases are rows of the reference's TestPodPhaseWithRestart*."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.pods.actions import ProbeResults, StepBackoff
from nodeagent.pods.decide import plan
from nodeagent.pods.decide.status import Facts, pod_status
from nodeagent.pods.observed import ObservedPod
from nodeagent.runtime.base import ContainerState
from nodeagent.runtime.isolation import ContainerUser
from orch.wire.records.pods import Container, Pod, PodCondition, PodStatus
from tests.fakes.pods import SECOND_NS, T0_NS, container_data, exited, instance, pod, sandbox, seen

NOW = "2023-11-14T22:14:00Z"
NEVER, ON_FAILURE = {"restartPolicy": "Never"}, {"restartPolicy": "OnFailure"}
INIT = {"initContainers": [container_data("i1")]}
SIDE = container_data("side", restartPolicy="Always")
SIDE_RECORD = Container.from_wire(SIDE)


def status_of(
    wanted: Pod,
    held: ObservedPod,
    backoffs: dict[str, StepBackoff] | None = None,
    previous: PodStatus | None = None,
    **facts: Any,
) -> PodStatus:
    decided = plan.next_step(wanted, held, backoffs or {}, T0_NS + SECOND_NS)
    return pod_status(wanted, held, Facts(now=NOW, plan=decided, **facts), previous)


def find_condition(status: PodStatus, kind: str) -> PodCondition | None:
    return next((c for c in status.conditions or () if c.type == kind), None)


PHASES: list[tuple[str, Pod, ObservedPod, str]] = [
    ("nothing yet", pod(), seen(), "Pending"),
    ("sandbox only", pod(), seen(sandbox()), "Pending"),
    ("runs", pod(), seen(sandbox(), instance()), "Running"),
    ("half runs", pod("a", "b"), seen(sandbox(), instance("a")), "Pending"),
    ("Always, all ended", pod(), seen(sandbox(), exited()), "Running"),
    ("Always, crash loop", pod(), seen(sandbox(), exited(step=3)), "Running"),
    ("Never, succeeded", pod(**NEVER), seen(sandbox(), exited(code=0)), "Succeeded"),
    ("Never, failed", pod(**NEVER), seen(sandbox(), exited()), "Failed"),
    (
        "Never, one failed",
        pod("a", "b", **NEVER),
        seen(sandbox(), exited("a"), exited("b", code=0)),
        "Failed",
    ),
    (
        "Never, one runs",
        pod("a", "b", **NEVER),
        seen(sandbox(), exited("a"), instance("b")),
        "Running",
    ),
    ("OnFailure, succeeded", pod(**ON_FAILURE), seen(sandbox(), exited(code=0)), "Succeeded"),
    ("OnFailure, failed", pod(**ON_FAILURE), seen(sandbox(), exited(step=2)), "Running"),
    ("init runs", pod(**INIT), seen(sandbox(), instance("i1")), "Pending"),
    ("init failed", pod(**INIT), seen(sandbox(), exited("i1", step=2)), "Pending"),
    ("init failed for good", pod(**INIT, **NEVER), seen(sandbox(), exited("i1")), "Failed"),
    (
        "init failed for good, sidecar still runs",
        pod(initContainers=[SIDE, *INIT["initContainers"]], **NEVER),
        seen(sandbox(), instance("side", record=SIDE_RECORD), exited("i1")),
        "Pending",
    ),
    (
        "init failed for good, sidecar has ended",
        pod(initContainers=[SIDE, *INIT["initContainers"]], **NEVER),
        seen(sandbox(), exited("side", record=SIDE_RECORD), exited("i1")),
        "Failed",
    ),
    ("init done", pod(**INIT), seen(sandbox(), exited("i1", code=0)), "Pending"),
    (
        "init done, app runs",
        pod(**INIT),
        seen(sandbox(), exited("i1", code=0), instance()),
        "Running",
    ),
    (
        "sidecar and app",
        pod(initContainers=[SIDE]),
        seen(sandbox(), instance("side", record=SIDE_RECORD), instance()),
        "Running",
    ),
    (
        "app done, sidecar still runs",
        pod(initContainers=[SIDE], **NEVER),
        seen(sandbox(), instance("side", record=SIDE_RECORD), exited(code=0)),
        "Running",
    ),
    (
        "app done, sidecar has failed",
        pod(initContainers=[SIDE], **NEVER),
        seen(sandbox(), exited("side", code=1, record=SIDE_RECORD), exited(code=0)),
        "Succeeded",
    ),
    (
        "a sidecar that crashes leaves a running pod running",
        pod(initContainers=[SIDE]),
        seen(sandbox(), exited("side", step=3, record=SIDE_RECORD), instance()),
        "Running",
    ),
    (
        "init runs again in a new sandbox, as after a reboot",
        pod(**INIT),
        seen(
            sandbox(0, ready=False),
            sandbox(1),
            exited("i1", code=0),
            exited(code=255),
            instance("i1", 1, sandbox_id="s1"),
        ),
        "Pending",
    ),
    (
        "the record of an init container was removed",
        pod(**INIT),
        seen(sandbox(), instance()),
        "Running",
    ),
    ("the API's word is final", pod(status={"phase": "Failed"}), seen(), "Failed"),
]


@pytest.mark.parametrize(
    ("wanted", "held", "phase"), [row[1:] for row in PHASES], ids=[row[0] for row in PHASES]
)
def test_the_phase_of_a_pod(wanted: Pod, held: ObservedPod, phase: str) -> None:
    assert status_of(wanted, held).phase == phase


def test_a_running_container_is_shown_with_its_start_and_ids() -> None:
    status = status_of(pod(), seen(sandbox(), instance(attempt=2), exited(attempt=1)))
    [shown] = status.containerStatuses or []
    assert shown.to_wire() == {
        "name": "app",
        "state": {"running": {"startedAt": "2023-11-14T22:13:19Z"}},
        "lastState": {
            "terminated": {
                "exitCode": 1,
                "reason": "Error",
                "startedAt": "2023-11-14T22:13:19Z",
                "finishedAt": "2023-11-14T22:13:20Z",
                "containerID": "containerd://app1",
            }
        },
        "ready": True,
        "started": True,
        "restartCount": 2,
        "image": "localhost/busybox:1",
        "imageID": "sha256:abc",
        "containerID": "containerd://app2",
        "resources": {},
    }


def test_a_crash_looping_container_shows_its_wait_and_its_end() -> None:
    status = status_of(pod(), seen(sandbox(), exited(attempt=1, step=1)))
    [shown] = status.containerStatuses or []
    assert shown.state and shown.state.waiting
    assert shown.state.waiting.reason == "CrashLoopBackOff"
    assert shown.lastState and shown.lastState.terminated
    assert shown.lastState.terminated.exitCode == 1
    assert not shown.ready
    assert shown.restartCount == 1


def test_a_trouble_is_the_reason_a_container_waits() -> None:
    backoff = {"app": StepBackoff("ErrImagePull", "no such image", 5)}
    [shown] = status_of(pod(), seen(sandbox()), backoff).containerStatuses or []
    assert shown.state and shown.state.waiting
    assert shown.state.waiting.to_wire() == {"reason": "ErrImagePull", "message": "no such image"}


@pytest.mark.parametrize(("count", "ended", "waits"), [(1, 4096, 4096), (100, 122, 655)])
def test_the_messages_of_all_containers_share_their_room(
    count: int, ended: int, waits: int
) -> None:
    """Else a pod of a thousand has a status that no API server takes."""
    names, long = [f"c{number}" for number in range(count)], "\x01" * 4096
    wanted = pod(containers=[container_data(name) for name in names])
    over = [exited(name) for name in names]
    messages = {one.container.id: long for one in over}
    waiting = {name: StepBackoff("ErrImagePull", long, 5) for name in names}
    shown = status_of(wanted, seen(sandbox(), *over), messages=messages).containerStatuses or []
    states = [one.lastState or one.state for one in shown]
    assert [len(s.terminated.message) for s in states] == [ended] * count  # type: ignore[union-attr, arg-type]
    shown = status_of(wanted, seen(sandbox()), waiting).containerStatuses or []
    assert [len(one.state.waiting.message) for one in shown] == [waits] * count  # type: ignore[union-attr, arg-type]


def test_a_container_that_never_started_shows_when_it_failed() -> None:
    failed = exited(code=128, ended_ns=T0_NS)
    failed = replace(failed, started_at_ns=0, finished_at_ns=-62135596800 * SECOND_NS)
    status = status_of(pod(restartPolicy="Never"), seen(sandbox(), failed))
    [one] = status.containerStatuses or []
    ended = one.state and one.state.terminated
    assert ended and ended.startedAt == ended.finishedAt == "2023-11-14T22:13:20Z"


def test_a_container_of_unknown_state_is_not_called_running() -> None:
    held = seen(sandbox(), instance(state=ContainerState.UNKNOWN))
    [shown] = status_of(pod(), held).containerStatuses or []
    assert shown.state and shown.state.waiting
    assert shown.state.waiting.reason == "ContainerStatusUnknown"


def test_probes_decide_over_ready_and_started() -> None:
    held = seen(sandbox(), instance("a"), instance("b"))
    probed = ProbeResults(unready=frozenset({"a0"}), unstarted=frozenset({"b0"}))
    status = status_of(pod("a", "b"), held, probed=probed)
    a, b = status.containerStatuses or []
    assert (a.ready, a.started) == (False, True)
    assert (b.ready, b.started) == (False, False)
    ready = find_condition(status, "Ready")
    assert ready and ready.message == "containers with unready status: [a b]"


GATES = {"readinessGates": [{"conditionType": "example.com/served"}]}


def shows(status: str) -> dict[str, Any]:
    """The status of a pod for which somebody has set the gate's condition."""
    return {"status": {"conditions": [{"type": "example.com/served", "status": status}]}}


CONDITIONS: list[tuple[str, Pod, ObservedPod, dict[str, tuple[str, str | None]]]] = [
    (
        "runs",
        pod(),
        seen(sandbox(), instance()),
        {
            "PodReadyToStartContainers": ("True", None),
            "Initialized": ("True", None),
            "Ready": ("True", None),
            "ContainersReady": ("True", None),
            "PodScheduled": ("True", None),
        },
    ),
    (
        "init runs",
        pod(**INIT),
        seen(sandbox(), instance("i1")),
        {
            "Initialized": ("False", "ContainersNotInitialized"),
            "Ready": ("False", "ContainersNotReady"),
        },
    ),
    (
        "succeeded",
        pod(**NEVER),
        seen(sandbox(ready=False), exited(code=0)),
        {
            "PodReadyToStartContainers": ("False", None),
            "Initialized": ("True", "PodCompleted"),
            "Ready": ("False", "PodCompleted"),
            "ContainersReady": ("False", "PodCompleted"),
        },
    ),
    (
        "failed",
        pod(**NEVER),
        seen(sandbox(ready=False), exited()),
        {"Ready": ("False", "PodFailed"), "ContainersReady": ("False", "PodFailed")},
    ),
    (
        "failed with a gate",
        pod(**NEVER, **GATES),
        seen(sandbox(ready=False), exited()),
        {"Ready": ("False", "PodFailed")},
    ),
    (
        "gate without a condition",
        pod(**GATES),
        seen(sandbox(), instance()),
        {"Ready": ("False", "ReadinessGatesNotReady"), "ContainersReady": ("True", None)},
    ),
    (
        "gate that is open",
        pod(**GATES, **shows("True")),
        seen(sandbox(), instance()),
        {"Ready": ("True", None), "example.com/served": ("True", None)},
    ),
]


@pytest.mark.parametrize(
    ("wanted", "held", "expected"),
    [row[1:] for row in CONDITIONS],
    ids=[row[0] for row in CONDITIONS],
)
def test_the_conditions_of_a_pod(
    wanted: Pod, held: ObservedPod, expected: dict[str, tuple[str, str | None]]
) -> None:
    status = status_of(wanted, held)
    for kind, (value, reason) in expected.items():
        condition = find_condition(status, kind)
        assert condition and (condition.status, condition.reason) == (value, reason), kind


def test_a_pod_follows_the_condition_that_it_waits_for() -> None:
    held = seen(sandbox(), instance())
    before = status_of(pod(**GATES, **shows("True")), held)
    after = status_of(pod(**GATES, **shows("False")), held, previous=before)
    ready, gate = (find_condition(after, kind) for kind in ("Ready", "example.com/served"))
    assert ready and gate and (ready.status, gate.status) == ("False", "False")
    told = 'the status of pod readiness gate "example.com/served" is not "True", but False'
    assert ready.message == told


def test_an_init_container_without_a_record_has_completed_and_says_why_no_more_is_known() -> None:
    [lost] = status_of(pod(**INIT), seen(sandbox(), instance())).initContainerStatuses or []
    ended = lost.state and lost.state.terminated
    assert ended and (ended.reason, ended.exitCode) == ("Completed", 0)
    assert (ended.message or "").startswith(
        "Unable to get init container status"
    )  # as the reference


def test_a_pod_is_ready_with_its_sidecars_only() -> None:
    wanted = pod(initContainers=[SIDE])
    held = seen(sandbox(), instance("side", record=SIDE_RECORD), instance())
    ready = find_condition(status_of(wanted, held), "Ready")
    assert ready and ready.status == "True"
    unready = ProbeResults(unready=frozenset({"side0"}))
    status = status_of(wanted, held, probed=unready)
    for kind in ("Ready", "ContainersReady"):
        condition = find_condition(status, kind)
        assert condition and condition.status == "False"
        assert condition.message == "containers with unready status: [side]"


def test_an_init_container_whose_record_is_gone_reads_completed() -> None:
    [shown] = status_of(pod(**INIT), seen(sandbox(), instance())).initContainerStatuses or []
    ended = shown.state and shown.state.terminated
    assert ended and (ended.exitCode, ended.reason, shown.ready) == (0, "Completed", True)


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    before = status_of(pod(), seen(sandbox()))
    facts = Facts(now="2030-01-01T00:00:00Z")
    after = pod_status(pod(), seen(sandbox(), instance()), facts, before)
    times = {c.type: c.lastTransitionTime for c in after.conditions or ()}
    assert times["Initialized"] == NOW
    assert times["Ready"] == "2030-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({}, "ContainerCreating"), ({"initContainers": [{"name": "i"}]}, "PodInitializing")],
)
def test_what_was_never_created_waits_as_clients_know_it(spec: dict[str, Any], reason: str) -> None:
    shown = pod_status(pod(**spec), seen(), Facts(now=NOW), None)
    for status in (*(shown.initContainerStatuses or ()), *(shown.containerStatuses or ())):
        assert status.state and status.state.waiting and status.state.waiting.reason == reason


def test_conditions_of_others_are_kept() -> None:
    wanted = pod(status={"conditions": [{"type": "DisruptionTarget", "status": "True"}]})
    assert find_condition(status_of(wanted, seen()), "DisruptionTarget")


def test_addresses_and_start_come_from_the_sandbox_and_stay_when_the_pod_is_over() -> None:
    running = status_of(pod(**NEVER), seen(sandbox(), instance()), host_ip="192.0.2.1")
    assert (running.podIP, running.hostIP) == ("10.0.0.2", "192.0.2.1")
    assert running.to_wire()["hostIPs"] == [{"ip": "192.0.2.1"}]
    assert running.startTime == "2023-11-14T22:13:20Z"
    over = status_of(pod(**NEVER), seen(sandbox(ready=False), exited(code=0)), previous=running)
    assert over.podIP == "10.0.0.2"
    assert over.startTime == running.startTime


def test_a_pod_in_the_hosts_network_has_the_hosts_address() -> None:
    status = status_of(pod(hostNetwork=True), seen(sandbox(), instance()), host_ip="192.0.2.1")
    assert [ip.ip for ip in status.podIPs or ()] == ["192.0.2.1"]


def test_a_pod_that_is_over_keeps_what_was_known_of_containers_that_are_gone() -> None:
    former = status_of(pod(**NEVER), seen(sandbox(), exited(code=3)))
    over = pod(**NEVER, status=former.to_wire())
    assert status_of(over, seen()).containerStatuses == former.containerStatuses


def test_the_user_and_the_stop_signal_that_the_runtime_tells_are_shown() -> None:
    told = replace(
        instance(), user=ContainerUser(uid=7, gid=8, supplemental_groups=(9,)), stop_signal="SIGHUP"
    )
    [shown] = status_of(pod(), seen(sandbox(), told)).containerStatuses or []
    assert shown.to_wire()["user"] == {"linux": {"uid": 7, "gid": 8, "supplementalGroups": [9]}}
    assert shown.stopSignal == "SIGHUP"
    [silent] = status_of(pod(), seen(sandbox(), instance())).containerStatuses or []
    assert silent.user is None and silent.stopSignal is None


@pytest.mark.parametrize("possible", [True, False])
def test_mounts_are_shown_as_they_are(possible: bool) -> None:
    mounts = [
        {"name": "v", "mountPath": "/rw"},
        {"name": "v", "mountPath": "/ro", "readOnly": True},
        {"name": "v", "mountPath": "/rro", "readOnly": True, "recursiveReadOnly": "IfPossible"},
    ]
    wanted = pod(container_data("app", volumeMounts=mounts))
    facts = Facts(now=NOW, recursion_possible=possible)
    found = pod_status(wanted, seen(instance("app")), facts, None)
    [status] = found.containerStatuses or []
    shown = [(m.mountPath, m.readOnly, m.recursiveReadOnly) for m in status.volumeMounts or []]
    deep = "Enabled" if possible else "Disabled"
    assert shown == [("/rw", None, None), ("/ro", True, "Disabled"), ("/rro", True, deep)]
