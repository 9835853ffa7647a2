"""Durations in buckets, and what is observed of a pod on a runtime in memory."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from nodeagent.pods import counts
from nodeagent.pods.counts import Timings
from orch.wire.times import format_time
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import EPOCH, FakeSource, PodWorld
from tests.fakes.timings import observed


def test_a_duration_counts_in_every_bucket_that_holds_it() -> None:
    held = Timings()
    for duration_s in (0.004, 0.005, 0.006, 100):
        held.observe(counts.RELIST, duration_s)
    buckets = [sample for sample in held.collect(counts.RELIST).samples if "le" in sample.labels]
    assert [(one.labels["le"], one.value) for one in buckets] == [
        ("0.005", 2), ("0.01", 3), ("0.025", 3), ("0.05", 3), ("0.1", 3), ("0.25", 3), ("0.5", 3),
        ("1", 3), ("2.5", 3), ("5", 3), ("10", 3), ("+Inf", 4),
    ]  # fmt: skip
    assert observed(held, counts.RELIST)[()].total_s == pytest.approx(100.015)
    assert observed(held, counts.WORKER) == {}


def test_series_are_shown_in_the_order_of_their_labels_until_they_are_forgotten() -> None:
    held = Timings()
    for operation in ("update", "create", "destroy"):
        held.observe(counts.CGROUPS, 1, operation)
    held.forget(counts.CGROUPS, "destroy")
    held.forget(counts.WORKER, "sync")
    assert list(observed(held, counts.CGROUPS)) == [("create",), ("update",)]
    held.forget(counts.CGROUPS, "create")
    held.forget(counts.CGROUPS, "update")
    assert observed(held, counts.CGROUPS) == {}


SIZES = [(0, "0-10MB"), (10_000_000, "0-10MB"), (10_000_001, "10MB-100MB"), (10**12, "GT100GB")]


@pytest.mark.parametrize(("size_bytes", "label"), SIZES)
def test_images_are_told_apart_by_size(size_bytes: int, label: str) -> None:
    assert counts.size_class(size_bytes) == label


@pytest.mark.looptime
async def test_a_start_is_timed_with_and_without_its_pulls(world: PodWorld) -> None:
    world.runtime.images_to_pull.add("localhost/later:1")
    hold = world.runtime.hold("pull_image")
    await world.start(pod(container_data("app", image="localhost/later:1")))
    await hold.reached.wait()
    await asyncio.sleep(7)
    hold.release()
    await world.until(lambda: world.status().status.phase == "Running")
    held = world.counts.timings
    whole, own = (observed(held, one)[()] for one in (counts.POD_START_TOTAL, counts.POD_START_SLI))
    assert (whole.count, own.count) == (1, 1)
    assert whole.total_s - own.total_s == pytest.approx(7, abs=0.1)
    [(_, pull)] = observed(held, counts.IMAGE_PULL).items()
    assert pull.total_s == pytest.approx(7, abs=0.1)
    assert ("sync",) in observed(held, counts.WORKER)
    assert observed(held, counts.RELIST)[()].count > 0
    world.source.set()
    await world.until(lambda: not world.traces())
    assert ("terminate",) in observed(held, counts.WORKER)


@pytest.mark.looptime
async def test_a_start_counts_from_the_pods_creation_and_without_its_init_containers(
    world: PodWorld,
) -> None:
    created = {"creationTimestamp": format_time(EPOCH - timedelta(seconds=20))}
    world.source = FakeSource(name="api")
    world.use(world.source)
    await world.start(pod("app", initContainers=[container_data("i")], metadata=created))
    await world.until(lambda: "i" in world.running())
    await asyncio.sleep(5)
    world.runtime.exit(world.running()["i"])
    await world.until(lambda: world.status().status.phase == "Running")
    held = world.counts.timings
    seen_s, total_s, own_s = (
        observed(held, one)[()].total_s
        for one in (counts.POD_START, counts.POD_START_TOTAL, counts.POD_START_SLI)
    )
    assert total_s - seen_s == pytest.approx(20, abs=0.2)
    assert total_s - own_s == pytest.approx(5, abs=0.2)


@pytest.mark.looptime
async def test_a_pod_that_an_agent_had_accepted_before_is_not_started_since_its_creation(
    world: PodWorld,
) -> None:
    accepted = {"startTime": format_time(EPOCH)}
    await world.start(pod(status=accepted))
    await world.until(lambda: world.status().status.phase == "Running")
    await asyncio.sleep(1)
    for one in (counts.POD_START, counts.POD_START_TOTAL, counts.POD_START_SLI):
        assert observed(world.counts.timings, one) == {}


@pytest.mark.looptime
async def test_work_on_a_pod_that_waits_for_the_runtime_begins_late(world: PodWorld) -> None:
    hold = world.runtime.hold("list_sandboxes")
    await world.start(pod())
    await hold.reached.wait()
    await asyncio.sleep(3)
    hold.release()
    await world.until(lambda: world.status().status.phase == "Running")
    begun = observed(world.counts.timings, counts.WORKER_START)[()]
    assert begun.count == 1
    assert begun.total_s == pytest.approx(3, abs=0.2)


@pytest.mark.looptime
async def test_a_pod_found_running_was_not_started_here(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: world.status().status.phase == "Running")
    await world.stop()
    heir = world.successor()
    await heir.start(pod())
    await heir.until(lambda: heir.status().status.phase == "Running")
    await asyncio.sleep(5)
    assert observed(heir.counts.timings, counts.POD_START) == {}


@pytest.mark.looptime
async def test_waiting_for_a_pull_and_a_new_sandbox_are_told(world: PodWorld) -> None:
    await world.start(pod(container_data("app", image="localhost/later:1")))
    await world.until(lambda: world.waiting() == "ImagePullBackOff")
    await asyncio.sleep(300)
    told = [message for _, reason, message in world.events if reason == "BackOff"]
    assert set(told) == {'Back-off pulling image "localhost/later:1"'}
    assert len(told) <= len(world.runtime.called("pull_image"))
    world.runtime.images_to_pull.add("localhost/later:1")
    await world.until(lambda: "app" in world.running(), within_s=400)
    [sandbox] = world.runtime.sandboxes
    await world.runtime.stop_sandbox(sandbox)
    await world.until(lambda: "SandboxChanged" in world.reasons(), within_s=30)
