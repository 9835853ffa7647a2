"""When a worker works: not while nothing about its pod changes."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.actions import Plan
from nodeagent.pods.decide import plan
from nodeagent.pods.volumes.volumes import VolumeStore
from nodeagent.pods.worker.worker import PodWorker
from nodeagent.runtime.base import RuntimeUnavailable
from orch.component.process import loops
from orch.wire.records.pods import Pod
from tests import scaling
from tests.fakes.mounts import FakeMounts
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime


async def test_a_pod_at_rest_is_not_looked_at(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(pod("a", "b"))
    await world.until(lambda: world.status().status.phase == "Running")
    await asyncio.sleep(5)
    looked: list[str] = []
    real = plan.next_step

    def counted(pod: Pod, *arguments: Any) -> Plan:
        looked.append(pod.metadata.name)
        return real(pod, *arguments)

    monkeypatch.setattr(plan, "next_step", counted)
    await asyncio.sleep(300)
    assert looked == []
    world.runtime.exit(world.made("a").detail.container.id)
    await world.until(lambda: bool(looked))


async def test_a_container_that_starts_again_is_logged_with_its_end(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await world.start(pod("a"))
    await world.until(lambda: "a" in world.running())
    world.runtime.exit(world.running()["a"], 3)
    await world.until(lambda: "again" in caplog.text)
    assert "started container a again: it had ended with 3 (Error)" in caplog.text


async def test_a_runtime_that_lists_and_takes_no_call_is_not_asked_without_end(
    world: PodWorld,
) -> None:
    world.runtime.fail("run_sandbox", RuntimeUnavailable("run_sandbox", "connection reset"))
    await world.start(pod("a"))
    await asyncio.sleep(300)
    asked = len(world.runtime.called("run_sandbox"))
    assert 5 < asked < 20
    assert world.waiting("a") == "ContainerCreating", "it is the runtime's fault, not the pod's"
    world.runtime.heal("run_sandbox")
    await world.until(lambda: "a" in world.running(), within_s=40)


BEGINNINGS = ("run_sandbox", "create_container", "start_container")


@pytest.mark.parametrize("operation", BEGINNINGS)
async def test_a_pod_deleted_in_the_midst_of_a_call_is_removed_after_that_call(
    world: PodWorld, operation: str
) -> None:
    held = world.runtime.hold(operation)
    await world.start(pod("a"))
    await held.reached.wait()
    before = len(world.runtime.calls)
    world.source.set()
    await asyncio.sleep(5)
    changes = {"stop_sandbox", "remove_sandbox", "remove_container", "stop_container"}
    assert not changes & {call.operation for call in world.runtime.calls[before:]}
    assert not held.ended.is_set(), "the runtime would forget what it is making"
    held.release()
    await world.until(lambda: not world.traces())


@pytest.mark.parametrize("operation", BEGINNINGS)
async def test_an_agent_told_to_stop_lets_the_runtime_finish_a_start(
    world: PodWorld, operation: str
) -> None:
    held = world.runtime.hold(operation)
    await world.start(pod("a", restartPolicy="Never"))
    await held.reached.wait()
    stopping = loops.spawn(world.stop(), name="stopping")
    await asyncio.sleep(1)
    assert not held.ended.is_set()
    held.release()
    await stopping
    heir = world.successor()
    await heir.start(pod("a", restartPolicy="Never"))
    await heir.until(lambda: heir.status().status.phase == "Running")
    assert len(world.runtime.containers) == len(world.runtime.sandboxes) == 1


class SlowMounts(FakeMounts):
    """Mounts once the test says so, as a helper may that is being started."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.released = threading.Event(), threading.Event()

    def tmpfs(self, place: Path, size_bytes: int | None) -> None:
        self.began.set()
        self.released.wait(30)


@pytest.mark.looptime(False)
async def test_a_pod_deleted_while_its_volumes_are_made_leaves_nothing(world: PodWorld) -> None:
    slow = SlowMounts()
    world.services.volumes = VolumeStore(world.settings.root_dir, slow)
    volumes = [{"name": "v1", "emptyDir": {"medium": "Memory"}}, {"name": "v2", "emptyDir": {}}]
    await world.start(pod("a", volumes=volumes))
    await asyncio.to_thread(slow.began.wait, 30)
    world.source.set()
    await asyncio.sleep(0.5)
    slow.released.set()
    await world.until(lambda: not world.registry.views() and not world.traces())
    await asyncio.sleep(0.2)
    assert world.traces() == []


async def test_an_agent_told_to_stop_does_not_wait_for_ever(world: PodWorld) -> None:
    held = world.runtime.hold("start_container")
    await world.start(pod("a"))
    await held.reached.wait()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await world.stop()
    assert 5 < loop.time() - began_s < 15
    held.release()


async def test_a_shorter_grace_period_does_not_wait_for_the_longer_one(world: PodWorld) -> None:
    await world.start(pod("a", terminationGracePeriodSeconds=3600))
    await world.until(lambda: "a" in world.running())
    held = world.runtime.hold("stop_container")
    world.source.set(pod("a", metadata={"deletionTimestamp": "2026-01-31T12:00:00Z"}))
    await held.reached.wait()
    assert world.workers.evict(UID, "the disk is full")
    await world.until(lambda: not world.traces())
    assert not held.ended.is_set()
    held.release()


async def test_a_pod_fails_when_its_deadline_has_passed(world: PodWorld) -> None:
    await world.start(pod("a", activeDeadlineSeconds=30, terminationGracePeriodSeconds=7))
    await world.until(lambda: world.status().status.phase == "Running")
    await asyncio.sleep(20)
    assert world.status().status.phase == "Running"
    await world.stop()
    heir = world.successor()  # another agent counts on
    await heir.start(*heir.source.given)
    await heir.until(lambda: heir.status().status.phase == "Failed", within_s=12)
    status = heir.status().status
    assert status.reason == "DeadlineExceeded"
    assert status.message == "Pod was active on the node longer than the specified deadline"
    assert "DisruptionTarget" not in {c.type for c in status.conditions or ()}
    assert heir.reasons().count("DeadlineExceeded") == 1
    assert heir.running() == {}


async def test_a_deadline_holds_for_a_pod_that_never_comes_to_run(world: PodWorld) -> None:
    held = world.runtime.hold("pull_image")
    container = container_data("a", image="example.com/never:1")
    await world.start(pod(container, activeDeadlineSeconds=30))
    await held.reached.wait()
    await world.until(lambda: world.status().status.phase == "Failed", within_s=40)
    assert world.status().status.reason == "DeadlineExceeded"
    held.release()


async def test_a_deadline_that_passed_after_the_end_of_a_pod_changes_nothing(
    world: PodWorld,
) -> None:
    await world.start(pod("a", restartPolicy="Never"))
    await world.until(lambda: "a" in world.running())
    world.runtime.exit(world.running()["a"], 0)
    await world.until(lambda: world.status().status.phase == "Succeeded")
    await world.stop()
    heir = world.successor()
    done = {"phase": "Succeeded", "startTime": "2026-01-31T11:00:00Z"}
    await heir.start(pod("a", activeDeadlineSeconds=30, restartPolicy="Never", status=done))
    await asyncio.sleep(60)
    assert heir.status().status.phase == "Succeeded"
    assert "DeadlineExceeded" not in heir.reasons()


async def test_a_change_of_a_pod_costs_each_container_one_look(world: PodWorld) -> None:
    """A tenant may change a label of a pod of a thousand all the time."""

    def taking_over(count: int) -> Callable[[], object]:
        names = [f"c{number}" for number in range(count)]
        before, after = pod(*names), pod(*names, metadata={"labels": {"changed": "yes"}})
        worker = PodWorker(UID, before, world.services, 0.0)
        return lambda: (worker.update(after), worker.update(before))

    assert scaling.growth(taking_over, 200) < scaling.LINEAR


async def test_a_step_that_fails_leaves_no_garbage_of_its_pod(world: PodWorld) -> None:
    """Each failure kept all of the pod until a collection, which then took half a second."""
    gc.disable()
    try:
        await world.start(pod(container_data("app", image="localhost/none:1")))
        await world.until(lambda: world.waiting() == "ErrImagePull")
        former = weakref.ref(world.registry.desired(UID))
        world.source.set(pod(container_data("app", image="localhost/none:2")))
        await asyncio.sleep(30)
        assert former() is None
    finally:
        gc.enable()
