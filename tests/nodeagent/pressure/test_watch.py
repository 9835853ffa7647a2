"""When the agent looks closer, since when it knows of a cause, and what it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nodeagent.pressure.closer import CloserReader
from nodeagent.pressure.evidence import CloserLook
from nodeagent.pressure.watch import PressureWatch
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import Sample
from orch.component.process.loops import cancel, spawn
from tests.fakes import hosts

LINE = "avg10=80.00 avg60=60.00 avg300=20.00 total={}\n"


class CountingReader(CloserReader):
    looks = 0

    def read(self, sample: Sample) -> CloserLook:
        self.looks += 1
        return super().read(sample)


class World:
    """A machine on cgroup v2 whose only container has a cpu limit."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = hosts.copy("v2", tmp_path)
        self.clock = hosts.Clock()
        self.stalled_usec = self.throttled_usec = self.ran_usec = 1000
        self.container = Path(f"{self.root}/cgroup{hosts.CONTAINER_CGROUP}")
        (self.container / "cpu.max").write_text("20000 100000\n")
        self.spend(0)
        sources = hosts.sources(self.root, wall_ns=self.clock)
        self.sampler = Sampler(targets=lambda: [hosts.POD], sources=sources)
        readers = CgroupReaders(self.sampler.reader.layout, fd_budget=0, wall_ns=self.clock)
        self.reader = CountingReader(sources, readers, pods_cgroup="/orchpods")
        self.watch = PressureWatch(self.sampler, self.reader, node_name="n1", cpus=2, pair_s=0.001)

    def spend(self, seconds: float, *, throttled: float = 0.0) -> None:
        """Time in which the container waits for the share `throttled` of it."""
        self.clock.advance(seconds)
        lost = int(seconds * throttled * 1e6)
        self.stalled_usec += lost
        self.throttled_usec += lost
        self.ran_usec += int(seconds * 200_000)
        text = f"some {LINE}full {LINE}".replace("{}", str(self.stalled_usec))
        (self.root / "proc/pressure/cpu").write_text(text)
        (self.container / "cpu.pressure").write_text(text)
        (self.container / "cpu.stat").write_text(
            f"usage_usec {self.ran_usec}\nuser_usec 1\nsystem_usec 1\nnr_periods 1\n"
            f"nr_throttled 1\nthrottled_usec {self.throttled_usec}\n"
        )

    async def read(self, seconds: float = 10.0, *, throttled: float = 0.0) -> None:
        """The next reading of the sampling loop, and the look after it."""
        self.spend(seconds, throttled=throttled)
        await self.sampler.step()
        self.watch.look()

    async def report(self) -> dict[str, Any]:
        return dict(json.loads(await self.watch.report()))


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.sampler.close()


async def test_a_quiet_machine_is_not_looked_at_closer(world: World) -> None:
    running = spawn(world.watch.run(), name="pressure")
    await asyncio.sleep(0)
    for _ in range(5):
        await world.read()
    await cancel(running)
    assert world.reader.looks == 0
    assert (await world.report())["causes"] == []


async def test_before_two_readings_nothing_is_known(world: World) -> None:
    assert (await world.report())["windowSeconds"] == 0


async def test_a_throttled_container_is_named_with_its_limit(world: World) -> None:
    await world.read()
    await world.read(throttled=0.8)
    (cause,) = (await world.report())["causes"]
    assert (cause["resource"], cause["kind"]) == ("cpu", "limit")
    assert cause["culprit"] == {"namespace": "shop", "pod": "web-0", "container": "web"}
    assert "80% of the time by its own limit of 0.2 cores" in cause["does"]


async def test_a_cause_has_the_beginning_of_the_first_reading_that_shows_it(world: World) -> None:
    await world.read()
    begun = (await world.report())["time"]
    for _ in range(4):
        await world.read(throttled=0.8)
        await world.watch.step()
    report = await world.report()
    assert report["causes"][0]["since"] == begun
    assert report["time"] > begun


async def test_a_cause_that_was_gone_for_long_begins_anew(world: World) -> None:
    await world.read()
    await world.read(throttled=0.8)
    first = (await world.report())["causes"][0]["since"]
    for _ in range(20):
        await world.read()
    await world.read(throttled=0.8)
    (cause,) = (await world.report())["causes"]
    assert cause["since"] > first


async def test_closer_looks_become_rare_while_pressure_lasts(world: World) -> None:
    running = spawn(world.watch.run(), name="pressure")
    await world.read()
    for reading in range(1, 14):
        looks = world.reader.looks
        await world.read(throttled=0.8)
        due = reading <= 2 or reading % 12 == 0
        async with asyncio.timeout(10):
            while due and world.reader.looks == looks:
                await asyncio.sleep(0.001)
    await cancel(running)
    assert world.reader.looks in (3, 4)  # the first step of a loop comes at once


async def test_all_who_ask_at_once_share_an_answer(world: World) -> None:
    await world.read()
    await world.read(throttled=0.8)
    answers = await asyncio.gather(*(world.watch.report() for _ in range(20)))
    assert len(set(answers)) == 1
    assert world.reader.looks == 2


async def test_a_defect_of_the_closer_look_is_logged_once_and_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Sample) -> CloserLook:
        raise ValueError("odd file")

    monkeypatch.setattr(world.reader, "read", fail)
    await world.read()
    for _ in range(3):
        await world.read(throttled=0.8)
        await world.watch.step()
    assert caplog.text.count("looking for the cause of pressure failed") == 1


@pytest.mark.parametrize("layout", hosts.LAYOUTS)
async def test_every_layout_gives_an_answer(tmp_path: Path, layout: str) -> None:
    clock = hosts.Clock()
    sources = hosts.sources(hosts.copy(layout, tmp_path), wall_ns=clock)
    sampler = Sampler(targets=lambda: [hosts.POD], sources=sources)
    readers = CgroupReaders(sampler.reader.layout, fd_budget=0, wall_ns=clock)
    reader = CloserReader(sources, readers, pods_cgroup="/orchpods")
    watch = PressureWatch(sampler, reader, node_name="n1", cpus=2)
    for _ in range(2):
        clock.advance(10)
        await sampler.step()
    assert json.loads(await watch.report())["causes"] == []
    await sampler.close()
