"""A shutdown of the machine, from its announcement to the closed inhibitor."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nodeagent.node.rules.ending_order import Group
from nodeagent.node.shutdown import ShutdownGuard
from nodeagent.node.status_loop import OwnNode
from orch.component.process import loops
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod
from tests.fakes.pods import pod
from tests.fakes.podworld import FakeSource, PodWorld, named

pytestmark = pytest.mark.looptime

SYSTEM = 2_000_000_000


class FakeManager:
    """A login manager that grants `delay_s`, after `raise_delay` what it `will_grant_s`."""

    def __init__(self, delay_s: float = 30, will_grant_s: float | None = None) -> None:
        self.signals: asyncio.Queue[bool] = asyncio.Queue()
        self.delay_s = delay_s
        self.will_grant_s = will_grant_s
        self.gone = asyncio.Event()
        self.dialled = 0
        self.asked_s: list[int] = []
        self.held: list[int] = []  # reading ends of the inhibitors given out

    async def connect(self) -> None:
        self.dialled += 1
        self.gone = asyncio.Event()

    async def longest_delay_s(self) -> float:
        return self.delay_s

    async def raise_delay(self, seconds: int) -> None:
        self.asked_s.append(seconds)
        self.delay_s = seconds if self.will_grant_s is None else self.will_grant_s

    async def inhibit(self) -> int:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self.held.append(reading)
        return writing

    async def lost(self) -> None:
        await self.gone.wait()

    def close(self) -> None:
        return

    def released(self) -> bool:
        """Whether the last inhibitor was closed: its pipe has ended."""
        try:
            return os.read(self.held[-1], 1) == b""
        except BlockingIOError:
            return False


class Changes(asyncio.Event):
    """Notes the guard's problems whenever the node changed."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def set(self) -> None:
        self._scene.changes.append(self._scene.guard.problems())


class FakeNode(OwnNode):
    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.changed = Changes(scene)
        self._scene = scene

    def warn(self, reason: str, message: str) -> None:
        self._scene.notes.append(reason)


class Scene:
    def __init__(self, directory: Path) -> None:
        self.world = PodWorld(directory)
        self.world.source = FakeSource(name="api")
        self.world.use(self.world.source)
        self.manager = FakeManager()
        self.notes: list[str] = []
        self.changes: list[tuple[str, ...]] = []
        self.node = FakeNode(self)
        self.guard = self.another([Group(0, 20), Group(SYSTEM, 10)])
        self.task: asyncio.Task[None] | None = None

    def another(self, groups: list[Group]) -> ShutdownGuard:
        return ShutdownGuard(
            groups,
            self.world.registry,
            self.world.workers,
            self.node,
            root_dir=self.world.settings.root_dir,
            manager=lambda: self.manager,
        )

    async def start(self, *pods: Pod) -> None:
        (self.world.directory / "root").mkdir(exist_ok=True)
        await self.world.start(*pods)
        await self.world.until(lambda: len(self.world.runtime.containers) == len(pods))
        self.task = loops.spawn(self.guard.run(), name="guard")
        await self.world.until(lambda: bool(self.manager.held))

    def phases(self) -> dict[str, str | None]:
        return {p.metadata.name: p.status.phase for p in self.world.registry.pods()}


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    if scene.task:
        await loops.cancel(scene.task)
    await scene.world.stop()
    for reading in scene.manager.held:
        os.close(reading)


def prior(name: str, priority: int, **spec: object) -> Pod:
    return named(pod(priority=priority, **spec), name, name)


async def test_pods_end_group_by_group_and_then_the_machine_may_go(scene: Scene) -> None:
    await scene.start(prior("plain", 0), prior("system", SYSTEM))
    hold = scene.world.runtime.hold("stop_container")
    scene.manager.signals.put_nowait(True)
    await hold.reached.wait()
    assert scene.guard.problems() == ("node is shutting down",)
    assert scene.changes == [("node is shutting down",)]
    assert scene.notes == ["NodeShutdown"]
    assert not scene.manager.released()
    assert "system" in {p.metadata.name for p in scene.world.registry.pods()}
    assert scene.phases()["system"] == "Running", "its group comes later"
    hold.release()
    await scene.world.until(scene.manager.released)
    await scene.world.until(lambda: set(scene.phases().values()) == {"Failed"})
    status = scene.world.status("plain").status
    assert status.reason == "Terminated"
    assert status.message == "Pod was terminated in response to imminent node shutdown."
    state = json.loads(
        (Path(scene.world.settings.root_dir) / "graceful_node_shutdown_state").read_text()
    )
    assert state["endTime"] >= state["startTime"] > 0
    heir = scene.another([Group(0, 20)])
    assert (heir.began_s, heir.ended_s) == (state["startTime"], state["endTime"])


async def test_a_pod_that_does_not_end_keeps_the_machine_no_longer_than_its_group(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.start(prior("stuck", 0))
    held = scene.world.runtime.hold("stop_container")
    scene.manager.signals.put_nowait(True)
    began_s = asyncio.get_running_loop().time()
    await scene.world.until(scene.manager.released, within_s=60)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(20, abs=1)
    assert "pods that did not end within 20 s: default/stuck" in caplog.messages
    held.release()


async def test_no_pod_is_taken_meanwhile_and_a_shutdown_can_be_called_off(scene: Scene) -> None:
    scene.world.node = Node.from_wire({"status": {"allocatable": {"pods": "110"}}})
    await scene.start()
    scene.manager.signals.put_nowait(True)
    await scene.world.until(scene.manager.released)
    scene.world.source.set(prior("late", 0))
    await scene.world.until(lambda: scene.phases() == {"late": "Failed"})
    assert scene.world.status("late").status.reason == "NodeShutdown"
    scene.manager.signals.put_nowait(False)
    await scene.world.until(lambda: len(scene.manager.held) == 2)
    assert scene.guard.problems() == ()
    scene.world.source.set(prior("later", 0))
    await scene.world.until(lambda: scene.phases() == {"later": "Running"})


async def test_a_bus_that_is_lost_is_dialled_again_and_each_loss_is_said(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nodeagent.node.shutdown")
    await scene.start()
    for dialled in (2, 3):
        scene.manager.gone.set()
        await scene.world.until(lambda dialled=dialled: scene.manager.dialled == dialled)
        await scene.world.until(lambda dialled=dialled: len(scene.manager.held) == dialled)
    said = [one.getMessage() for one in caplog.records if one.name == "nodeagent.node.shutdown"]
    lost = (
        "cannot end pods before a shutdown of this machine: "
        "the connection to the system bus is lost"
    )
    assert said == [lost, "a shutdown of this machine waits for its pods again (after 5.0 s)"] * 2


async def test_a_short_delay_is_raised(scene: Scene) -> None:
    scene.manager.delay_s = 5
    await scene.start()
    assert scene.manager.asked_s == [30]


async def test_a_delay_that_stays_too_short_is_one_error_that_says_what_to_set(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.manager.delay_s = scene.manager.will_grant_s = 5
    scene.task = loops.spawn(scene.guard.run(), name="guard")
    await asyncio.sleep(60)
    assert scene.manager.held == []
    [record] = [one for one in caplog.records if one.name == "nodeagent.node.shutdown"]
    assert record.getMessage() == (
        "cannot end pods before a shutdown of this machine: the login manager delays "
        "a shutdown for at most 5 s; set InhibitDelayMaxSec=30 in logind.conf"
    )
