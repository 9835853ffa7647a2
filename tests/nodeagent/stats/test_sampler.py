"""The sampler over captured hosts: who shares a reading, what rates are based on, what survives."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from nodeagent.stats.sampler import NoSampleYetError, Sampler
from nodeagent.stats.samples import PodTarget, Sample, SystemPart
from tests.fakes import hosts
from tests.fakes.hosts import POD, Clock


def base_of_the_latest(sampler: Sampler) -> Sample | None:
    assert sampler.latest
    return sampler.base_of(sampler.latest)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def sampler(clock: Clock, tmp_path: Path):
    parts = (SystemPart("pods", "/orchpods/pod7d1f6c1e", 5),)
    root = hosts.copy("v2", tmp_path)
    sampler = Sampler(
        targets=lambda: [POD],
        sources=hosts.sources(root, wall_ns=clock, system_parts=lambda: parts),
    )
    yield sampler
    await sampler.close()


async def test_a_sample_holds_node_pods_containers_and_sandboxes(sampler: Sampler) -> None:
    sample = await sampler.sample()
    assert sample.errors == {}
    assert [part.name for part in sample.node.system] == ["pods"]
    (pod,) = sample.pods
    assert pod.cgroup and pod.sandbox and pod.network
    assert pod.network.default == "eth0"
    (container,) = pod.containers
    assert container.cgroup and container.cgroup.memory


async def test_the_root_cgroup_of_v2_is_completed_from_elsewhere(sampler: Sampler) -> None:
    node = (await sampler.sample()).node
    assert node.cgroup and node.cgroup.memory
    assert node.cgroup.memory.usage_bytes == 20971520 + 12582912
    assert node.cgroup.memory.working_set_bytes == 20971520 + 12582912 - 4194304
    assert node.memory_bytes == 16384000 * 1024
    assert node.swap and node.swap.used_bytes == 2**30


async def test_a_root_cgroup_beyond_64_bits_has_no_usage(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    stat = root / "cgroup" / "memory.stat"
    stat.write_text(f"anon {2**64 - 1}\nfile {2**64 - 1}\n")
    sampler = Sampler(targets=list, sources=hosts.sources(root))
    node = (await sampler.sample()).node
    assert node.cgroup and node.cgroup.memory and node.cgroup.memory.usage_bytes is None
    await sampler.close()


@pytest.mark.parametrize("layout", hosts.LAYOUTS)
async def test_the_node_s_oom_kills_are_the_machine_s(layout: str, tmp_path: Path) -> None:
    root = hosts.copy(layout, tmp_path)
    (root / "proc" / "vmstat").write_text("nr_free_pages 7\noom_kill 29\ndrop_pagecache 0\n")
    sampler = Sampler(targets=lambda: [POD], sources=hosts.sources(root))
    node = (await sampler.sample()).node
    await sampler.close()
    assert node.cgroup and node.cgroup.memory
    assert node.cgroup.memory.oom_kills == 29, "not those of the tasks in the root cgroup alone"


async def test_concurrent_readers_share_one_reading(sampler: Sampler) -> None:
    samples = await asyncio.gather(*(sampler.fresh() for _ in range(20)))
    assert sampler.readings == 1
    assert all(sample is samples[0] for sample in samples)


async def test_a_sample_young_enough_is_served_again(sampler: Sampler) -> None:
    first = await sampler.sample()
    assert await sampler.fresh(max_age_s=60) is first
    assert await sampler.fresh(max_age_s=0) is not first


async def test_a_cancelled_reader_does_not_end_the_reading(sampler: Sampler) -> None:
    leaving = asyncio.ensure_future(sampler.fresh())
    await asyncio.sleep(0)
    staying = asyncio.ensure_future(sampler.fresh())
    await asyncio.sleep(0)
    leaving.cancel()
    assert isinstance(await staying, Sample)
    assert sampler.readings == 1


async def test_rates_are_based_on_the_loop_s_samples_only(sampler: Sampler, clock: Clock) -> None:
    await sampler.step()
    first = sampler.latest
    assert base_of_the_latest(sampler) is None, "one sample gives no rate"
    clock.advance(10)
    await sampler.step()
    second = sampler.latest
    assert base_of_the_latest(sampler) is first
    clock.advance(0.001)
    await sampler.fresh(max_age_s=0)
    assert base_of_the_latest(sampler) is first, "a millisecond gives no rate either"
    clock.advance(6)
    await sampler.fresh(max_age_s=0)
    assert base_of_the_latest(sampler) is second


async def test_right_after_the_start_one_second_suffices(sampler: Sampler, clock: Clock) -> None:
    await sampler.step()
    first = sampler.latest
    clock.advance(0.9)
    await sampler.fresh(max_age_s=0)
    assert base_of_the_latest(sampler) is None
    clock.advance(0.2)
    await sampler.fresh(max_age_s=0)
    assert base_of_the_latest(sampler) is first


async def test_while_a_reading_hangs_readers_get_the_last_sample_and_it_is_logged_once(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nodeagent.stats.sampler.STALL_S", 0.01)
    last = await sampler.sample()
    caplog.set_level("INFO")
    released = threading.Event()
    read = sampler.reader.read

    def stuck(*arguments: Any) -> Sample:
        released.wait(10)
        return read(*arguments)

    monkeypatch.setattr(sampler.reader, "read", stuck)
    assert await sampler.fresh(max_age_s=0) is last
    assert await sampler.fresh(max_age_s=0) is last
    released.set()
    assert await sampler.sample() is not last
    assert sampler.readings == 2
    assert [text.partition(" (after ")[0] for text in caplog.messages] == [
        "reading the statistics takes more than 0.01 s; the last ones are served",
        "the hanging reading of the statistics has finished",
    ]


async def test_a_first_reading_that_hangs_is_an_error_and_does_not_delay_the_stop(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nodeagent.stats.sampler.STALL_S", 0.01)
    released, ended, closed = threading.Event(), threading.Event(), []
    read = sampler.reader.read

    def stuck(*arguments: Any) -> Sample:
        released.wait(30)
        try:
            return read(*arguments)
        finally:
            ended.set()

    monkeypatch.setattr(sampler.reader, "read", stuck)
    monkeypatch.setattr(sampler.reader, "close", lambda: closed.append(True))
    with pytest.raises(NoSampleYetError, match="first reading"):
        await sampler.fresh()
    await sampler.close()
    assert not closed, "the thread still uses the descriptors"
    assert "still hangs" in caplog.text
    released.set()
    await asyncio.to_thread(ended.wait)


async def test_a_pod_that_cannot_be_sampled_does_not_affect_others_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = PodTarget("shop", "broken", "u2", cgroup_parent=None)  # type: ignore[arg-type]
    sources = hosts.sources(hosts.copy("v2", tmp_path))
    sampler = Sampler(targets=lambda: [POD, broken], sources=sources)
    sample = await sampler.sample()
    assert sample.pods[0].containers[0].cgroup
    assert sample.pods[1].cgroup is None
    assert sample.errors == {"pod": 1, "placement": 1}
    await sampler.sample()
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "finding the cgroups of the pods failed",
        "sampling pod shop/broken failed",
    ]
    await sampler.close()


async def test_a_machine_out_of_threads_is_still_sampled(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sampler.step()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        await sampler.step()
    assert sampler.readings == 4


async def test_pressure_support_is_logged_once(
    sampler: Sampler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await sampler.sample()
    said = len(caplog.records)
    await sampler.sample()
    assert len(caplog.records) == said == 1
    assert set(sampler.reader.psi.values()) == {"supported"}


async def test_a_host_without_pressure_is_logged_once_and_sampled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = hosts.copy("v1", tmp_path)
    sampler = Sampler(targets=lambda: [POD], sources=hosts.sources(root))
    sample = await sampler.sample()
    assert sample.pods[0].containers[0].cgroup
    assert set(sampler.reader.psi.values()) == {"absent"}
    await sampler.sample()
    assert len([r for r in caplog.records if "pressure" in r.message]) == 1
    await sampler.close()


async def test_the_memory_of_a_container_is_that_of_the_last_reading(sampler: Sampler) -> None:
    container = POD.containers[0]
    assert sampler.working_set_bytes(container.id) == 0
    await sampler.sample()
    assert sampler.working_set_bytes(container.id) > 0
    assert sampler.working_set_bytes("absent") == 0
