"""The monitor of a large cluster, by the clock: deciding keeps nobody else on the loop waiting."""

from __future__ import annotations

import asyncio
import time

import pytest

from orch.client.events import EventRecorder
from orch.component.process import loops
from orch.lifecycle.decide.records import Settings
from orch.lifecycle.metrics import LifecycleMetrics
from orch.lifecycle.monitor import Monitor
from tests.fakes import cluster
from tests.fakes.api import FakeApi

NODES, PODS = 100, 4000


@pytest.mark.slow
async def test_deciding_on_thousands_of_pods_does_not_block_the_loop() -> None:
    api = FakeApi()
    for number in range(NODES):
        api.store.put(cluster.node(f"n{number}"))
        api.store.put(cluster.lease(f"n{number}"))
    for number in range(PODS):
        api.store.put(cluster.pod(f"p{number}", f"n{number % NODES}"))
    events = EventRecorder(None, "node-controller")
    monitor = Monitor(api, Settings(), events, LifecycleMetrics(), identity="me")
    running = loops.spawn(monitor.run(), name="monitor")
    async with asyncio.timeout(60):
        while monitor.decision_age_s() is None:
            await asyncio.sleep(0.01)

    deciding, turns_s = loops.spawn(monitor.tick(), name="tick"), []
    while not deciding.done():
        at_s = time.thread_time()
        await asyncio.sleep(0)
        turns_s.append(time.thread_time() - at_s)
    await deciding
    await loops.cancel(running)

    assert len(monitor.memory.nodes) == NODES
    assert max(turns_s) < 0.02
