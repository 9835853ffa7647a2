"""The cost that looking for pressure adds to sampling: 330 idle containers, by turns, in a process.

A quiet machine is only asked whether it is quiet. While it is stalled, a closer look follows the
first two readings and then every twelfth: its cost is spread over twelve.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable

from nodeagent.pressure import evidence
from nodeagent.pressure.causes import rank
from nodeagent.pressure.closer import CloserReader
from nodeagent.pressure.watch import PressureWatch
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.sources import Sources
from tools.bench import cgroup_tree
from tools.bench.table import Table

CONTAINERS = 330
ROUNDS = 25
_READINGS_PER_LOOK = 12
_PAUSE_S = 0.3  # bases of rates are at least half a second apart


def add_rows(table: Table) -> None:
    with cgroup_tree.pods(CONTAINERS) as (_, targets):
        parent = cgroup_tree.parent_of(targets)
        alone, looking, closer = asyncio.run(_measure(targets, parent))
    what = f"looking for pressure, {CONTAINERS} containers"
    table.row(f"{what}, quiet: CPU of a reading, % more", 100 * looking / alone, at_most=5)
    spread = closer / _READINGS_PER_LOOK
    table.row(f"{what}, stalled: CPU of a reading, % more", 100 * (looking + spread) / alone,
              at_most=5)  # fmt: skip
    table.note(f"{what}, a closer look", f"{closer / 1e3:.1f} ms of CPU")


async def _measure(targets: list, parent: str) -> tuple[float, float, float]:  # type: ignore[type-arg]
    """Median CPU microseconds of a reading, a look at it, and a closer look with its judgement."""
    sources = Sources()
    sampler = Sampler(targets=lambda: targets, sources=sources)
    reader = CloserReader(
        sources, CgroupReaders(sampler.reader.layout, fd_budget=0), pods_cgroup=parent
    )
    cpus = os.cpu_count() or 1
    watch = PressureWatch(sampler, reader, node_name="bench", cpus=cpus)
    costs: dict[str, list[float]] = {"alone": [], "looking": [], "closer": []}
    before = None
    for _ in range(ROUNDS):
        await asyncio.sleep(_PAUSE_S)
        begun_ns = time.process_time_ns()
        await sampler.step()
        costs["alone"].append((time.process_time_ns() - begun_ns) / 1e3)
        costs["looking"].append(_cpu(watch.look))
        latest = sampler.latest
        base = sampler.base_of(latest) if latest else None
        if latest is None or base is None:
            continue
        begun_ns = time.process_time_ns()
        after = reader.read(latest)
        looks = (before, after) if before else None
        rank.causes_of(evidence.evidence(base, latest, cpus=cpus, looks=looks))
        costs["closer"].append((time.process_time_ns() - begun_ns) / 1e3)
        before = after
    await sampler.close()
    alone, looking, closer = (statistics.median(each) for each in costs.values())
    return alone, looking, closer


def _cpu(work: Callable[[], object]) -> float:
    begun_ns = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun_ns) / 1e3
