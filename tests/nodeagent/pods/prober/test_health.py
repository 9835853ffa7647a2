"""Probes decide on the health of containers, on a runtime in memory and a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nodeagent.pods.prober.probes import Outcome, Prober
from nodeagent.runtime.base import ExecResult, RuntimeTimeout, RuntimeUnavailable
from orch.wire.records.pods import ContainerStatus, Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld
from tests.fakes.retained import retained

pytestmark = pytest.mark.looptime


class Answers:
    """The answer to every probe command, by the command's first word; good by default."""

    def __init__(self, world: PodWorld) -> None:
        self.bad: set[str] = set()
        self.asked: list[tuple[str, float]] = []
        world.runtime.on_exec = self._answer

    def _answer(self, _container_id: str, command: Sequence[str]) -> ExecResult:
        self.asked.append((command[0], asyncio.get_running_loop().time()))
        return ExecResult(int(command[0] in self.bad), b"", b"said no")

    def times(self, word: str) -> list[float]:
        return [at_s for asked, at_s in self.asked if asked == word]


@pytest.fixture
def answers(world: PodWorld) -> Answers:
    return Answers(world)


def probed(**probes: dict[str, Any]) -> Pod:
    """A pod whose container has these probes, each a command of the probe's own name."""
    fields = {
        f"{kind}Probe": {"exec": {"command": [kind]}, "periodSeconds": 5, **settings}
        for kind, settings in probes.items()
    }
    return pod(container_data("app", **fields))


def shown(world: PodWorld) -> ContainerStatus:
    [status] = world.status().status.containerStatuses or []
    return status


async def test_a_container_is_ready_once_its_probe_says_so(
    world: PodWorld, answers: Answers
) -> None:
    answers.bad.add("readiness")
    await world.start(probed(readiness={}))
    await world.until(lambda: "app" in world.running())
    await asyncio.sleep(20)
    assert not shown(world).ready
    assert world.status().status.phase == "Running"
    answers.bad.clear()
    await world.until(lambda: shown(world).ready, within_s=9)
    answers.bad.add("readiness")
    await asyncio.sleep(9)
    assert shown(world).ready, "two failures are not three"
    await world.until(lambda: not shown(world).ready, within_s=15)
    assert shown(world).restartCount == 0, "readiness restarts nothing"
    assert ("web", "Unhealthy", "Readiness probe failed: said no") in world.events


async def test_a_probe_that_cannot_be_made_is_told_with_the_reason(
    world: PodWorld, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    named_port = {"httpGet": {"port": "htpp"}, "exec": None}
    await world.start(probed(readiness=named_port, liveness={}))
    await world.until(lambda: "app" in world.running())
    world.runtime.fail("exec_sync", "no such file: liveness")
    await asyncio.sleep(60)

    assert not shown(world).ready and shown(world).restartCount == 0
    errored = "probe errored and resulted in unknown state: "
    told = {text for _, reason, text in world.events if reason == "Unhealthy"}
    assert any(text.startswith(f"Readiness {errored}") and "htpp" in text for text in told)
    assert any(text.startswith(f"Liveness {errored}") and "no such file" in text for text in told)
    assert caplog.text.count("probe cannot be made") == 2, "said when it begins"


async def test_a_probe_that_is_sent_to_another_host_warns_and_restarts_nothing(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def redirected(*_: Any) -> Outcome:
        return Outcome(True, "Probe terminated redirects, Response body: Found", warns=True)

    monkeypatch.setattr(Prober, "check", redirected)
    await world.start(probed(liveness={}))
    await world.until(lambda: "ProbeWarning" in world.reasons())
    told = "Liveness probe warning: Probe terminated redirects, Response body: Found"
    assert ("web", "ProbeWarning", told) in world.events
    assert shown(world).ready and shown(world).restartCount == 0


async def test_a_defect_of_a_probe_is_logged_and_does_not_end_probing(
    world: PodWorld, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start(probed(liveness={"failureThreshold": 1}))
    await world.until(lambda: "app" in world.running())
    world.runtime.fail("exec_sync", ZeroDivisionError("a defect"), times=2)
    answers.bad.add("liveness")

    await world.until(lambda: shown(world).restartCount == 1, within_s=60)
    assert caplog.text.count("its liveness probe failed unexpectedly") == 2


async def test_what_a_runtime_that_is_away_cannot_probe_is_no_news_of_the_container(
    world: PodWorld, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start(probed(liveness={}))
    await world.until(lambda: "app" in world.running())
    world.runtime.fail("exec_sync", RuntimeUnavailable("exec_sync", "connection refused"))
    await asyncio.sleep(60)

    assert "Unhealthy" not in {reason for _, reason, _ in world.events}
    assert "probe cannot be made" not in caplog.text


async def test_commands_that_a_hung_runtime_never_answered_restart_nothing(
    world: PodWorld, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(probed(liveness={"failureThreshold": 1}))
    await world.until(lambda: "app" in world.running())
    takes_s = 11.0

    async def overdue(*_: object, **__: object) -> ExecResult:
        await asyncio.sleep(takes_s)
        raise RuntimeTimeout("ExecSync", "rpc error: code = DeadlineExceeded")

    monkeypatch.setattr(world.runtime, "exec_sync", overdue)
    await asyncio.sleep(120)
    assert shown(world).restartCount == 0
    assert "Unhealthy" not in world.reasons()
    takes_s = 1.0  # as the runtime says it of a command that hangs
    await world.until(lambda: shown(world).restartCount == 1, within_s=60)


@pytest.mark.parametrize("kind", ["liveness", "startup"])
async def test_a_probe_has_a_grace_period_of_its_own(
    world: PodWorld, answers: Answers, kind: str
) -> None:
    given: list[int] = []
    stop = world.runtime.stop_container

    async def noting(container_id: str, *, timeout_s: int) -> None:
        given.append(timeout_s)
        await stop(container_id, timeout_s=timeout_s)

    world.runtime.stop_container = noting  # type: ignore[method-assign]
    answers.bad.add(kind)
    await world.start(probed(**{kind: {"failureThreshold": 1, "terminationGracePeriodSeconds": 3}}))
    await world.until(lambda: bool(given))
    assert set(given) == {3}


async def test_a_container_that_fails_its_liveness_probe_is_restarted(
    world: PodWorld, answers: Answers
) -> None:
    await world.start(probed(liveness={"failureThreshold": 2}))
    await world.until(lambda: "app" in world.running())
    first = world.running()["app"]
    await world.until(lambda: shown(world).ready)
    answers.bad.add("liveness")
    await world.until(lambda: world.running().get("app", first) != first, within_s=30)
    assert (
        "web",
        "Killing",
        "Stopping container app: Container app failed liveness probe, will be restarted",
    ) in world.events
    answers.bad.clear()
    await world.until(lambda: shown(world).restartCount == 1)
    await asyncio.sleep(60)
    assert shown(world).restartCount == 1


@pytest.mark.parametrize("kind", ["liveness", "startup"])
@pytest.mark.parametrize(
    ("policy", "restarts"), [("Always", True), ("OnFailure", True), ("Never", False)]
)
async def test_what_a_probe_kills_has_failed_even_with_exit_code_0(
    world: PodWorld, answers: Answers, kind: str, policy: str, restarts: bool
) -> None:
    world.runtime.code_of_stopped = 0
    phases: list[str | None] = []
    world.registry.on_status(lambda _uid: phases.append(world.status().status.phase))
    wanted = probed(**{kind: {"failureThreshold": 1}})
    spec = wanted.spec.model_copy(update={"restartPolicy": policy})
    answers.bad.add(kind)
    await world.start(wanted.model_copy(update={"spec": spec}))
    await world.until(lambda: "Killing" in world.reasons())
    answers.bad.clear()
    await asyncio.sleep(60)
    assert bool(shown(world).restartCount) is restarts
    assert ("app" in world.running()) is restarts
    assert ("Succeeded" in phases) is not restarts


async def test_readiness_is_asked_while_a_container_is_stopped_and_liveness_is_not(
    world: PodWorld, answers: Answers
) -> None:
    held = world.runtime.hold("stop_container")
    answers.bad.add("liveness")
    await world.start(probed(liveness={"failureThreshold": 1}, readiness={}))
    await held.reached.wait()
    stopped_s = asyncio.get_running_loop().time()
    await asyncio.sleep(12)
    assert len([at_s for at_s in answers.times("readiness") if at_s > stopped_s]) == 2
    assert [at_s for at_s in answers.times("liveness") if at_s > stopped_s] == []
    held.release()


async def test_a_kill_that_an_agents_end_interrupts_counts_for_the_next_one(
    world: PodWorld, answers: Answers
) -> None:
    world.runtime.code_of_stopped = 0
    wanted = probed(liveness={"failureThreshold": 1})
    spec = wanted.spec.model_copy(update={"restartPolicy": "OnFailure"})
    wanted = wanted.model_copy(update={"spec": spec})
    answers.bad.add("liveness")
    held = world.runtime.hold("stop_container")
    await world.start(wanted)
    await held.reached.wait()
    await world.stop()
    held.release()
    await world.until(lambda: not world.running())
    answers.bad.clear()
    heir = world.successor()
    await heir.start(wanted)
    await heir.until(lambda: "app" in heir.running())


async def test_a_failing_liveness_probe_runs_into_back_off(
    world: PodWorld, answers: Answers
) -> None:
    answers.bad.add("liveness")
    await world.start(probed(liveness={"failureThreshold": 1}))
    await world.until(lambda: world.waiting() == "CrashLoopBackOff", within_s=60)


async def test_other_probes_wait_for_the_startup_probe(world: PodWorld, answers: Answers) -> None:
    answers.bad.add("startup")
    await world.start(probed(startup={"failureThreshold": 10}, liveness={}, readiness={}))
    await world.until(lambda: "app" in world.running())
    await asyncio.sleep(20)
    assert not answers.times("liveness")
    assert not answers.times("readiness")
    assert not shown(world).started
    assert not shown(world).ready
    answers.bad.clear()
    await world.until(lambda: shown(world).ready, within_s=10)
    assert shown(world).started
    startups = len(answers.times("startup"))
    await asyncio.sleep(60)
    assert len(answers.times("startup")) == startups, "it ends with its first success"


async def test_a_startup_probe_that_never_succeeds_restarts_the_container(
    world: PodWorld, answers: Answers
) -> None:
    answers.bad.add("startup")
    await world.start(probed(startup={"failureThreshold": 3}))
    await world.until(lambda: shown(world).restartCount == 1, within_s=60)


async def test_probes_keep_their_delay_and_period(world: PodWorld, answers: Answers) -> None:
    await world.start(probed(liveness={"initialDelaySeconds": 30, "periodSeconds": 7}))
    await world.until(lambda: "app" in world.running())
    began_s = asyncio.get_running_loop().time()
    await asyncio.sleep(60)
    offsets = [at_s - began_s for at_s in answers.times("liveness")]
    assert offsets == pytest.approx([30, 37, 44, 51, 58], abs=0.5)


async def test_another_agent_does_not_start_the_initial_delay_again(
    world: PodWorld, answers: Answers
) -> None:
    await world.start(probed(liveness={"initialDelaySeconds": 30}))
    await world.until(lambda: "app" in world.running())
    await asyncio.sleep(40)
    await world.stop()
    heir = world.successor()
    before = len(answers.times("liveness"))
    await heir.start(probed(liveness={"initialDelaySeconds": 30}))
    await heir.until(lambda: len(answers.times("liveness")) > before, within_s=15)


async def test_another_agent_takes_no_serving_pod_out_of_service(
    world: PodWorld, answers: Answers
) -> None:
    await world.start(probed(readiness={"initialDelaySeconds": 50}))
    await world.until(lambda: world.registry.status(pod().metadata.uid or "") is not None)
    await world.until(lambda: shown(world).ready, within_s=60)
    stored = world.status()
    await world.stop()
    heir = world.successor()
    heir.runtime.hold("exec_sync")
    await heir.start(stored)
    await heir.until(lambda: shown(heir).state is not None)
    await asyncio.sleep(10)
    assert shown(heir).ready


async def test_a_container_being_checkpointed_may_miss_its_probes(
    world: PodWorld, answers: Answers
) -> None:
    await world.start(probed(liveness={"failureThreshold": 1}))
    await world.until(lambda: "app" in world.running())
    world.frozen.add(world.running()["app"])
    answers.bad.add("liveness")
    await asyncio.sleep(60)
    assert shown(world).restartCount == 0
    answers.bad.clear()
    world.frozen.clear()
    await asyncio.sleep(60)
    assert shown(world).restartCount == 0


async def test_a_probe_that_cannot_be_made_changes_nothing(
    world: PodWorld, answers: Answers
) -> None:
    await world.start(probed(liveness={"failureThreshold": 1}))
    await world.until(lambda: "app" in world.running())
    world.runtime.fail("exec_sync", "the runtime is busy")
    await asyncio.sleep(60)
    assert shown(world).restartCount == 0


async def test_probing_ends_with_the_container_and_the_pod(
    world: PodWorld, answers: Answers
) -> None:
    await world.start(probed(liveness={}, readiness={}))
    await world.until(lambda: shown(world).ready if world.running() else False)
    world.source.set()
    await world.until(lambda: not world.traces())
    asked = len(answers.asked)
    await asyncio.sleep(60)
    assert len(answers.asked) == asked


async def test_no_probe_keeps_a_former_state_of_its_pod(world: PodWorld, answers: Answers) -> None:
    """A pod of hundreds of containers would be held as often as it has some."""

    def labelled(word: str) -> Pod:
        probe = {"exec": {"command": ["liveness"]}}
        return pod(container_data("app", livenessProbe=probe), metadata={"labels": {"is": word}})

    await world.start(labelled("as-before"))
    await world.until(lambda: "app" in world.running())
    await asyncio.sleep(30)
    assert retained(world.services.health, ["as-before"]), "the pod that is probed is known"
    world.source.set(labelled("as-now"))
    await asyncio.sleep(30)
    assert retained(world.services.health, ["as-before", "as-now"]) == {"as-now"}
