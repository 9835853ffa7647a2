"""Containers that somebody's checkpoint left frozen are freed; nobody else's, and not too soon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent import freezer
from nodeagent.freezer import (
    CHECKS,
    CHECKS_BEFORE_RETRY,
    SILENT_S,
    ContainerThawer,
    FrozenContainerMonitor,
)
from nodeagent.pods.observed import ActiveContainer
from nodeagent.runtime import base
from nodeagent.runtime.health import RuntimeWatch
from orch.component.process import loops
from orch.component.process.loops import Periodic
from tests.fakes.checkpoints import Node, checkpointable_node


class World:
    """Containers, their cgroups, and the watch; `silent_s` the runtime has owed an answer."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.cgroups = node.root / "cgroup"
        self.active: list[ActiveContainer] = []
        self.silent_s = 0.0
        self.busy: set[str] = set()
        self.unknown: set[str] = set()
        (self.cgroups).mkdir()
        (self.cgroups / "cgroup.controllers").touch()
        self.thawer = ContainerThawer(node.runtime, cgroup_root=self.cgroups)
        self.watch = self.monitor(lambda: self.silent_s)

    def monitor(self, silent_s: Callable[[], float]) -> FrozenContainerMonitor:
        return FrozenContainerMonitor(
            self,
            self.thawer,
            self.node.reports,
            is_busy=lambda one: one in self.busy,
            silent_s=silent_s,
        )

    def active_containers(self, *, only_unknown: bool) -> list[ActiveContainer]:
        return [one for one in self.active if one.id in self.unknown or not only_unknown]

    def add(self, name: str, *, frozen: bool, unknown: bool = True) -> Path:
        container_id = self.node.pods.running[name]
        self.active.append(ActiveContainer(container_id, name, self.node.pods.pod))
        if unknown:
            self.unknown.add(container_id)
        cgroup = self.cgroups / "orchpods" / "podu1" / container_id
        cgroup.mkdir(parents=True)
        control = cgroup / "cgroup.freeze"
        control.write_text("1\n" if frozen else "0\n")
        return control


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(freezer, "SETTLE_S", 0.001)
    monkeypatch.setattr(freezer, "RETRY_S", 0.001)
    node = await checkpointable_node(tmp_path)
    node.runtime.fail("resume_container", base.RuntimeNotFound("Resume", "state is unknown"))
    return World(node)


async def test_a_container_found_frozen_twice_is_thawed_and_reported(world: World) -> None:
    control = world.add("app", frozen=True)

    await world.watch.step()
    assert control.read_text() == "1\n"
    await world.watch.step()

    assert control.read_text() == "0"
    assert world.node.reports.counts.thawed == 1
    assert world.node.events.recorded == [
        (
            "Warning",
            "ContainerThawed",
            "Container app was left frozen by a checkpoint; it runs again",
        )
    ]
    await world.watch.step()
    assert world.node.reports.counts.thawed == 1


async def test_a_checkpoint_in_progress_is_not_disturbed(world: World) -> None:
    control = world.add("app", frozen=True)

    await world.watch.step()
    control.write_text("0\n")
    await world.watch.step()
    control.write_text("1\n")  # another one
    await world.watch.step()

    assert control.read_text() == "1\n"
    assert world.node.reports.counts.thawed == 0


async def test_a_container_being_checkpointed_is_left_alone(world: World) -> None:
    control = world.add("app", frozen=True)
    world.busy.add(world.node.pods.running["app"])

    for _ in range(5):
        await world.watch.step()

    assert control.read_text() == "1\n"
    assert world.node.runtime.called("resume_container") == []


async def test_a_running_container_is_left_alone(world: World) -> None:
    world.add("app", frozen=False)

    for _ in range(5):
        await world.watch.step()

    assert world.node.reports.counts.thawed == 0
    assert world.node.runtime.called("resume_container") == []


async def test_while_the_runtime_answers_running_containers_are_left_alone(world: World) -> None:
    control = world.add("app", frozen=True, unknown=False)

    for _ in range(5):
        await world.watch.step()

    assert control.read_text() == "1\n"


async def test_the_containers_of_a_silent_runtime_are_thawed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freezer, "THAW_WITHIN_S", 0.1)
    controls = [world.add(name, frozen=True, unknown=False) for name in ("app", "side")]
    world.node.runtime.hold("resume_container")
    world.silent_s = SILENT_S

    await world.watch.step()
    assert [control.read_text() for control in controls] == ["1\n", "1\n"]
    await world.watch.step()

    assert [control.read_text() for control in controls] == ["0", "0"]
    assert world.node.reports.counts.thawed == 2


@pytest.mark.looptime
async def test_a_container_is_thawed_within_fifteen_seconds_of_a_hang(
    world: World,
) -> None:
    """The watch as the agent runs it, beside the watch of the runtime, on the loop's clock."""
    control = world.add("app", frozen=True, unknown=False)
    asked = RuntimeWatch(world.node.runtime)
    monitor = world.monitor(asked.silent_s)
    periodic = Periodic("frozen", monitor.step, interval_s=freezer.INTERVAL_S)
    tasks = [loops.spawn(asked.run(), name="ask"), loops.spawn(periodic.run(), name="frozen")]
    await asyncio.sleep(20.1)  # it has just answered
    assert control.read_text() == "1\n"
    for call in ("conditions", "version", "resume_container"):
        world.node.runtime.hold(call)
    async with asyncio.timeout(15):
        while control.read_text() != "0":
            await asyncio.sleep(0.1)
    await loops.cancel(*tasks)


async def test_an_unreadable_container_keeps_no_other_frozen(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broken, control = world.add("app", frozen=True), world.add("side", frozen=True)
    broken.unlink()
    broken.mkdir()

    await world.watch.step()
    await world.watch.step()

    assert control.read_text() == "0"
    assert caplog.text.count("cannot see whether container") == 1


async def test_a_failed_thaw_is_retried_later_and_not_at_every_check(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    async def ensure_running(container_id: str, **_: object) -> bool:
        tried.append(container_id)
        return False

    control = world.add("app", frozen=True)
    monkeypatch.setattr(world.thawer, "ensure_running", ensure_running)
    for _ in range(CHECKS):
        await world.watch.step()
    assert len(tried) == 1
    for _ in range(CHECKS_BEFORE_RETRY - 1):
        await world.watch.step()
    assert len(tried) == 1
    monkeypatch.undo()
    await world.watch.step()
    assert control.read_text() == "0"
