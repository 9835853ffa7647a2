"""A pod that takes its time to end, and has chosen how much, ends when the node needs it to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime
YEARS_S = 2**31 - 1


@pytest.fixture
def deaf(world: PodWorld, monkeypatch: pytest.MonkeyPatch) -> PodWorld:
    """A world whose containers do not heed SIGTERM."""
    stop_container = world.runtime.stop_container

    async def stop(container_id: str, *, timeout_s: int) -> None:
        await asyncio.sleep(timeout_s)
        await stop_container(container_id, timeout_s=0)

    monkeypatch.setattr(world.runtime, "stop_container", stop)
    return world


def deleted(**metadata: Any) -> Pod:
    times = {"deletionTimestamp": "2026-01-31T12:00:00Z", "deletionGracePeriodSeconds": YEARS_S}
    return pod("a", metadata={**times, **metadata})


async def started(world: PodWorld, **spec: Any) -> None:
    await world.start(pod("a", terminationGracePeriodSeconds=YEARS_S, **spec))
    await world.until(lambda: "a" in world.running())


async def test_a_deleted_pod_is_evicted_whatever_time_its_deletion_gave_it(deaf: PodWorld) -> None:
    await started(deaf)
    deaf.source.set(deleted())
    await asyncio.sleep(60)
    assert "a" in deaf.running()
    assert deaf.workers.evict(UID, "low on memory")
    await deaf.until(lambda: not deaf.running(), within_s=20)


async def test_an_evicted_pod_gains_no_time_by_a_deletion(deaf: PodWorld) -> None:
    await started(deaf)
    assert deaf.workers.evict(UID, "low on memory", grace_s=10)
    deaf.source.set(deleted())
    await deaf.until(lambda: not deaf.running(), within_s=40)


async def test_a_pod_past_its_deadline_is_evicted_in_its_place(deaf: PodWorld) -> None:
    await started(deaf, activeDeadlineSeconds=30)
    await asyncio.sleep(60)
    assert "DeadlineExceeded" in deaf.reasons()
    assert "a" in deaf.running()
    assert deaf.workers.evict(UID, "low on memory")
    assert not deaf.workers.evict(UID, "low on memory"), "it can end no sooner"
    await deaf.until(lambda: deaf.status().status.phase == "Failed", within_s=20)
    assert deaf.running() == {}
    assert deaf.status().status.reason == "Evicted"
