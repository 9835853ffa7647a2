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


@pytest.mark.slow
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


async def test_a_pre_stop_command_that_takes_all_the_grace_runs_until_its_container_has_ended(
    world: PodWorld,
) -> None:
    loop, told = asyncio.get_running_loop(), dict[str, float]()
    stop = world.runtime.stop_container

    async def running(_container_id: str, _command: Sequence[str], *, timeout_s: float) -> Any:
        try:
            await asyncio.sleep(timeout_s)
        finally:
            told["hook ended"] = loop.time()

    async def stopping(container_id: str, *, timeout_s: int) -> None:
        told["stop"], told["with"] = loop.time(), timeout_s
        await asyncio.sleep(timeout_s)
        await stop(container_id, timeout_s=timeout_s)
        told["stopped"] = loop.time()

    world.runtime.exec_sync = running  # type: ignore[method-assign]
    world.runtime.stop_container = stopping  # type: ignore[method-assign]
    await world.start(hooked(5, preStop=command("pre")))
    await world.until(lambda: "app" in world.running())
    began_s = loop.time()
    world.source.set()
    await world.until(lambda: not world.traces(), within_s=60)
    assert (round(told["stop"] - began_s), told["with"]) == (5, 2)
    assert told["hook ended"] >= told["stopped"] >= told["stop"] + 2
    text = "PreStopHook failed: it did not end within the grace period of 5 s"
    assert ("web", "FailedPreStopHook", text) in world.events


class Stops:
    """When each container was told to stop, by name, and with how much grace."""

    def __init__(self, world: PodWorld, takes_s: dict[str, float]) -> None:
        self.told: list[tuple[str, float, int]] = []
        stop, loop = world.runtime.stop_container, asyncio.get_running_loop()

        async def stopping(container_id: str, *, timeout_s: int) -> None:
            name = world.runtime.containers[container_id].spec.name
            self.told.append((name, round(loop.time() - self.began_s), timeout_s))
            await asyncio.sleep(min(takes_s.get(name, 0), timeout_s))
            await stop(container_id, timeout_s=timeout_s)

        self.began_s = 0.0
        world.runtime.stop_container = stopping  # type: ignore[method-assign]


def with_sidecars(grace_s: int, **fields: Any) -> Pod:
    sidecars = [container_data(name, restartPolicy="Always") for name in ("s1", "s2")]
    sidecars[0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 3}}}
    return pod("a", "b", initContainers=sidecars, terminationGracePeriodSeconds=grace_s, **fields)


@pytest.mark.parametrize(
    ("grace_s", "takes_s", "told"),
    [
        # seconds of work at the end -> who is told after how many seconds, with how much grace
        (
            30,
            {"a": 4, "b": 10, "s2": 5},
            [("a", 0, 30), ("b", 0, 30), ("s2", 10, 20), ("s1", 15, 15)],
        ),
        (30, {}, [("a", 0, 30), ("b", 0, 30), ("s2", 0, 30), ("s1", 3, 27)]),
        (8, {"a": 100}, [("a", 0, 8), ("b", 0, 8), ("s1", 8, 2), ("s2", 8, 2)]),
        (1, {"a": 100}, [("a", 0, 1), ("b", 0, 1), ("s1", 1, 1), ("s2", 1, 1)]),
    ],
)
async def test_sidecars_stop_after_the_main_containers_the_last_of_them_first(
    world: PodWorld, grace_s: int, takes_s: dict[str, float], told: list[tuple[str, int, int]]
) -> None:
    await world.start(with_sidecars(grace_s))
    await world.until(lambda: world.status().status.phase == "Running")
    stops = Stops(world, takes_s)
    stops.began_s = asyncio.get_running_loop().time()
    world.source.set()
    await world.until(lambda: not world.traces(), within_s=60)
    assert sorted(stops.told, key=lambda row: (row[1], row[0])) == sorted(
        told, key=lambda row: (row[1], row[0])
    )


async def test_a_pod_has_ended_when_its_last_sidecar_has(world: PodWorld) -> None:
    await world.start(with_sidecars(30, restartPolicy="Never"))
    await world.until(lambda: world.status().status.phase == "Running")
    stops = Stops(world, {"s1": 5, "s2": 5})
    for name in ("a", "b"):
        world.runtime.exit(world.running()[name])
    await world.until(lambda: [name for name, *_ in stops.told] == ["s2", "s1"])
    assert world.status().status.phase == "Running"
    await world.until(lambda: world.status().status.phase == "Succeeded")


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
