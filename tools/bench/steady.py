"""Sampling alone at 330 containers, every 10 s for a minute, in a process of its own.

    python -m tools.bench.steady PARENT CONTAINERS     (started by `add_rows`)

When CADVISOR names a binary, it does its housekeeping over the same cgroups in the same minute:
every 10 s, lengthened by its own jitter (up to twice).
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack

from nodeagent.stats.sampler import INTERVAL_S, Sampler
from nodeagent.stats.sources import Sources
from orch.component.process.daemon import freeze_gc
from orch.component.process.loops import Periodic
from orch.component.process.system import raise_open_files
from tools.bench import cadvisor, cgroup_tree, peers, processes
from tools.bench.table import Table

CONTAINERS = 330
MEASURED_S = 60.0
SETTLING_S = 5.0


def add_rows(table: Table) -> None:
    with cgroup_tree.pods(CONTAINERS) as (_, targets), ExitStack() as stack:
        parent = cgroup_tree.parent_of(targets)
        housekeeping = stack.enter_context(cadvisor.running(interval="10s", below=parent))
        command = [sys.executable, "-m", "tools.bench.steady", parent, str(CONTAINERS)]
        ours = stack.enter_context(peers.running(command))
        time.sleep(SETTLING_S)
        watched = [ours.pid] + ([housekeeping.pid] if housekeeping else [])
        before = [processes.cpu_s(pid) for pid in watched]
        time.sleep(MEASURED_S)
        used = [processes.cpu_s(pid) - was for pid, was in zip(watched, before, strict=True)]
    percents = [100 * seconds / MEASURED_S for seconds in used]
    table.row(
        f"sampling alone, {CONTAINERS} containers: CPU, % of a core", percents[0], at_most=0.3
    )
    if housekeeping:
        table.row("cAdvisor's housekeeping beside it: CPU, % of a core", percents[1])
        table.row("the same, x ours", percents[1] / max(percents[0], 1e-6), at_least=8)


async def _sample_for_ever(parent: str, containers: int) -> None:
    targets = cgroup_tree.targets_below(parent, containers)
    sampler = Sampler(targets=lambda: targets, sources=Sources())
    freeze_gc()
    await Periodic("sampling", sampler.step, interval_s=INTERVAL_S).run()


if __name__ == "__main__":
    raise_open_files(16_384)
    asyncio.run(_sample_for_ever(sys.argv[1], int(sys.argv[2])))
