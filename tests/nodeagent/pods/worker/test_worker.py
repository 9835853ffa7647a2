"""When a worker works: not while nothing about its pod changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nodeagent.pods.actions import Plan
from nodeagent.pods.decide import plan
from nodeagent.runtime.base import RuntimeUnavailable
from orch.wire.records.pods import Pod
from tests.fakes.pods import pod
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
