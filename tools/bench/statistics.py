"""Every promised figure of the statistics, in a run of about ten minutes.

Sampling compared with a C program, pages with other ways to render them, other exporters on the
same cgroups, the served agent, and the whole agent with real pods. The last output is the table of
limits for docs/benchmarks.md. `BENCH_PARTS=sampling,rendering` runs only some parts.
"""

from __future__ import annotations

import os
import resource
import time

from orch.component.process.daemon import freeze_gc
from tools.bench import (
    cadvisor,
    cgroup_tree,
    peers,
    pressure,
    rendering,
    sampling,
    serving,
    sleeping,
    steady,
)
from tools.bench.table import Table


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    _raise_descriptor_limit()
    begun_s = time.monotonic()
    table = Table()
    wanted = os.environ.get("BENCH_PARTS", "")
    parts = {
        "sampling": sampling.add_rows,
        "rendering": _rendering,
        "steady": steady.add_rows,
        "pressure": pressure.add_rows,
        "serving": serving.add_rows,
        "sleeping": sleeping.add_rows,
    }
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}\n")
    for name in wanted.split(",") if wanted else parts:
        parts[name](table)
    took_s, load = time.monotonic() - begun_s, os.getloadavg()[0]
    print(f"\n{table.markdown()}\n")
    print(f"{table.missed} limits missed, {took_s:.0f} s, load at the end {load:.1f}")
    return table.missed


def _rendering(table: Table) -> None:
    freeze_gc()  # as the daemons do when they have started
    pages = rendering.add_rows(table)
    exporter = peers.node_exporter()
    if exporter is None:
        table.note("node exporter", "not installed (Debian package prometheus-node-exporter)")
    else:
        table.note("node exporter, a scrape", str(exporter))
    for size in rendering.SIZES[1:]:
        with cgroup_tree.pods(size) as (_, targets):
            page = cadvisor.scraped(below=cgroup_tree.parent_of(targets))
        if page is None:
            table.note("cAdvisor", "not given (CADVISOR=path)")
            return
        table.note(f"cAdvisor, {size} containers, a scrape", str(page))
        table.row(f"containerstats, {size} containers, cheaper per series than cAdvisor, x",
                  page.usec_per_series / pages[size].ours_usec, at_least=10)  # fmt: skip


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
