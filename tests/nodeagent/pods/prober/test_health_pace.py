"""Probes in a hurry, of pods with many containers: others have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nodeagent.pods.prober import health, probes
from nodeagent.pods.prober.probes import Outcome, Prober, ProbeTarget
from nodeagent.runtime.base import ExecResult
from orch.wire.records.handlers import Probe
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime


class Answers:
    """To every probe command, by its first word; good by default."""

    def __init__(self, world: PodWorld) -> None:
        self.bad: set[str] = set()
        self.asked: list[tuple[str, float]] = []
        world.runtime.on_exec = self._answer

    def _answer(self, _container_id: str, command: Sequence[str]) -> ExecResult:
        self.asked.append((command[0], asyncio.get_running_loop().time()))
        return ExecResult(int(command[0] in self.bad), b"", b"said no")


def two_namespaces(world: PodWorld) -> tuple[Pod, Pod]:
    """One pod has twenty containers that are probed each second, and another has one."""

    def asked(word: str) -> dict[str, Any]:
        command = {"exec": {"command": [word]}, "periodSeconds": 1, "failureThreshold": 1}
        return {"readinessProbe": command}

    many = pod(*(container_data(f"c{number}", **asked("many")) for number in range(20)))
    elsewhere = {"name": "other", "namespace": "elsewhere", "uid": "u-other"}
    return many, pod(container_data("app", **asked("other")), metadata=elsewhere)


async def test_commands_beyond_a_rate_wait_and_namespaces_take_turns(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eighty commands a second made a neighbour's pod start twenty times as late."""
    answers = Answers(world)
    monkeypatch.setattr(probes, "COMMANDS_PER_S", 5)
    world.use(world.source)
    await world.start(*two_namespaces(world))
    await world.until(lambda: len(world.runtime.containers) == 21)
    await asyncio.sleep(5)
    began_s = asyncio.get_running_loop().time()
    await asyncio.sleep(20)
    asked = [word for word, at_s in answers.asked if at_s > began_s]
    assert len(asked) <= 5 * 20 + 1
    assert asked.count("other") >= 12


async def test_results_that_change_all_the_time_wait_and_namespaces_take_turns(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is a line of the log, a file that is written, and a report of all containers."""
    answers = Answers(world)
    monkeypatch.setattr(health, "CHANGES_PER_S", 1)
    monkeypatch.setattr(health, "CHANGES_AT_ONCE", 30)
    world.use(world.source)
    await world.start(*two_namespaces(world))
    await world.until(lambda: len(world.runtime.containers) == 21)
    await asyncio.sleep(30)
    caplog.set_level("INFO")
    for second in range(60):
        (answers.bad.remove if second % 2 else answers.bad.add)("many")
        await asyncio.sleep(1)
    assert 50 < caplog.text.count("its readiness probe") <= 30 + 60 + 1
    answers.bad.add("other")

    def is_ready() -> bool:
        found = world.registry.find("elsewhere", "other")
        conditions = (found and found.status.conditions) or ()
        return any(c.type == "Ready" and c.status == "True" for c in conditions)

    await world.until(lambda: not is_ready(), within_s=5)


async def test_requests_beyond_a_rate_wait_and_the_pods_of_a_namespace_take_turns(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight hundred each second took half a processor, and others' requests 110 ms now and then."""
    asked: list[tuple[str, float]] = []

    async def check(_prober: Prober, target: ProbeTarget, _probe: Probe) -> Outcome:
        asked.append((target.container.name, asyncio.get_running_loop().time()))
        return Outcome(True)

    def requested(*names: str) -> list[dict[str, Any]]:
        probe = {"tcpSocket": {"port": 1}, "periodSeconds": 1}
        return [container_data(name, readinessProbe=probe) for name in names]

    monkeypatch.setattr(Prober, "check", check)
    monkeypatch.setattr(probes, "REQUESTS_PER_S", 5)
    monkeypatch.setattr(probes, "REQUESTS_AT_ONCE", 1)
    many = pod(*requested(*(f"c{number}" for number in range(20))))
    beside = pod(*requested("beside"), metadata={"name": "beside", "uid": "u-beside"})
    world.use(world.source)
    await world.start(many, beside)
    await world.until(lambda: len(world.runtime.containers) == 21)
    await asyncio.sleep(5)
    began_s = asyncio.get_running_loop().time()
    await asyncio.sleep(20)
    names = [name for name, at_s in asked if at_s > began_s]
    assert 5 * 20 - 1 <= len(names) <= 5 * 20 + 1
    assert names.count("beside") >= 18
