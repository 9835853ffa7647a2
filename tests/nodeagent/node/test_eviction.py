"""A node short of something lets pods go one at a time, the reference's first choice first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from nodeagent.node.eviction import Evictions, candidate_of
from nodeagent.node.rules import ending_order
from nodeagent.node.rules.pressure import Amount, PressureState, Threshold
from nodeagent.pods import counts as pods_counts
from nodeagent.stats.samples import (
    CgroupSample,
    ContainerSample,
    ContainerTarget,
    FsSample,
    MemorySample,
    NodeSample,
    PodSample,
    PodTarget,
    ProcessSample,
    Sample,
)
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import FakeSource, PodWorld, named
from tests.fakes.timings import observed

pytestmark = pytest.mark.looptime

MIB = 2**20
HARD = Threshold("memory.available", Amount(100 * MIB))
SOFT = Threshold("memory.available", Amount(200 * MIB), grace_s=60)


def measured(uid: str, memory: int = 0, *, disk: int = 0, threads: int = 1) -> PodSample:
    cgroup = CgroupSample(
        0, memory=MemorySample(working_set_bytes=memory), processes=ProcessSample(threads=threads)
    )
    container = ContainerSample(
        ContainerTarget("app", "c", 0, ""), cgroup, rootfs=FsSample(0, used_bytes=disk)
    )
    return PodSample(PodTarget("default", uid, uid, "", None, None, 0), containers=(container,))


def wanted(uid: str, memory: str = "0", **spec: object) -> Pod:
    resources = {"requests": {"memory": memory}}
    return named(pod(container_data("app", resources=resources), **spec), uid, uid)


class Shortage:
    """A node of 1,000 MiB with 90 MiB left; its pods `measured`, the thresholds met `since_s`."""

    def __init__(self, world: PodWorld, *pods: PodSample, threshold: Threshold = HARD) -> None:
        memory = MemorySample(working_set_bytes=910 * MIB)
        node = NodeSample(CgroupSample(0, memory=memory), memory_bytes=1000 * MIB)
        self.sample = Sample(0, node, pods)
        self.state = PressureState({threshold: 0.0})
        self.said: list[str] = []
        self.graces_s: list[int] = []
        self.world = world
        self.loop = Evictions(
            world.registry,
            world.counts,
            self,  # type: ignore[arg-type]
            state=lambda: self.state,
            fresh=self.fresh,
            evict=self.evict,
            longest_soft_grace_s=20,
            now=lambda: datetime.fromtimestamp(3, UTC),
        )

    def warn(self, reason: str, message: str) -> None:
        """As the node's object."""
        assert reason == "EvictionThresholdMet"
        self.said.append(message)

    async def fresh(self) -> Sample:
        return self.sample

    def evict(self, uid: str, message: str, *, grace_s: int) -> bool:
        self.graces_s.append(grace_s)
        return self.world.workers.evict(uid, message, grace_s=grace_s)

    def failed(self) -> list[str]:
        pods = self.world.registry.pods()
        return sorted(p.metadata.name for p in pods if p.status.phase == "Failed")


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[PodWorld]:
    world = PodWorld(tmp_path)
    yield world
    await world.stop()


@pytest.fixture
def api_world(world: PodWorld) -> PodWorld:
    """Pods of the API: static ones are never evicted."""
    world.source = FakeSource(name="api")
    world.use(world.source)
    return world


async def started(world: PodWorld, *pods: Pod) -> None:
    await world.start(*pods)
    await world.until(lambda: len(world.runtime.containers) == len(pods))


async def test_one_pod_goes_at_a_time_the_greediest_first(api_world: PodWorld) -> None:
    await started(api_world, wanted("modest", "500Mi"), wanted("greedy", "10Mi"), wanted("free"))
    shortage = Shortage(
        api_world,
        measured("modest", 400 * MIB),
        measured("greedy", 300 * MIB),
        measured("free", 20 * MIB),
    )
    await shortage.loop.step()
    await api_world.until(lambda: shortage.failed() == ["greedy"])
    status = api_world.status("greedy").status
    assert status.reason == "Evicted"
    assert status.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
        "Container app was using 300Mi, request is 10Mi, has larger consumption of memory."
    )
    conditions = {one.type: one for one in status.conditions or ()}
    assert conditions["DisruptionTarget"].status == "True"
    assert conditions["DisruptionTarget"].reason == "TerminationByNodeAgent"
    assert shortage.said == ["Attempting to reclaim memory"]
    counts = api_world.counts
    assert counts.evictions == {"memory.available": 1}
    ages = observed(counts.timings, pods_counts.EVICTION_STATS_AGE)
    assert ages == {("memory.available",): (1, 3)}
    await shortage.loop.step()
    await api_world.until(lambda: shortage.failed() == ["free", "greedy"])
    assert shortage.said == ["Attempting to reclaim memory"], "said once"


async def test_the_next_waits_until_the_last_has_stopped(api_world: PodWorld) -> None:
    await started(api_world, wanted("a"), wanted("b"))
    shortage = Shortage(api_world, measured("a", 50 * MIB), measured("b", 40 * MIB))
    hold = api_world.runtime.hold("stop_container")
    await shortage.loop.step()
    await hold.reached.wait()
    await shortage.loop.step()
    assert len(shortage.graces_s) == 1
    assert api_world.status("a").status.phase == "Running", "not failed before it has stopped"
    hold.release()
    await api_world.until(lambda: shortage.failed() == ["a"])
    await shortage.loop.step()
    assert len(shortage.graces_s) == 2


async def test_a_soft_threshold_waits_for_its_grace_and_leaves_time(api_world: PodWorld) -> None:
    await started(api_world, wanted("a", terminationGracePeriodSeconds=50))
    shortage = Shortage(api_world, measured("a", 50 * MIB), threshold=SOFT)
    began_s = asyncio.get_running_loop().time()
    shortage.state = PressureState({SOFT: began_s})
    await shortage.loop.step()
    assert shortage.graces_s == []
    await asyncio.sleep(61)
    await shortage.loop.step()
    assert shortage.graces_s == [20]


async def test_a_hard_threshold_does_not_wait_for_a_pod_that_was_left_time(
    api_world: PodWorld,
) -> None:
    """The pod chose how long it takes."""
    await started(api_world, wanted("a"), wanted("b"))
    shortage = Shortage(api_world, measured("a", 50 * MIB), measured("b", 40 * MIB), threshold=SOFT)
    hold = api_world.runtime.hold("stop_container")
    await asyncio.sleep(61)
    await shortage.loop.step()
    await hold.reached.wait()
    await shortage.loop.step()
    assert shortage.graces_s == [20]
    shortage.state = PressureState({SOFT: 0.0, HARD: 0.0})
    await shortage.loop.step()
    assert shortage.graces_s == [20, 1]
    await api_world.until(lambda: shortage.failed() == ["a"])
    hold.release()


async def test_without_a_shortage_nothing_is_measured_or_evicted(api_world: PodWorld) -> None:
    await started(api_world, wanted("a"))
    shortage = Shortage(api_world, measured("a", 50 * MIB))
    shortage.state = PressureState()
    shortage.sample = Sample(0)
    await shortage.loop.step()
    assert shortage.graces_s == []


async def test_static_and_system_pods_stay_and_the_log_says_so_once(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await started(world, wanted("static"))
    shortage = Shortage(world, measured("static", 500 * MIB))
    with caplog.at_level(logging.ERROR):
        await shortage.loop.step()
        await shortage.loop.step()
    assert shortage.graces_s == []
    assert [r.getMessage() for r in caplog.records] == [
        "the node is low on memory and there is no pod left to evict"
    ]


async def test_a_signal_that_is_no_longer_measured_evicts_nobody(api_world: PodWorld) -> None:
    await started(api_world, wanted("a"))
    shortage = Shortage(api_world, measured("a", 50 * MIB))
    shortage.sample = Sample(0, pods=shortage.sample.pods)
    await shortage.loop.step()
    assert shortage.graces_s == []


USES: list[tuple[str, Callable[[], PodSample | None], dict[str, int]]] = [
    ("not measured", lambda: None, {"memory": 0, "pids": 0}),
    (
        "in memory volumes, filled by a container that has ended",
        lambda: measured("a", 5, disk=7)._replace(
            cgroup=CgroupSample(0, memory=MemorySample(working_set_bytes=900))
        ),
        {"memory": 900, "pids": 1, "ephemeral-storage": 7},
    ),
    (
        "measured",
        lambda: measured("a", 5, disk=7, threads=3),
        {"memory": 5, "pids": 3, "ephemeral-storage": 7},
    ),
]


@pytest.mark.parametrize(("sample", "used"), [row[1:] for row in USES], ids=[r[0] for r in USES])
async def test_what_a_pod_uses_is_the_sum_of_what_was_measured(
    sample: Callable[[], PodSample | None], used: dict[str, int]
) -> None:
    found = candidate_of(wanted("a", "1Mi", priority=7), sample())
    assert found.used == used
    assert found.requested[ending_order.MEMORY] == MIB
    assert found.priority == 7
