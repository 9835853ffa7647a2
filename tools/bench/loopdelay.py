"""How late the event loop gets while 330 containers are sampled and scraped."""

from __future__ import annotations

import asyncio
import statistics

from nodeagent.metrics.pages import StatsPages
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import PodTarget
from nodeagent.stats.sources import Sources
from orch.component import loops
from orch.component.daemon import freeze_gc
from tools.bench import cgrouptree

CONTAINERS = 330
SECONDS = 6.0
EVERY_S = 0.2  # a pass and every page: fifty times as often as in the agent
_TICK_S = 0.001


def print_table() -> None:
    """Two rows: idle, and under load; milliseconds."""
    with cgrouptree.pods(CONTAINERS) as (_, targets):
        idle, busy, passes = asyncio.run(_measure(targets))
    print(f"\nevent loop, {CONTAINERS} containers, a pass and three pages every {EVERY_S} s\n")
    print("| | p50 ms | p99 ms | p99.9 ms | max ms |")
    print("|---|---|---|---|---|")
    for name, delays in (("idle", idle), (f"{passes} passes", busy)):
        ranks = (0.5, 0.99, 0.999, 1.0)
        print(f"| {name} | {' | '.join(f'{_rank(delays, rank):.1f}' for rank in ranks)} |")
    print(f"mean delay {statistics.fmean(busy):.2f} ms")


async def _measure(targets: list[PodTarget]) -> tuple[list[float], list[float], int]:
    sampler = Sampler(targets=lambda: targets, sources=Sources(fd_budget=1_000_000))
    pages = StatsPages(sampler, node_name="bench", max_age_s=EVERY_S)
    await sampler.step()
    freeze_gc()
    idle = await _delays(SECONDS / 2)
    working = loops.spawn(_work(sampler, pages), name="work")
    before = sampler.beats
    busy = await _delays(SECONDS)
    await loops.cancel(working)
    passes = sampler.beats - before
    await sampler.close()
    return idle, busy, passes


async def _work(sampler: Sampler, pages: StatsPages) -> None:
    while True:
        await sampler.step()
        await asyncio.gather(pages.containers(), pages.resource(), pages.summary())
        await asyncio.sleep(EVERY_S)


async def _delays(seconds: float) -> list[float]:
    loop = asyncio.get_running_loop()
    end_s, delays = loop.time() + seconds, []
    while loop.time() < end_s:
        begun_s = loop.time()
        await asyncio.sleep(_TICK_S)
        delays.append((loop.time() - begun_s - _TICK_S) * 1e3)
    return delays


def _rank(values: list[float], rank: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * rank), len(ordered) - 1)]
