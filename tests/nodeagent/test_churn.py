"""Pods that come and go all day: memory and open descriptors end where they began.

The agent's real pod workers on a runtime in memory, its real sampler on a tree of kernel files that
follows the pods, every page rendered after every reading. A day is ten thousand pods; the clock
the samples carry moves a reading's interval each time.
"""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from nodeagent.metrics.pages import StatsPages
from nodeagent.stats.sampler import Sampler
from orch.component.process.daemon import configure_allocator
from orch.wire.records.pods import Pod
from tests.fakes import hosts
from tests.fakes.hosts import Clock
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld, named

pytestmark = pytest.mark.slow

AT_ONCE = 50
A_DAY = 10_000
OF_PODS = ("cpu.stat", "memory.current", "memory.stat", "cpu.pressure")
FILES = hosts.TREES / "v2" / "cgroup" / hosts.CONTAINER_CGROUP[1:]


class Kernel:
    """Gives every pod that is measured its cgroups, and takes away those of the others."""

    def __init__(self, root: Path, world: PodWorld) -> None:
        self.root = root
        self._world = world
        self._made: dict[str, list[str]] = {}

    def follow(self) -> None:
        targets = {one.cgroup_parent: one for one in self._world.registry.targets()}
        for gone in self._made.keys() - targets.keys():
            for path in self._made.pop(gone):
                Path(path).unlink()
            self._directory(gone).rmdir()
        for parent in targets.keys() - self._made.keys():
            ids = [one.id for one in targets[parent].containers]
            self._made[parent] = self._make(parent, [*ids, targets[parent].sandbox_id or ""])

    def _directory(self, path: str) -> Path:
        return self.root / "cgroup" / path.lstrip("/")

    def _make(self, parent: str, ids: list[str]) -> list[str]:
        directory = self._directory(parent)
        directory.mkdir(parents=True, exist_ok=True)
        links = {directory / one: FILES for one in ids if one}
        links |= {directory / name: FILES / name for name in OF_PODS}
        for path, target in links.items():
            path.symlink_to(target)
        return [str(path) for path in links]


class Day:
    """One agent's pods, its statistics, and what its process holds."""

    def __init__(self, directory: Path) -> None:
        self.world = PodWorld(directory / "node")
        self.kernel = Kernel(hosts.copy("v2", directory), self.world)
        self.clock = Clock()
        sources = hosts.sources(self.kernel.root, wall_ns=self.clock)
        self.sampler = Sampler(targets=self.world.registry.targets, sources=sources)
        # The loop's clock jumps while a thread reads; what was just read is young all the same.
        self.sampler.age_s = lambda: 0.0  # type: ignore[method-assign]
        self.pages = StatsPages(self.sampler, node_name="node1")
        self.pods = 0

    async def churn(self, pods: int) -> None:
        """That many pods come, are measured, and go, some at a time."""
        for _ in range(0, pods, AT_ONCE):
            new = [self._new() for _ in range(AT_ONCE)]
            self.world.source.set(*new)
            await self.world.until(self._all_run, within_s=120)
            await self._measure(AT_ONCE)
            self.world.source.set()
            await self.world.until(self._all_gone, within_s=120)
            await self._measure(0)
            self.world.removed.clear()
            self.world.events.clear()
            self.world.runtime.calls.clear()

    def _new(self) -> Pod:
        self.pods += 1
        volume = {"name": "scratch", "emptyDir": {}}
        mount = [{"name": "scratch", "mountPath": "/scratch"}]
        one = pod(
            container_data("app", volumeMounts=mount),
            volumes=[volume],
            terminationGracePeriodSeconds=1,
        )
        return named(one, f"web-{self.pods}", f"uid-{self.pods}")

    def _all_run(self) -> bool:
        statuses = [one.status.phase for one in self.world.registry.pods()]
        return statuses == ["Running"] * AT_ONCE

    def _all_gone(self) -> bool:
        runtime = self.world.runtime
        left = (runtime.sandboxes, runtime.containers, self.world.registry.targets())
        return not any(left)

    async def _measure(self, expected: int) -> None:
        self.kernel.follow()
        self.clock.advance(10)
        await self.sampler.step()
        await self.sampler.step_disks()
        assert self.sampler.latest
        shown = sum(1 for one in self.sampler.latest.pods if one.containers)
        assert shown == expected
        await asyncio.gather(self.pages.summary(), self.pages.resource(), self.pages.containers())

    async def held_at_rest(self) -> tuple[int, int]:
        """`held`, once the last pod is forgotten everywhere."""
        for _ in range(3):
            await asyncio.sleep(30)
            await self.world.until(self._all_gone, within_s=120)
            await self._measure(0)
        return held()

    async def close(self) -> None:
        await self.world.stop()
        await self.sampler.close()


def held() -> tuple[int, int]:
    """Resident bytes and open descriptors of this process, once rubbish is collected."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE"), len(os.listdir("/proc/self/fd"))


async def churn_and_compare(directory: Path, *, warm_up: int, pods: int) -> None:
    configure_allocator()  # as the agent does
    day = Day(directory)
    await day.world.start()
    try:
        await day.churn(warm_up)
        resident, descriptors = await day.held_at_rest()
        await day.churn(pods)
        resident_after, descriptors_after = await day.held_at_rest()
    finally:
        await day.close()
    assert day.pods >= warm_up + pods
    assert abs(descriptors_after - descriptors) <= max(2, 0.05 * descriptors)
    assert resident_after <= 1.05 * resident, "and it began at a level it had reached before"


@pytest.mark.looptime
@pytest.mark.may_block
async def test_hundreds_of_pods_leave_nothing_behind(tmp_path: Path) -> None:
    await churn_and_compare(tmp_path, warm_up=150, pods=150)


@pytest.mark.soak
@pytest.mark.looptime
@pytest.mark.may_block
@pytest.mark.timeout(3600)
async def test_a_day_of_ten_thousand_pods_leaves_nothing_behind(tmp_path: Path) -> None:
    await churn_and_compare(tmp_path, warm_up=2_000, pods=A_DAY)
