"""Thousands of pods that tenants have bound to the node by its name, and that do not run."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods import counts
from nodeagent.pods.volumes.objects import REFRESH_S
from nodeagent.pods.worker.services import GRANTED_FILE
from orch.wire.podrules import podspec
from orch.wire.records.configuration import ConfigMap
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod, PodStatus
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import FakeSource, PodWorld, named

GREEDY = container_data("app", resources={"requests": {"cpu": "1000"}})


def ended(number: int, made: Pod | None = None) -> Pod:
    one = named(made or pod(), f"ended-{number}", f"u-ended-{number}")
    return one.model_copy(update={"status": PodStatus(phase="Failed", reason="OutOfcpu")})


async def started(world: PodWorld, *pods: Pod) -> FakeSource:
    source = FakeSource(*pods, name=podspec.API)
    world.use(source)
    await world.start()
    await world.until(lambda: "app" in world.running())
    return source


def workers() -> int:
    return sum(task.get_name().startswith("pod default/") for task in asyncio.all_tasks())


def looks_at_pods(world: PodWorld) -> float:
    samples = world.counts.timings.collect(counts.WORKER).samples
    return sum(sample.value for sample in samples if sample.name.endswith("_count"))


@pytest.mark.slow
@pytest.mark.looptime
async def test_pods_that_have_ended_cost_the_next_agent_a_look_each(world: PodWorld) -> None:
    many = [ended(number) for number in range(10_000)]
    running = [named(pod(), f"p{number}", f"u{number}") for number in range(100)]
    source = await started(world, *running, *many)
    await world.until(lambda: len(world.running()) and len(world.runtime.containers) == 100)
    await asyncio.sleep(60)
    assert workers() == 100
    passes = 5
    began_s = time.process_time()
    for _ in range(passes):
        source.tell()
        await asyncio.sleep(0.05)
    assert (time.process_time() - began_s) / passes < 0.6


@pytest.mark.looptime
async def test_what_ended_pods_were_granted_is_forgotten(world: PodWorld) -> None:
    """It is in one file, and a file that is too large lets no container start."""
    source = await started(world, pod(restartPolicy="Never"), ended(1))
    await world.until(lambda: world.status().status.phase == "Running")
    source.set(*source.given, ended(2))
    await asyncio.sleep(30)
    allocations = world.services.allocations
    assert allocations.of("u-ended-1") is allocations.of("u-ended-2") is None
    assert allocations.of(UID)
    for container_id in world.running().values():
        world.runtime.exit(container_id, 0)
    await world.until(lambda: world.status().status.phase == "Succeeded")
    source.tell()
    await world.until(lambda: allocations.of(UID) is None)
    assert "ended" not in Path(world.settings.root_dir, GRANTED_FILE).read_text()


@pytest.mark.looptime
async def test_a_pod_that_has_ended_reads_no_object_and_is_looked_at_no_more(
    world: PodWorld,
) -> None:
    await world.api.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
    shown = [{"name": "v", "configMap": {"name": "c"}}]
    await world.start(pod(restartPolicy="Never", volumes=shown))
    await world.until(lambda: "app" in world.running())
    await asyncio.sleep(3 * REFRESH_S)
    assert len(world.api.made("get", "configmaps")) > 2, "it shows the object while it runs"
    world.runtime.exit(world.running()["app"], 0)
    await world.until(lambda: world.status().status.phase == "Succeeded")
    read, looks = len(world.api.made("get", "configmaps")), looks_at_pods(world)
    await asyncio.sleep(10 * REFRESH_S)
    assert len(world.api.made("get", "configmaps")) == read
    assert looks_at_pods(world) - looks < 10, "it was 100 in each second"


@pytest.mark.looptime
async def test_what_an_ended_pod_left_on_the_disk_goes_with_the_next_agent(
    world: PodWorld,
) -> None:
    left = world.services.volumes.pod_dir("u-ended-1") / "volumes/empty-dir/v"
    left.mkdir(parents=True)
    await started(world, pod(), ended(1))
    await world.until(lambda: not Path(left).exists())
    assert world.registry.live_uids() == {"u-ended-1", UID}


@pytest.mark.looptime
async def test_a_pod_that_has_ended_and_left_nothing_is_still_shown(world: PodWorld) -> None:
    await started(world, pod(), ended(1))
    await asyncio.sleep(30)
    shown = {one.metadata.name: one.status.reason for one in world.registry.pods()}
    assert shown == {pod().metadata.name: None, "ended-1": "OutOfcpu"}
    found = world.registry.find("default", "ended-1")
    assert found and found.status.phase == "Failed"


@pytest.mark.looptime
async def test_pods_that_do_not_run_weigh_nothing_beside_those_that_do(world: PodWorld) -> None:
    shares = world.directory / "cgroup/cpu/orchpods/burstable/cpu.shares"
    shares.parent.mkdir(parents=True)
    shares.write_text("1024")
    world.node = Node.from_wire({"status": {"allocatable": {"cpu": "2"}}})
    own = container_data("app", resources={"requests": {"cpu": "500m"}})
    refused = [named(pod(GREEDY), f"r{number}", f"ur{number}") for number in range(5)]
    await started(world, pod(own), *refused, ended(1, pod(GREEDY)))
    await world.until(lambda: world.reasons().count("OutOfcpu") == 5)
    await asyncio.sleep(30)
    assert shares.read_text() == "512", "the class had the share of 5,000 processors"


@pytest.mark.looptime
async def test_running_pods_keep_their_shares_until_the_next_agent_knows_them(
    world: PodWorld,
) -> None:
    shares = world.directory / "cgroup/cpu/orchpods/burstable/cpu.shares"
    shares.parent.mkdir(parents=True)
    shares.write_text("1024")
    own = pod(container_data("app", resources={"requests": {"cpu": "500m"}}))
    await started(world, own)
    await world.until(lambda: shares.read_text() == "512")
    await world.stop()
    heir = world.successor()
    source = FakeSource(own, name=podspec.API, ready=False)
    heir.use(source)
    listing = heir.runtime.hold("list_sandboxes")
    await heir.start()
    await asyncio.sleep(1)
    assert shares.read_text() == "512", "nothing is known of the runtime yet"
    listing.release()
    source.given = []
    await asyncio.sleep(30)
    assert shares.read_text() == "512", "the API has not said yet that it is gone"
    source.ready = True
    source.tell()
    await heir.until(lambda: shares.read_text() == "2")


@pytest.mark.slow
async def test_thousands_of_new_pods_are_judged_in_turns(world: PodWorld) -> None:
    world.node = Node.from_wire({"status": {"allocatable": {"cpu": "2", "pods": "110"}}})
    small = container_data("app", resources={"requests": {"cpu": "1m"}})
    others = [named(pod(small), f"p{number}", f"u{number}") for number in range(50)]
    source = await started(world, *others)
    await world.until(lambda: len(world.runtime.containers) == 50)
    longest_s, done = 0.0, False

    async def watch() -> None:
        nonlocal longest_s
        while not done:
            began_s = time.thread_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.thread_time() - began_s)

    many = [named(pod(GREEDY), f"r{n}", f"ur{n}") for n in range(2000)]
    gc.collect()
    gc.freeze()  # as an agent when it has started: what other tests have made is no rubbish of it
    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    source.set(*source.given, *many)
    await world.until(lambda: world.reasons().count("OutOfcpu") == 2000)
    done = True
    await watching
    assert longest_s < 0.25, f"the loop stood still for {longest_s:.2f} s, where it was 0.8 s"


@pytest.mark.looptime
async def test_looks_at_all_pods_leave_most_of_the_time_to_others(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report about one of thousands of pods is a change: 4,000 of them took three minutes."""
    source, looks = await started(world, pod()), 0
    real = world.services.allocations.settle

    async def settle(*arguments: Any) -> list[Pod]:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0.1)
        return await real(*arguments)

    monkeypatch.setattr(world.services.allocations, "settle", settle)
    for _ in range(1000):
        source.tell()
        await asyncio.sleep(0.01)
    assert 30 <= looks <= 35, "of ten seconds a third"
