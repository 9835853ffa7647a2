"""Lifecycle hooks and termination messages, on a runtime in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodeagent.runtime.base import ExecResult, Mount, RuntimeUnavailable
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime


class Hooks:
    """Records the commands run in containers; `bad` ones fail."""

    def __init__(self, world: PodWorld) -> None:
        self.ran: list[str] = []
        self.bad: set[str] = set()
        world.runtime.on_exec = self._run

    def _run(self, _container_id: str, command: Sequence[str]) -> ExecResult:
        self.ran.append(command[0])
        return ExecResult(int(command[0] in self.bad), b"", b"broken")


@pytest.fixture
def hooks(world: PodWorld) -> Hooks:
    return Hooks(world)


def hooked(grace_s: int = 30, **handlers: dict[str, Any]) -> Pod:
    container = container_data("app", lifecycle=handlers)
    return pod(container, terminationGracePeriodSeconds=grace_s)


def command(name: str) -> dict[str, Any]:
    return {"exec": {"command": [name]}}


async def test_hooks_run_after_the_start_and_before_the_stop(world: PodWorld, hooks: Hooks) -> None:
    await world.start(hooked(postStart=command("post"), preStop=command("pre")))
    await world.until(lambda: world.status().status.phase == "Running")
    assert hooks.ran == ["post"]
    world.source.set()
    await world.until(lambda: not world.traces())
    assert hooks.ran == ["post", "pre"]
    order = [call.operation for call in world.runtime.calls]
    assert order.index("stop_container") > max(
        n for n, operation in enumerate(order) if operation == "exec_sync"
    )


async def test_a_hook_that_a_runtime_did_not_answer_failed_for_that(
    world: PodWorld, hooks: Hooks
) -> None:
    await world.start(hooked(preStop=command("pre")))
    await world.until(lambda: world.status().status.phase == "Running")
    world.runtime.fail("exec_sync", RuntimeUnavailable("exec_sync", "connection refused"))
    world.source.set()
    await world.until(lambda: not world.traces())
    text = "PreStopHook failed: the container runtime gave no answer"
    assert ("web", "FailedPreStopHook", text) in world.events


async def test_a_failed_pre_stop_hook_is_told_and_holds_nothing_up(
    world: PodWorld, hooks: Hooks
) -> None:
    hooks.bad.add("pre")
    await world.start(hooked(preStop=command("pre")))
    await world.until(lambda: "app" in world.running())
    world.source.set()
    await world.until(lambda: not world.traces())
    assert ("web", "FailedPreStopHook", "PreStopHook failed: broken") in world.events


async def test_a_container_whose_post_start_hook_fails_is_stopped_and_tried_again(
    world: PodWorld, hooks: Hooks
) -> None:
    hooks.bad.add("post")
    await world.start(hooked(postStart=command("post")))
    await world.until(lambda: world.waiting() == "PostStartHookError")
    assert ("web", "FailedPostStartHook", "PostStartHook failed: broken") in world.events
    hooks.bad.clear()
    await world.until(lambda: "app" in world.running(), within_s=60)


async def test_a_pre_stop_hook_uses_up_the_grace_period(world: PodWorld) -> None:
    given: list[int] = []
    stop = world.runtime.stop_container

    async def noting(container_id: str, *, timeout_s: int) -> None:
        given.append(timeout_s)
        await stop(container_id, timeout_s=timeout_s)

    world.runtime.stop_container = noting  # type: ignore[method-assign]
    for grace_s, sleep_s in ((30, 12), (30, 29), (5, 100)):
        await world.start(hooked(grace_s, preStop={"sleep": {"seconds": sleep_s}}))
        await world.until(lambda: "app" in world.running())
        began_s = asyncio.get_running_loop().time()
        world.source.set()
        await world.until(lambda: not world.traces(), within_s=60)
        assert asyncio.get_running_loop().time() - began_s < min(sleep_s, grace_s) + 10
        await world.stop()
    assert given == [18, 2, 2]


async def test_a_pod_to_go_at_once_runs_no_hook(world: PodWorld, hooks: Hooks) -> None:
    await world.start(hooked(0, preStop=command("pre")))
    await world.until(lambda: "app" in world.running())
    world.source.set()
    await world.until(lambda: not world.traces())
    assert hooks.ran == []


def message_mount(world: PodWorld) -> Mount:
    return next(m for m in world.made("app").spec.mounts if "message" in m.host_path)


async def test_what_a_container_says_at_its_end_is_shown(world: PodWorld) -> None:
    await world.start(pod(container_data("app", terminationMessagePath="/tmp/last")))
    await world.until(lambda: "app" in world.running())
    mount = message_mount(world)
    assert mount.container_path == "/tmp/last"
    Path(mount.host_path).write_text("out of luck" + "x" * 5000)
    world.runtime.exit(world.running()["app"], 1)
    await world.until(lambda: world.made("app").spec.attempt == 1)
    await world.until(lambda: world.state().running is not None)
    [status] = world.status().status.containerStatuses or []
    assert status.lastState and status.lastState.terminated
    message = status.lastState.terminated.message or ""
    assert message.startswith("out of luckxxx")
    assert len(message) == 4096
    assert Path(message_mount(world).host_path).read_text() == "", "each instance has its own"


async def test_a_failed_container_that_says_nothing_is_quoted_from_its_log(
    world: PodWorld,
) -> None:
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await world.start(pod(container_data("app", **policy), restartPolicy="Never"))
    await world.until(lambda: "app" in world.running())
    log = Path(world.made("app").detail.log_path)
    log.write_text("".join(f"2026-01-31T12:00:00Z stderr F line {n}\n" for n in range(200)))
    world.runtime.exit(world.running()["app"], 1)
    await world.until(lambda: world.state().terminated is not None)
    ended = world.state().terminated
    assert ended and ended.message
    assert ended.message.splitlines()[0] == "line 120"
    assert ended.message.splitlines()[-1] == "line 199"


async def test_a_mount_of_the_pods_own_at_that_path_wins(world: PodWorld) -> None:
    mounts = [{"name": "v", "mountPath": "/dev/termination-log"}]
    volumes = [{"name": "v", "emptyDir": {}}]
    await world.start(pod(container_data("app", volumeMounts=mounts), volumes=volumes))
    await world.until(lambda: "app" in world.running())
    paths = [mount.container_path for mount in world.made("app").spec.mounts]
    assert paths == ["/dev/termination-log", "/etc/hosts"]
