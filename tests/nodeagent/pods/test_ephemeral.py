"""Ephemeral containers: added to a pod that runs, started once, never again."""

from __future__ import annotations

import asyncio

import pytest

from orch.wire.records.pods import ContainerState, Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime

DEBUG = container_data("debug")


def debugged(**spec: object) -> Pod:
    return pod(container_data("app"), ephemeralContainers=[DEBUG], **spec)


def debug_state(world: PodWorld) -> ContainerState | None:
    statuses = world.status().status.ephemeralContainerStatuses or []
    return next((status.state for status in statuses if status.name == "debug"), None)


async def test_one_added_to_a_running_pod_starts_and_touches_no_other(world: PodWorld) -> None:
    await world.start(pod(container_data("app")))
    await world.until(lambda: "app" in world.running())
    before = world.running()
    world.source.set(debugged())
    await world.until(lambda: bool((state := debug_state(world)) and state.running))
    assert world.running()["app"] == before["app"]
    assert world.counts.started_containers["ephemeral_container"] == 1


async def test_one_with_a_target_sees_its_processes(world: PodWorld) -> None:
    await world.start(pod(container_data("app")))
    await world.until(lambda: "app" in world.running())
    target = container_data("debug", targetContainerName="app")
    absent = container_data("lost", targetContainerName="none")
    world.source.set(pod(container_data("app"), ephemeralContainers=[absent, target]))
    await world.until(lambda: "debug" in world.running())
    assert world.made("debug").spec.pid_of == world.running()["app"]
    statuses = world.status().status.ephemeralContainerStatuses or []
    [lost] = [s.state for s in statuses if s.name == "lost"]
    assert lost and lost.waiting and lost.waiting.reason == "CreateContainerConfigError"
    assert "unable to find target container none" in (lost.waiting.message or "")


async def test_one_that_ended_is_not_started_again(world: PodWorld) -> None:
    await world.start(debugged())
    await world.until(lambda: len(world.running()) == 2)
    world.runtime.exit(world.running()["debug"], 1)
    await asyncio.sleep(600)
    assert list(world.running()) == ["app"]
    state = debug_state(world)
    assert state and state.terminated and state.terminated.exitCode == 1
    assert world.status().status.phase == "Running"


async def test_one_does_not_wait_for_init_containers_nor_keep_a_pod_from_its_end(
    world: PodWorld,
) -> None:
    await world.start(debugged(initContainers=[container_data("init")], restartPolicy="Never"))
    await world.until(lambda: {"init", "debug"} <= set(world.running()))
    world.runtime.exit(world.running()["init"])
    await world.until(lambda: "app" in world.running())
    world.runtime.exit(world.running()["app"])
    await world.until(lambda: world.status().status.phase == "Succeeded")
    await world.until(lambda: not world.running())
