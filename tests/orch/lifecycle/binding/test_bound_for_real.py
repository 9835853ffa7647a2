"""Pods bound by the whole controller manager at a real API server: many, and across leaders."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.hollow.fleet import Fleet
from orch.component.process import clock, loops
from orch.wire.records.core import Node, NodeStatus
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Container, Pod, PodSpec, ResourceRequirements
from tests.orch.lifecycle.test_main import World, until
from tests.orch.server.harness import Api, make_pki

pytestmark = [pytest.mark.slow, pytest.mark.seconds(30)]

NODES, PODS, WITHIN_S = 100, 1000, 10.0
# These hollow nodes hardly beat: with hundreds of tasks in one process they would be late.
PATIENT = (
    "--node-monitor-period=5s",
    "--node-monitor-grace-period=10m",
    "--node-startup-grace-period=10m",
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    pki = make_pki(tmp_path / "pki", clock.utc_now())
    api = await Api.start(pki, tmp_path / "data")
    world = World(api, pki, tmp_path)
    yield world
    await world.close()
    await api.stop()


async def create(world: World, count: int, cpu: str) -> None:
    resources = ResourceRequirements(requests={"cpu": cpu})
    spec = PodSpec(containers=[Container(name="c", image="busybox:1", resources=resources)])

    async def some(first: int) -> None:
        for number in range(first, count, 8):
            meta = ObjectMeta(name=f"p{number:04}", namespace="default")
            await world.admin.create(Pod(metadata=meta, spec=spec))

    await asyncio.gather(*map(some, range(8)))


async def placed(world: World) -> Counter[str]:
    """How many pods each node has; "" is none."""
    return Counter(pod.spec.nodeName or "" for pod in (await world.admin.list(Pod)).items)


async def test_a_thousand_pods_are_bound_to_a_hundred_hollow_nodes_in_time(world: World) -> None:
    fleet = Fleet(world.config("admin"), NODES, lease_duration_s=4000)
    ramping = loops.spawn(fleet.ramp(1.0), name="ramp")
    try:
        await create(world, PODS, "100m")

        async def registered() -> bool:
            nodes = (await world.admin.list(Node)).items
            return sum("pods" in (one.status.allocatable or {}) for one in nodes) == NODES

        await until(registered)
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        await world.start_controller("--bind-pods", *PATIENT)
        while (await world.admin.list(Pod, field_selector="spec.nodeName=")).items:
            await asyncio.sleep(0.25)  # each look costs the server as much as some bindings
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        print(f"{PODS} pods bound in {took_s:.1f} s, with {cpu_s:.1f} s of a processor")
        # Server, controller and nodes are all in this process; other tests may take the rest.
        assert min(took_s, cpu_s) < WITHIN_S
        assert set((await placed(world)).values()) == {PODS // NODES}, "each is as full as others"
    finally:
        await loops.cancel(ramping)
        await fleet.close()


async def test_no_node_is_overcommitted_when_leaders_follow_one_another(world: World) -> None:
    for number in range(10):
        node = await world.admin.create(Node(metadata=ObjectMeta(name=f"n{number}")))
        allocatable = {"cpu": "1", "memory": "1Gi", "pods": "110"}
        status = NodeStatus(allocatable=allocatable, capacity=allocatable).to_wire()
        await world.admin.patch(Node, node.metadata.name, {"status": status}, subresource="status")
    await create(world, 150, "100m")
    for left in (130, 90, 50):
        await world.start_controller("--bind-pods", *PATIENT)
        async with asyncio.timeout(60):
            while len((await world.admin.list(Pod, field_selector="spec.nodeName=")).items) > left:
                await asyncio.sleep(0.05)
        await world.stop_controller()

    counted = await placed(world)
    assert counted.pop("") == 50
    assert set(counted.values()) == {10}
