"""Facts come from whoever measures; what hangs or fails leaves the last answer standing."""

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.node import collector
from nodeagent.node.collector import FactsCollector
from nodeagent.node.rules.facts import FilesystemFacts
from nodeagent.runtime import verdict
from nodeagent.runtime.base import RuntimeUnavailable
from nodeagent.runtime.verdict import RuntimeHealth
from nodeagent.stats.host.machine import HostFacts
from nodeagent.stats.samples import (
    CgroupSample,
    FsSample,
    MemorySample,
    NodeSample,
    RlimitSample,
    Sample,
)
from orch.client.resolver import Resolver
from orch.component.process import loops
from tests.fakes import node
from tests.fakes.runtime import FakeRuntime

pytestmark = pytest.mark.looptime

FS = FsSample(0, available_bytes=50, capacity_bytes=100, inodes_free=5, inodes=10)
SAMPLE = Sample(
    time_ns=1,
    node=NodeSample(
        cgroup=CgroupSample(1, memory=MemorySample(working_set_bytes=300)),
        memory_bytes=1000,
        fs=FS,
        rlimit=RlimitSample(1, 32768, 400),
    ),
)


class Sampled:
    """A sampler as the collector sees it."""

    def __init__(self, latest: Sample | None) -> None:
        self.latest = latest
        self.read = asyncio.Event()

    async def fresh(self) -> Sample:
        await self.read.wait()
        return SAMPLE


class Watched:
    """The runtime watch, whose health is computed when it is asked for."""

    def __init__(self, health: Callable[[], RuntimeHealth]) -> None:
        self._health = health
        self.looked = asyncio.Event()

    @property
    def health(self) -> RuntimeHealth:
        return self._health()

    async def known(self) -> None:
        await self.looked.wait()


def collecting(
    *,
    sample: Sample | None = SAMPLE,
    health: Callable[[], RuntimeHealth] = lambda: RuntimeHealth(last_good_s=0.0),
    node_ip: str = "127.0.0.1",
    **more: Any,
) -> FactsCollector:
    watch: Any = Watched(health)
    return FactsCollector(node.machine(), Sampled(sample), watch, node_ip=node_ip, **more)


async def test_the_facts_settle_when_runtime_and_machine_were_looked_at() -> None:
    sampled, watched = Sampled(None), Watched(RuntimeHealth)
    collector = FactsCollector(node.machine(), sampled, watched)  # type: ignore[arg-type]
    settling = loops.spawn(collector.settled(), name="settling")
    await asyncio.sleep(100)
    assert not settling.done()
    watched.looked.set()
    await asyncio.sleep(1)
    assert not settling.done()
    sampled.read.set()
    await asyncio.sleep(0.1)
    assert settling.done()


async def test_a_reading_that_hangs_does_not_keep_the_facts_from_settling() -> None:
    watched = Watched(RuntimeHealth)
    watched.looked.set()
    collector = FactsCollector(node.machine(), Sampled(None), watched)  # type: ignore[arg-type]
    await asyncio.wait_for(collector.settled(), verdict.DOWN_AFTER_S + 1)


def test_memory_not_in_the_working_set_is_available() -> None:
    usage = collector.usage_facts(SAMPLE)
    assert (usage.memory_available_bytes, usage.memory_working_set_bytes) == (700, 300)
    assert usage.node_fs == FilesystemFacts(50, 100, 5, 10)
    assert usage.image_fs == FilesystemFacts()
    assert (usage.pids_in_use, usage.pids_max) == (400, 32768)


@pytest.mark.parametrize("excess", [None, 0, 4096])
async def test_what_checkpoints_hold_too_much_is_a_fact_with_and_without_a_sample(
    excess: int | None,
) -> None:
    for sample in (None, SAMPLE):
        facts = await collecting(sample=sample, store_excess=lambda: excess).collect()
        assert facts.usage.checkpoint_excess_bytes == excess


def test_what_was_not_sampled_is_unknown() -> None:
    assert collector.usage_facts(None) == collector.usage_facts(Sample(time_ns=1))
    assert collector.usage_facts(None).memory_available_bytes is None


def test_the_machine_may_be_called_otherwise() -> None:
    host = HostFacts(2, 2, 10, 0, 0, "b", "m", "s", "6.1", "os", "arm64", "linux", "h", 0)
    assert collector.machine_facts(host).hostname == "h"
    facts = collector.machine_facts(host, hostname="other", hugepages_bytes={1: 2})
    assert (facts.hostname, facts.architecture, facts.hugepages_bytes) == ("other", "arm64", {1: 2})


async def test_images_are_listed_digests_first_and_at_most_once_a_minute() -> None:
    runtime = FakeRuntime()
    collected = collecting(runtime=runtime)
    for _ in range(6):
        facts = await collected.collect()
        await asyncio.sleep(10)
    assert len(runtime.called("images")) == 1 and len(facts.images) == 2
    assert facts.features == runtime.runtime_features
    health = RuntimeHealth(last_good_s=asyncio.get_running_loop().time())
    await collecting(runtime=runtime, health=lambda: health).collect()
    assert len(runtime.called("images")) == 2


async def test_a_runtime_that_does_not_answer_leaves_the_images_as_they_were() -> None:
    runtime = FakeRuntime()
    now_s = asyncio.get_running_loop().time
    collected = collecting(runtime=runtime, health=lambda: RuntimeHealth(last_good_s=now_s()))
    before = await collected.collect()
    await asyncio.sleep(61)
    runtime.hold("images")
    assert (await collected.collect()).images == before.images != ()
    await asyncio.sleep(61)
    runtime.fail("images", RuntimeUnavailable("ListImages", "gone"))
    assert (await collected.collect()).images == before.images


async def test_a_runtime_that_is_down_or_new_is_not_asked() -> None:
    runtime = FakeRuntime()
    await collecting(runtime=runtime, health=RuntimeHealth).collect()
    await asyncio.sleep(31)
    await collecting(runtime=runtime).collect()
    assert runtime.called("images") == []


async def test_the_address_asked_for_is_reported_without_a_lookup() -> None:
    facts = await collecting(node_ip="192.0.2.7").collect()
    assert [a.address for a in facts.addresses] == ["192.0.2.7", "host-1"]


async def test_a_lookup_that_fails_or_hangs_keeps_the_last_addresses_and_each_time_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nodeagent.node.collector")
    good = [{"host": "127.0.0.1", "family": socket.AF_INET}]
    answers: list[Any] = [good]

    async def look_up(*_: Any, **__: Any) -> Any:
        if not answers:
            await asyncio.sleep(3600)
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Resolver, "resolve", look_up)
    monkeypatch.setattr(collector, "default_route_address", lambda: "192.0.2.3")
    collected = collecting(node_ip="")
    first = await collected.collect()
    assert [a.address for a in first.addresses] == ["192.0.2.3", "host-1"]
    monkeypatch.setattr(collector, "default_route_address", lambda: None)
    await asyncio.sleep(61)
    assert (await collected.collect()).addresses == first.addresses
    for answer in (socket.gaierror("no DNS"), good, socket.gaierror("no DNS")):
        answers.append(answer)
        await asyncio.sleep(61)
        await collected.collect()
    said = "the host name host-1 does not resolve ({}): the node's address is unchanged"
    assert caplog.messages == [said.format(why) for why in ("no answer", "no DNS", "no DNS")]


@pytest.mark.looptime(False)
async def test_a_resolver_that_hangs_leaves_the_threads_of_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(30) and [])
    monkeypatch.setattr(collector, "_DEADLINE_S", 0.01)
    collected = collecting(node_ip="")
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await collected.collect()
    async with asyncio.timeout(30):
        assert await asyncio.to_thread(lambda: "files are read") == "files are read"
    released.set()


async def test_other_problems_are_passed_on() -> None:
    facts = await collecting(
        problem_sources=[SimpleNamespace(problems=lambda: ["node is shutting down"])]
    ).collect()
    assert facts.problems == ("node is shutting down",)


def test_an_address_of_this_machine_is_known_from_one_of_another() -> None:
    assert collector.is_local(socket.AF_INET, "127.0.0.1")
    assert not collector.is_local(socket.AF_INET, "192.0.2.77")
