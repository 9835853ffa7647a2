"""Resizes of running pods, as a user of the node sees them; on a runtime in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nodeagent.pods.spec import spec
from nodeagent.runtime.base import RuntimeCallError
from orch.wire import names
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod, PodCondition
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld, named

pytestmark = pytest.mark.looptime

Sized = dict[str, Any]


def sized(cpu: str = "100m", memory: str = "64Mi", limits: Sized | None = None) -> Sized:
    parts: Sized = {"requests": {"cpu": cpu, "memory": memory}}
    return {**parts, "limits": limits} if limits else parts


def wanted(resources: Sized, generation: int = 1, **fields: Any) -> Pod:
    spec = {name: fields.pop(name) for name in ("restartPolicy", "priority") if name in fields}
    made = pod(container_data("app", resources=resources, **fields), **spec)
    metadata = made.metadata.model_copy(update={"generation": generation})
    return made.model_copy(update={"metadata": metadata})


def resized(old: Pod, resources: Sized) -> Pod:
    """The pod as the API has it after a resize."""
    container = old.spec.containers[0].to_wire() | {"resources": resources}
    data = old.to_wire()
    data["spec"]["containers"] = [container]
    data["metadata"]["generation"] = (old.metadata.generation or 0) + 1
    return Pod.from_wire(data)


def node(cpu: str = "1", memory: str = "1Gi") -> Node:
    return Node.from_wire({"status": {"allocatable": {"cpu": cpu, "memory": memory}}})


def conditions(world: PodWorld, name: str = "web") -> dict[str, PodCondition]:
    shown = world.status(name).status.conditions or []
    return {c.type: c for c in shown if c.type.startswith("PodResize")}


def granted(world: PodWorld, name: str = "web") -> dict[str, Any] | None:
    [status] = world.status(name).status.containerStatuses or []
    return status.allocatedResources


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> Any:
    world = PodWorld(tmp_path)
    world.node = node()
    yield world
    await world.stop()


async def start(world: PodWorld, *pods: Pod) -> None:
    await world.start(*pods)
    await world.until(lambda: all(_runs(world, p) for p in pods))


def _runs(world: PodWorld, one: Pod) -> bool:
    found = world.registry.find("default", one.metadata.name)
    return found is not None and found.status.phase == "Running"


async def test_a_running_container_gets_its_new_size_and_is_not_restarted(world: PodWorld) -> None:
    first = wanted(sized(memory="128Mi"))
    await start(world, first)
    assert world.made("app").resources.cpu_shares == 102
    limits = {"cpu": "800m", "memory": "256Mi"}
    world.source.set(resized(first, sized("500m", "128Mi", limits)))
    await world.until(lambda: "ResizeCompleted" in world.reasons())
    [made] = world.runtime.containers.values()
    told = made.resources
    assert (told.cpu_shares, told.cpu_quota_usec) == (512, 80_000)
    assert told.memory_limit_bytes == 256 << 20
    [status] = world.status().status.containerStatuses or []
    assert status.allocatedResources == {"cpu": "500m", "memory": "128Mi"}
    assert status.resources is not None
    assert status.resources.limits == limits
    assert status.restartCount == 0
    assert world.status().status.observedGeneration == 2
    assert conditions(world) == {}
    started, completed = (m for _, r, m in world.events if r.startswith("Resize"))
    assert started.startswith('Pod resize started: {"containers":[{"name":"app","resources":')
    assert completed.endswith('"generation":2}')


async def test_what_does_not_fit_waits_until_there_is_room(world: PodWorld) -> None:
    first, other = wanted(sized()), named(wanted(sized("600m")), "other", "2" * 36)
    await start(world, first, other)
    grown = resized(first, sized("700m"))
    world.source.set(grown, other)
    await world.until(lambda: "PodResizePending" in conditions(world))
    shown = conditions(world)["PodResizePending"]
    assert (shown.reason, shown.observedGeneration) == ("Deferred", 2)
    assert shown.message == (
        "Node didn't have enough resource: cpu, requested: 700, used: 600, capacity: 1000"
    )
    assert granted(world) == {"cpu": "100m", "memory": "64Mi"}
    assert world.status().spec.containers[0].resources == first.spec.containers[0].resources
    world.source.set(grown)
    await world.until(lambda: granted(world) == {"cpu": "700m", "memory": "64Mi"})
    await world.until(lambda: conditions(world) == {})
    assert world.counts.deferred_accepted_resizes == 1
    assert world.reasons().count("ResizeDeferred") == 1


async def test_what_can_never_fit_is_infeasible_and_may_be_taken_back(world: PodWorld) -> None:
    first = wanted(sized())
    await start(world, first)
    world.source.set(resized(first, sized("1001m")))
    await world.until(lambda: "PodResizePending" in conditions(world))
    shown = conditions(world)["PodResizePending"]
    assert shown.reason == "Infeasible"
    assert shown.message == (
        "Node didn't have enough capacity: cpu, requested: 1001, capacity: 1000"
    )
    world.source.set(resized(first, sized()))
    await world.until(lambda: conditions(world) == {})
    assert "ResizeStarted" not in world.reasons()


@pytest.mark.parametrize("restart_policy", ["Always", "OnFailure"])
async def test_a_container_that_asks_for_it_is_restarted_once(
    world: PodWorld, restart_policy: str
) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    first = wanted(sized(), resizePolicy=policy, restartPolicy=restart_policy)
    await start(world, first)
    world.source.set(second := resized(first, sized("200m")))
    await world.until(lambda: "ResizeCompleted" in world.reasons())
    assert len(world.runtime.containers) == 1, "a change of cpu restarts nothing"
    world.source.set(resized(second, sized("200m", "80Mi")))
    await world.until(lambda: world.made("app").spec.attempt == 1 and bool(world.running()))
    await asyncio.sleep(30)
    assert world.made("app").spec.attempt == 1
    [status] = world.status().status.containerStatuses or []
    assert (status.restartCount, granted(world)) == (1, {"cpu": "200m", "memory": "80Mi"})
    assert conditions(world) == {}
    assert ("web", "Killing", "Stopping container app: its resize requires a restart") in (
        world.events
    )


async def test_a_limit_below_what_is_used_is_an_error_until_it_is_raised(world: PodWorld) -> None:
    first = wanted(sized(memory="1Ki", limits={"cpu": "1", "memory": "512Mi"}))
    await start(world, first)
    low = sized(memory="1Ki", limits={"cpu": "1", "memory": "10Ki"})
    world.source.set(second := resized(first, low))
    await world.until(lambda: bool(_error(world)))
    assert _error(world).startswith(
        'cannot decrease memory limits: attempting to set container "app" memory limit (10240)'
        " below current usage"
    )
    assert world.made("app").resources.memory_limit_bytes == 512 << 20
    assert world.reasons().count("ResizeError") == 1
    high = sized(memory="1Ki", limits={"cpu": "1", "memory": "600Mi"})
    world.source.set(resized(second, high))
    await world.until(lambda: conditions(world) == {})
    assert world.made("app").resources.memory_limit_bytes == 600 << 20


def _error(world: PodWorld) -> str:
    shown = conditions(world).get("PodResizeInProgress")
    return (shown.message or "") if shown and shown.reason == "Error" else ""


async def test_a_runtime_that_refuses_is_asked_again(world: PodWorld) -> None:
    first = wanted(sized())
    await start(world, first)
    world.runtime.fail("update_resources", RuntimeCallError("x", "busy"), times=1)
    world.source.set(resized(first, sized("200m")))
    await world.until(lambda: "ResizeError" in world.reasons())
    await world.until(lambda: "ResizeCompleted" in world.reasons())
    assert world.made("app").resources.cpu_shares == 204


async def test_a_resize_that_fails_again_with_other_figures_is_logged_once_and_its_end(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = wanted(sized())
    await start(world, first)
    world.runtime.fail("update_resources", RuntimeCallError("x", "in use: 4096"), times=1)
    world.source.set(resized(first, sized("200m")))
    await world.until(lambda: "in use: 4096" in _error(world))
    world.runtime.fail("update_resources", RuntimeCallError("x", "in use: 8192"), times=1)
    await world.until(lambda: "in use: 8192" in _error(world))
    await world.until(lambda: "ResizeCompleted" in world.reasons())
    lines = [r.getMessage() for r in caplog.records if "resize" in r.getMessage().lower()]
    name = lines[0].split(": ")[0]
    assert [line.split(" (")[0] for line in lines[1:]] == [
        f"{name}: the resize that failed has succeeded"
    ]
    assert "ResizeError" in lines[0]
    assert "in use: 4096" in lines[0]


async def test_what_does_not_run_yet_starts_with_its_new_size(world: PodWorld) -> None:
    first = wanted(sized())
    world.runtime.fail("start_container", RuntimeCallError("x", "no"), times=1)
    await world.start(first)
    await world.until(lambda: world.waiting() == "RunContainerError")
    world.source.set(resized(first, sized("300m")))
    await world.until(lambda: bool(world.running()))
    assert world.made("app").spec.resources.cpu_shares == 307
    assert not world.runtime.called("update_resources")


@pytest.mark.slow
async def test_a_thousand_resizes_at_once_are_a_few_for_the_runtime(world: PodWorld) -> None:
    first = wanted(sized())
    await start(world, first)
    latest = first
    for number in range(1000):
        latest = resized(latest, sized(f"{100 + number % 800}m"))
        world.source.set(latest)
        await asyncio.sleep(0.001)
    cpu = latest.spec.containers[0].resources
    assert cpu and cpu.requests
    await world.until(lambda: granted(world) == cpu.requests and conditions(world) == {})
    calls = world.runtime.called("update_resources")
    assert 1 <= len(calls) <= 12
    assert world.status().status.observedGeneration == 1001


async def test_the_pod_of_an_agent_that_could_not_resize_goes_on(world: PodWorld) -> None:
    """Its containers carry a hash over their resources, too, and no size."""
    others = {"example.com/none": "0"}
    resources = {**sized(memory="128Mi"), "limits": others}
    resources["requests"] = {**resources["requests"], **others}
    first = wanted(resources)
    await start(world, first)
    await world.stop()
    for path in world.directory.glob("root/*_state"):
        path.unlink()
    for container in world.runtime.containers.values():
        former = spec.former_hash(first.spec.containers[0], None)
        row = container.detail.container
        annotations = {
            **row.annotations, names.RUNTIME_ANNOTATION_CONTAINER_HASH: former,
        }  # fmt: skip
        container.detail = replace(
            container.detail, container=replace(row, annotations=annotations)
        )
    heir = world.successor()
    heir.node = world.node
    await start(heir, first)
    await asyncio.sleep(5)
    assert not world.runtime.called("update_resources")
    latest = first
    for cpu in ("200m", "300m"):
        requests = {"cpu": cpu, "memory": "128Mi", **others}
        heir.source.set(latest := resized(latest, {"requests": requests, "limits": others}))
        await heir.until(lambda: conditions(heir) == {} and granted(heir) == _requests(latest))
    assert len(world.runtime.containers) == 1
    assert world.made("app").resources.cpu_shares == 307
    changed = latest.to_wire()
    changed["spec"]["containers"][0]["command"] = ["other"]
    heir.source.set(Pod.from_wire(changed))
    await heir.until(lambda: world.made("app").spec.attempt == 1)


def _requests(pod: Pod) -> Any:
    resources = pod.spec.containers[0].resources
    return resources and resources.requests


KILLS: dict[str, Callable[[PodWorld], tuple[Any, str]]] = {
    "granted": lambda world: (world.services.allocations, "save"),
    "told": lambda world: (world.runtime, "update_resources"),
    "remembered": lambda world: (world.services.sizes, "note"),
    "read back": lambda world: (world.services.pleg, "refresh"),
}


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", KILLS)
async def test_an_agent_killed_in_a_resize_leaves_it_to_the_next(
    world: PodWorld, point: str, done: bool
) -> None:
    first = wanted(sized())
    await start(world, first)
    owner, method = KILLS[point](world)
    original, died = getattr(owner, method), asyncio.Event()

    async def deadly(*arguments: Any, **named: Any) -> Any:
        if done:
            await original(*arguments, **named)
        died.set()
        await asyncio.Event().wait()

    setattr(owner, method, deadly)
    world.source.set(second := resized(first, sized("400m")))
    await asyncio.wait_for(died.wait(), 30)
    await world.stop()
    setattr(owner, method, original)
    heir = world.successor()
    heir.node = world.node
    await heir.start(second)
    await heir.until(lambda: granted(heir) == _requests(second) and conditions(heir) == {})
    assert len(world.runtime.containers) == 1
    assert world.made("app").resources.cpu_shares == 409
    await heir.stop()


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_an_agent_killed_in_a_restart_for_a_resize_starts_the_container_again(
    world: PodWorld, done: bool
) -> None:
    """Though it ended with 0, which is the end of it under this restart policy."""
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    first = wanted(sized(), resizePolicy=policy, restartPolicy="OnFailure")
    await start(world, first)
    original, died = world.runtime.stop_container, asyncio.Event()

    async def deadly(container_id: str, *, timeout_s: int) -> None:
        if done:
            await original(container_id, timeout_s=timeout_s)
        died.set()
        await asyncio.Event().wait()

    world.runtime.stop_container = deadly  # type: ignore[method-assign]
    world.source.set(second := resized(first, sized("400m")))
    await asyncio.wait_for(died.wait(), 30)
    await world.stop()
    world.runtime.stop_container = original  # type: ignore[method-assign]
    if not done:
        [container_id] = world.running().values()
        world.runtime.exit(container_id)
    heir = world.successor()
    heir.node = world.node
    await heir.start(second)
    await heir.until(lambda: world.made("app").spec.attempt == 1 and bool(world.running()))
    assert world.made("app").spec.resources.cpu_shares == 409
    await heir.stop()
