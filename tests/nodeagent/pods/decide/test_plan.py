"""The next step of a pod, by tables; rules of the reference agent's computePodActions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.pods.actions import (
    CreateSandbox,
    RemoveContainer,
    RemoveSandbox,
    StartContainer,
    StepBackoff,
    StopContainers,
    StopSandbox,
)
from nodeagent.pods.decide import plan, restarts
from nodeagent.pods.observed import ObservedPod
from nodeagent.runtime.base import ContainerState
from orch.wire.records.pods import Container, Pod
from tests.fakes.pods import SECOND_NS, T0_NS, container_data, exited, instance, pod, sandbox, seen

NOW_NS = T0_NS + 1 * SECOND_NS
CREATED = ContainerState.CREATED
UNKNOWN = ContainerState.UNKNOWN
NEVER, ON_FAILURE = {"restartPolicy": "Never"}, {"restartPolicy": "OnFailure"}
CHANGED = Container.from_wire(container_data("app", image="localhost/busybox:0"))
TWO = ("a", "b")
INIT = {"initContainers": [container_data("i1"), container_data("i2")]}
SIDECAR = {"initContainers": [container_data("side", restartPolicy="Always")]}
SIDE = Container.from_wire(container_data("side", restartPolicy="Always"))


def start(name: str = "app", attempt: int = 0, step: int = 0, created: str = "") -> StartContainer:
    return StartContainer(name, attempt, step, created)


STEPS: list[tuple[str, Pod, ObservedPod, Any]] = [
    ("nothing there yet", pod(), seen(), CreateSandbox(0)),
    ("sandbox ready", pod(), seen(sandbox()), start()),
    ("all run", pod(), seen(sandbox(), instance()), None),
    ("first of two", pod(*TWO), seen(sandbox()), start("a")),
    ("second of two", pod(*TWO), seen(sandbox(), instance("a")), start("b")),
    (
        "created, not started",
        pod(),
        seen(sandbox(), instance(state=CREATED)),
        start(created="app0"),
    ),
    (
        "created from another definition",
        pod(),
        seen(sandbox(), instance(state=CREATED, record=CHANGED)),
        RemoveContainer("app0"),
    ),
    (
        "runs from another definition",
        pod(),
        seen(sandbox(), instance(record=CHANGED)),
        StopContainers(("app0",), "its definition changed"),
    ),
    (
        "ended from another definition",
        pod(),
        seen(sandbox(), exited(step=3, record=CHANGED)),
        start(attempt=1),
    ),
    ("first crash restarts at once", pod(), seen(sandbox(), exited()), start(attempt=1, step=1)),
    ("clean exit restarts too", pod(), seen(sandbox(), exited(code=0)), start(attempt=1, step=1)),
    ("second crash waits", pod(), seen(sandbox(), exited(attempt=1, step=1)), None),
    (
        "a long run starts the count again",
        pod(),
        seen(sandbox(), exited(attempt=7, step=6, ran_s=600)),
        start(attempt=8, step=1),
    ),
    ("Never, failed: the sandbox goes", pod(**NEVER), seen(sandbox(), exited()), StopSandbox("s0")),
    ("Never, all over", pod(**NEVER), seen(sandbox(ready=False), exited()), None),
    ("OnFailure, failed", pod(**ON_FAILURE), seen(sandbox(), exited()), start(attempt=1, step=1)),
    ("OnFailure, done", pod(**ON_FAILURE), seen(sandbox(), exited(code=0)), StopSandbox("s0")),
    (
        "Never, one of two still runs",
        pod(*TWO, **NEVER),
        seen(sandbox(), exited("a"), instance("b")),
        None,
    ),
    (
        "unknown state is ended first",
        pod(),
        seen(sandbox(), instance(state=UNKNOWN)),
        StopContainers(("app0",), "the runtime lost track of it", 0),
    ),
    # sandboxes
    ("sandbox died", pod(), seen(sandbox(ready=False)), CreateSandbox(1, replaces="s0")),
    (
        "sandbox died, a container runs on",
        pod(),
        seen(sandbox(ready=False), instance()),
        StopSandbox("s0"),
    ),
    (
        "sandbox died with its container",
        pod(),
        seen(sandbox(ready=False), exited(code=137)),
        CreateSandbox(1, replaces="s0"),
    ),
    (
        "new sandbox: containers start again",
        pod(),
        seen(sandbox(1), sandbox(ready=False), exited(code=137)),
        start(attempt=1, step=1),
    ),
    (
        "new sandbox: what succeeded stays done",
        pod(*TWO, **ON_FAILURE),
        seen(sandbox(1), sandbox(ready=False), exited("a", code=0), exited("b", code=137)),
        start("b", attempt=1, step=1),
    ),
    ("two ready: the older goes", pod(), seen(sandbox(1), sandbox(0)), StopSandbox("s0")),
    (
        "an empty old sandbox is removed",
        pod(),
        seen(sandbox(1), sandbox(ready=False), instance(sandbox_id="s1")),
        RemoveSandbox("s0"),
    ),
    (
        "an old sandbox with a kept instance stays",
        pod(),
        seen(sandbox(1), sandbox(ready=False), instance(attempt=1, sandbox_id="s1"), exited()),
        None,
    ),
    (
        "instances beyond two are removed",
        pod(),
        seen(sandbox(), instance(attempt=2), exited(attempt=1), exited(attempt=0)),
        RemoveContainer("app0"),
    ),
    # init containers
    ("first init", pod(**INIT), seen(sandbox()), start("i1")),
    ("init runs", pod(**INIT), seen(sandbox(), instance("i1")), None),
    ("second init", pod(**INIT), seen(sandbox(), exited("i1", code=0)), start("i2")),
    (
        "inits done",
        pod(**INIT),
        seen(sandbox(), exited("i1", code=0), exited("i2", code=0)),
        start(),
    ),
    (
        "init failed",
        pod(**INIT, **ON_FAILURE),
        seen(sandbox(), exited("i1")),
        start("i1", attempt=1, step=1),
    ),
    (
        "init failed for good",
        pod(**INIT, **NEVER),
        seen(sandbox(), exited("i1")),
        StopSandbox("s0"),
    ),
    (
        "inits run again in a new sandbox",
        pod(**INIT),
        seen(
            sandbox(1),
            sandbox(ready=False),
            exited("i1", code=0),
            exited("i2", code=0),
            exited(code=137),
        ),
        start("i1", attempt=1, step=1),
    ),
    (
        "app running: a removed init container is not run again",
        pod(**INIT),
        seen(sandbox(), instance()),
        None,
    ),
    ("sidecar first", pod(**SIDECAR), seen(sandbox()), start("side")),
    (
        "sidecar runs: app starts",
        pod(**SIDECAR),
        seen(sandbox(), instance("side", record=SIDE)),
        start(),
    ),
    (
        "sidecar restarts beside the app",
        pod(**SIDECAR),
        seen(sandbox(), exited("side", code=0, record=SIDE), instance()),
        start("side", attempt=1, step=1),
    ),
    (
        "app done: the sidecar is stopped",
        pod(**SIDECAR, **NEVER),
        seen(sandbox(), instance("side", record=SIDE), exited(code=0)),
        StopContainers(("side0",), "the pod has finished"),
    ),
    # what the API says is final
    (
        "a pod the API holds as Succeeded is not run again",
        pod(status={"phase": "Succeeded"}),
        seen(),
        None,
    ),
]


@pytest.mark.parametrize(
    ("wanted", "held", "expected"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS]
)
def test_the_next_step_is(wanted: Pod, held: ObservedPod, expected: Any) -> None:
    assert plan.next_step(wanted, held, {}, NOW_NS).action == expected


BACKOFF = [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (1000, 300)]


@pytest.mark.parametrize(("step", "delay_s"), BACKOFF)
def test_restarts_are_delayed_by_10_s_doubling_to_5_min(step: int, delay_s: float) -> None:
    assert restarts.delay_s(step) == delay_s


def test_a_crash_looping_container_waits_out_its_delay_and_says_so() -> None:
    held = seen(sandbox(), exited(attempt=2, step=2, ended_ns=NOW_NS - 5 * SECOND_NS))
    decided = plan.next_step(pod(), held, {}, NOW_NS)
    assert decided.action is None
    assert decided.wake_in_s == 15
    waiting = decided.waiting["app"]
    assert waiting.reason == "CrashLoopBackOff"
    assert waiting.message == (
        "back-off 20s restarting failed container=app "
        "pod=web_default(11111111-2222-3333-4444-555555555555)"
    )
    later = plan.next_step(pod(), held, {}, NOW_NS + 15 * SECOND_NS)
    assert later.action == start(attempt=3, step=3)


def test_a_container_that_starts_again_at_once_shows_its_end_meanwhile() -> None:
    decided = plan.next_step(pod(), seen(sandbox(), exited()), {}, NOW_NS)
    assert decided.action == start(attempt=1, step=1)
    assert not decided.waiting


def test_a_clock_set_back_behind_the_end_of_a_container_does_not_delay_its_restart() -> None:
    held = seen(sandbox(), exited(step=6, ended_ns=NOW_NS + 3600 * SECOND_NS))
    assert plan.next_step(pod(), held, {}, NOW_NS).action == start(attempt=1, step=6)


@pytest.mark.parametrize(("ran_s", "starts"), [(600, True), (599.9, False)])
def test_ten_minutes_of_running_and_no_less_end_the_back_off(ran_s: float, starts: bool) -> None:
    held = seen(sandbox(), exited(step=6, ran_s=ran_s, ended_ns=NOW_NS))
    decided = plan.next_step(pod(), held, {}, NOW_NS)
    assert decided.action == (start(attempt=1, step=1) if starts else None)


def test_one_container_in_back_off_does_not_keep_the_next_from_starting() -> None:
    held = seen(sandbox(), exited("a", attempt=1, step=2, ended_ns=NOW_NS))
    assert plan.next_step(pod(*TWO), held, {}, NOW_NS).action == start("b")


def test_a_failed_step_is_not_planned_again_while_it_is_in_trouble() -> None:
    backoff = StepBackoff("ErrImagePull", "no such image", 7.5)
    decided = plan.next_step(pod(), seen(sandbox()), {"app": backoff}, NOW_NS)
    assert decided.action is None
    assert decided.wake_in_s == 7.5
    assert decided.waiting["app"].reason == "ErrImagePull"


def test_a_sandbox_in_trouble_is_shown_on_every_container() -> None:
    backoff = StepBackoff("FailedCreatePodSandBox", "no network", 2.0)
    decided = plan.next_step(pod(*TWO), seen(), {plan.SANDBOX: backoff}, NOW_NS)
    assert decided.action is None
    assert decided.wake_in_s == 2.0
    assert {w.reason for w in decided.waiting.values()} == {"ContainerCreating"}
    assert decided.waiting["b"].message == "FailedCreatePodSandBox: no network"


WITH_INIT = [seen(), seen(sandbox()), seen(sandbox(ready=False)), seen(sandbox(), exited("i1"))]


@pytest.mark.parametrize("held", WITH_INIT)
@pytest.mark.parametrize("trouble", [{}, {plan.SANDBOX: StepBackoff("FailedMount", "no", 2.0)}])
def test_all_containers_of_a_pod_with_init_containers_wait_for_its_initialization(
    held: ObservedPod, trouble: dict[str, StepBackoff]
) -> None:
    decided = plan.next_step(pod(**INIT), held, trouble, NOW_NS)
    reasons = {waiting.reason for waiting in decided.waiting.values()}
    assert reasons - {"CrashLoopBackOff"} == {"PodInitializing"}


def test_containers_wait_for_init_containers_by_name() -> None:
    decided = plan.next_step(pod(**INIT), seen(sandbox(), instance("i1")), {}, NOW_NS)
    assert {name: waiting.reason for name, waiting in decided.waiting.items()} == {
        "i2": "PodInitializing",
        "app": "PodInitializing",
    }


REMOVALS: list[tuple[str, ObservedPod, Any]] = [
    ("nothing left", seen(), None),
    (
        "running containers are stopped together",
        seen(sandbox(), instance("a"), instance("b"), exited("c")),
        StopContainers(("a0", "b0"), "the pod is being removed", 5),
    ),
    ("then the sandbox", seen(sandbox(), exited()), StopSandbox("s0")),
    (
        "which is removed with what is in it",
        seen(sandbox(ready=False), exited()),
        RemoveSandbox("s0"),
    ),
    ("the oldest first", seen(sandbox(1, ready=False), sandbox(ready=False)), RemoveSandbox("s0")),
    ("a container without a sandbox", seen(exited()), RemoveContainer("app0")),
]


@pytest.mark.parametrize(
    ("held", "expected"), [row[1:] for row in REMOVALS], ids=[row[0] for row in REMOVALS]
)
def test_a_pod_that_must_go_is_taken_apart_in_order(held: ObservedPod, expected: Any) -> None:
    assert plan.removal_step(held, grace_s=5) == expected


states = st.sampled_from(list(ContainerState))
instances = st.builds(
    lambda name, attempt, state, code, step, box: instance(
        name, attempt, state, exit_code=code, step=step, sandbox_id=f"s{box}"
    ),
    st.sampled_from(["a", "b", "i1"]),
    st.integers(0, 3),
    states,
    st.sampled_from([0, 1]),
    st.integers(0, 8),
    st.integers(0, 2),
)
worlds = st.builds(
    lambda boxes, containers: seen(
        *boxes.values(), *{c.container.id: c for c in containers}.values()
    ),
    st.dictionaries(st.integers(0, 2), st.booleans(), max_size=3).map(
        lambda chosen: {n: sandbox(n, ready=ready) for n, ready in chosen.items()}
    ),
    st.lists(instances, max_size=5),
)
policies = st.sampled_from(["Always", "OnFailure", "Never"])


@given(worlds, policies, st.booleans())
def test_whatever_is_there_no_running_container_is_started_again(
    held: ObservedPod, policy: str, with_init: bool
) -> None:
    inits = {"initContainers": [container_data("i1")]} if with_init else {}
    wanted = pod("a", "b", restartPolicy=policy, **inits)
    action = plan.next_step(wanted, held, {}, NOW_NS).action
    if isinstance(action, StartContainer):
        assert held.running(action.name) is None
        assert held.sandbox is not None
        attempts = [c.container.attempt for c in held.instances(action.name)]
        assert action.created_id or action.attempt > max(attempts, default=-1)


@given(worlds)
def test_removal_always_ends_with_nothing(held: ObservedPod) -> None:
    sandboxes = {d.sandbox.id: d for d in held.sandboxes}
    containers = {d.container.id: d for d in held.containers}
    for _ in range(50):
        action = plan.removal_step(seen(*sandboxes.values(), *containers.values()))
        match action:
            case None:
                break
            case StopContainers():
                for one in action.ids:
                    name, attempt = (
                        containers[one].container.name,
                        containers[one].container.attempt,
                    )
                    box = containers[one].container.sandbox_id
                    containers[one] = exited(name, attempt, sandbox_id=box)
            case StopSandbox():
                number = int(action.sandbox_id[1:])
                sandboxes[action.sandbox_id] = sandbox(number, ready=False)
            case RemoveSandbox():
                del sandboxes[action.sandbox_id]
                for one in list(containers):
                    if containers[one].container.sandbox_id == action.sandbox_id:
                        del containers[one]
            case RemoveContainer():
                del containers[action.container_id]
    assert not sandboxes
    assert not containers
