"""The agent dies at every call it makes of the runtime, before it took effect and after; the next
agent goes on from what it finds.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import ClockedRuntime, PodWorld, named
from tests.fakes.retained import retained

pytestmark = pytest.mark.looptime

STARTING = ("run_sandbox", "create_container", "start_container")
STOPPING = ("stop_container", "stop_sandbox", "remove_sandbox")
VOLUMES = [{"name": "v", "emptyDir": {}}]


def wanted() -> Pod:
    mounts = [{"name": "v", "mountPath": "/v"}]
    containers = (container_data("a", volumeMounts=mounts), container_data("b"))
    return pod(*containers, initContainers=[container_data("init")], volumes=VOLUMES)


class DeadlyRuntime(ClockedRuntime):
    """`kill_at` an operation: that call hangs, with or without having taken effect."""

    def __init__(self) -> None:
        super().__init__()
        self.died = asyncio.Event()
        self.deadly: tuple[str, int, bool] | None = None  # operation, how many to let pass, effect
        self._hanging: list[asyncio.Task[Any]] = []

    def kill_at(self, operation: str, number: int, *, takes_effect: bool) -> None:
        self.died.clear()
        self.deadly = (operation, number, takes_effect)
        if takes_effect:
            original = getattr(self, operation)

            async def lose_answer(*arguments: Any, **named: Any) -> Any:
                result = await original(*arguments, **named)
                if self._is_deadly(operation):
                    await self._hang()
                return result

            setattr(self, operation, lose_answer)

    async def begin(self, operation: str, subject: str = "") -> None:
        if self.deadly and not self.deadly[2] and self._is_deadly(operation):
            await self._hang()
        await super().begin(operation, subject)

    def heal_all(self) -> None:
        self.deadly = None
        for task in self._hanging:
            task.cancel()
        for operation in (*STARTING, *STOPPING):
            self.__dict__.pop(operation, None)

    def _is_deadly(self, operation: str) -> bool:
        if self.deadly is None or self.deadly[0] != operation:
            return False
        name, left, effect = self.deadly
        self.deadly = (name, left - 1, effect)
        return left == 0

    async def _hang(self) -> None:
        if task := asyncio.current_task():
            self._hanging.append(task)
        self.died.set()
        await asyncio.Event().wait()


async def finish_init(world: PodWorld) -> None:
    """Let the init container succeed whenever it runs."""
    runtime = world.runtime
    for _ in range(100):
        for key, container in list(runtime.containers.items()):
            if container.spec.name == "init" and container.state.value == "running":
                runtime.exit(key)
        if set(world.running()) == {"a", "b"}:
            return
        await asyncio.sleep(0.5)


async def settled(world: PodWorld) -> None:
    await finish_init(world)
    await world.until(lambda: set(world.running()) == {"a", "b"}, within_s=60)
    await asyncio.sleep(5)
    runtime = world.runtime
    assert len([s for s in runtime.sandboxes.values() if s.row.state.value == "ready"]) == 1
    running = [c.spec.name for c in runtime.containers.values() if c.state.value == "running"]
    assert sorted(running) == ["a", "b"], "each container runs exactly once"
    assert world.status().status.phase == "Running"


CALLS = [("run_sandbox", 0), *((call, n) for call in STARTING[1:] for n in range(3))]


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize(("operation", "number"), CALLS)
async def test_a_start_broken_off_is_finished_by_the_next_agent(
    tmp_path: Path, operation: str, number: int, takes_effect: bool
) -> None:
    runtime = DeadlyRuntime()
    world = PodWorld(tmp_path, runtime)
    runtime.kill_at(operation, number, takes_effect=takes_effect)
    await world.start(wanted())
    while not runtime.died.is_set():
        for key, container in list(runtime.containers.items()):
            if container.spec.name == "init" and container.state.value == "running":
                runtime.exit(key)
        await asyncio.sleep(0.1)
    await world.stop()
    runtime.heal_all()
    heir = world.successor()
    await heir.start(wanted())
    await settled(heir)
    attempts = [c.spec.attempt for c in runtime.containers.values()]
    assert attempts == [0, 0, 0], "nothing was restarted"
    heir.source.set()
    await heir.until(lambda: not heir.traces(), within_s=60)
    await heir.stop()


async def heir_of_a_removal(tmp_path: Path, operation: str, *, takes_effect: bool) -> PodWorld:
    """The agent after one that died in the first such call while it removed its pod."""
    runtime = DeadlyRuntime()
    world = PodWorld(tmp_path, runtime)
    await world.start(wanted())
    await settled(world)
    runtime.kill_at(operation, 0, takes_effect=takes_effect)
    world.source.set()
    await asyncio.wait_for(runtime.died.wait(), 30)
    await world.stop()
    runtime.heal_all()
    return world.successor()


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("operation", STOPPING)
async def test_a_removal_broken_off_is_finished_by_the_next_agent(
    tmp_path: Path, operation: str, takes_effect: bool
) -> None:
    heir = await heir_of_a_removal(tmp_path, operation, takes_effect=takes_effect)
    await heir.start()
    await heir.until(lambda: not heir.traces(), within_s=60)
    await heir.stop()


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("operation", STOPPING)
async def test_a_pod_wanted_again_after_a_broken_off_removal_runs(
    tmp_path: Path, operation: str, takes_effect: bool
) -> None:
    heir = await heir_of_a_removal(tmp_path, operation, takes_effect=takes_effect)
    await heir.start(wanted())
    await settled(heir)
    heir.source.set()
    await heir.until(lambda: not heir.traces(), within_s=60)
    await heir.stop()


# What the agent does on the host between its calls: part of the services, method, which time.
HOST_STEPS = [
    *(("volumes", "prepare", n) for n in range(4)),
    ("cgroups", "ensure", 0),
    *(("volumes", "bind_sub_paths", n) for n in range(2)),
    *(("messages", "mount", n) for n in range(3)),
    *(("pleg", "refresh", n) for n in range(7)),
]
HOST_REMOVALS = [
    ("volumes", "remove"),
    ("cgroups", "remove"),
    ("pleg", "refresh"),
]


def die_in(world: PodWorld, part: str, method: str, number: int, *, done: bool) -> asyncio.Event:
    """The agent's `number`th such step hangs, before it began or after it is done."""
    owner = getattr(world.services, part)
    original = getattr(owner, method)
    died = asyncio.Event()
    left = number

    async def deadly(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        result = await original(*arguments, **named) if done or left >= 0 else None
        if left < 0:
            died.set()
            await asyncio.Event().wait()
        return result

    setattr(owner, method, deadly)
    return died


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(("part", "method", "number"), HOST_STEPS)
async def test_a_start_broken_off_on_the_host_is_finished_by_the_next_agent(
    tmp_path: Path, part: str, method: str, number: int, done: bool
) -> None:
    world = PodWorld(tmp_path, DeadlyRuntime())
    died = die_in(world, part, method, number, done=done)
    await world.start(wanted())
    while not died.is_set():
        for key, container in list(world.runtime.containers.items()):
            if container.spec.name == "init" and container.state.value == "running":
                world.runtime.exit(key)
        await asyncio.sleep(0.1)
    await world.stop()
    heir = world.successor()
    await heir.start(wanted())
    await settled(heir)
    heir.source.set()
    await heir.until(lambda: not heir.traces(), within_s=60)
    await heir.stop()


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(("part", "method"), HOST_REMOVALS)
async def test_a_removal_broken_off_on_the_host_is_finished_by_the_next_agent(
    tmp_path: Path, part: str, method: str, done: bool
) -> None:
    world = PodWorld(tmp_path, DeadlyRuntime())
    await world.start(wanted())
    await settled(world)
    died = die_in(world, part, method, 0, done=done)
    world.source.set()
    await asyncio.wait_for(died.wait(), 60)
    await world.stop()
    heir = world.successor()
    await heir.start()
    await heir.until(lambda: not heir.traces(), within_s=60)
    await heir.stop()


BEGINNINGS = [
    ("volumes", "prepare"),
    ("cgroups", "ensure"),
    ("runtime", "run_sandbox"),
    ("messages", "mount"),
    ("runtime", "create_container"),
]


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(("part", "method"), BEGINNINGS)
async def test_a_start_broken_off_of_a_pod_nobody_wants_any_more_leaves_nothing(
    tmp_path: Path, part: str, method: str, done: bool
) -> None:
    world = PodWorld(tmp_path, DeadlyRuntime())
    died = die_in(world, part, method, 0, done=done)
    await world.start(pod())
    await asyncio.wait_for(died.wait(), 60)
    await world.stop()
    for operation in ("run_sandbox", "create_container"):
        world.runtime.__dict__.pop(operation, None)
    heir = world.successor()
    await heir.start()
    await heir.until(lambda: not heir.traces(), within_s=60)
    await heir.stop()


@pytest.mark.slow
async def test_hundreds_of_churned_pods_leave_nothing(world: PodWorld) -> None:
    await world.start()
    used: set[str] = set()
    for round_ in range(15):
        uids = [f"uid-{round_}-{n}" for n in range(20)]
        world.source.set(*(named(pod(), f"web{n}", uid) for n, uid in enumerate(uids)))
        await world.until(lambda: len(world.running()) >= 1)
        await asyncio.sleep(1)
        used.update(uids, world.runtime.sandboxes, world.runtime.containers)
    assert retained(world.workers, used)
    world.source.set()
    await world.until(lambda: not world.traces(), within_s=120)
    await asyncio.sleep(15)
    assert retained(world.workers, used) == set()
