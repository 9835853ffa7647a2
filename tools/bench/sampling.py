"""The cost of a sample, compared with the least possible.

A pass over real, empty cgroups at five sizes: our readers, with unchanged and with all new texts,
a C program that does the same reads on open descriptors, and cAdvisor when CADVISOR names its
binary; in turns, so that a noisy neighbour affects all alike. CPU microseconds per cgroup, medians.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nodeagent.stats.cgroup.layout import Layout
from nodeagent.stats.cgroup.readers import CgroupPaths, CgroupReaders
from tools.bench import cadvisor, cgroup_tree, peers
from tools.bench.client import percentile
from tools.bench.peers import CReader
from tools.bench.table import Table

SIZES = (30, 110, 330, 500, 1000)
FLAT_FROM = 110
ROUNDS = 15
COLD_PASSES = 5
COLD_PAUSE_S = 0.4
PEER_PAUSE_S = 0.2  # its garbage is its own
UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU microseconds per cgroup; latency of a whole pass in milliseconds."""

    containers: int
    cgroups: int
    files: float
    c_kept: float
    c_open: float
    c_cold: float
    same: float
    changed: float
    cold: float
    by_name: float
    cadvisor: float | None
    wall_p50_ms: float
    wall_p99_ms: float


def add_rows(table: Table) -> dict[int, Costs]:
    """NoCgroups where this machine allows none."""
    _print_head()
    costs = {}
    for size in SIZES:
        with cgroup_tree.pods(size) as (layout, targets):
            paths = CgroupPaths(layout).all(targets)
            with cadvisor.running("1h", below=cgroup_tree.parent_of(targets)) as peer:
                costs[size] = _measure(size, layout, paths, peer)
        _print_line(costs[size])
    for one in costs.values():
        judge(table, one)
    table.row("per-cgroup cost, 110 to 1,000 containers, away from their mean, %",
              _unevenness(costs.values()), at_most=25)  # fmt: skip
    return costs


def judge(table: Table, one: Costs) -> None:
    """The rows of one size; the limit beside cAdvisor holds from 110 containers on."""
    what = f"pass, {one.containers} containers"
    table.row(f"{what}, texts unchanged, x C", one.same / one.c_kept, at_most=2)
    table.row(f"{what}, every text new, x C", one.changed / one.c_kept, at_most=2)
    table.row(f"{what}, after a pause, x C", one.cold / one.c_cold, at_most=3)
    if one.cadvisor is not None:
        limit = 8 if one.containers >= FLAT_FROM else None
        table.row(f"{what}, texts unchanged, cheaper than cAdvisor, x",
                  one.cadvisor / one.same, at_least=limit)  # fmt: skip
        table.row(f"{what}, every text new, cheaper than cAdvisor, x",
                  one.cadvisor / one.changed, at_least=limit)  # fmt: skip


def _unevenness(costs: Iterable[Costs]) -> float:
    """How far the farthest of the larger sizes is from their mean, in percent."""
    each = [one.same for one in costs if one.containers >= FLAT_FROM]
    mean = statistics.fmean(each)
    return max(abs(value - mean) for value in each) / mean * 100


def _print_head() -> None:
    print("one pass, CPU microseconds per cgroup (containers and their pods)\n")
    print(
        "| containers | cgroups | files each | C kept | C open | ours, same texts | ours, all new "
        "| ours by name | cAdvisor | C after a pause | ours after a pause | pass p50 / p99 ms |"
    )
    print("|" + "---|" * 12)


def _print_line(costs: Costs) -> None:
    each = (costs.files, costs.c_kept, costs.c_open, costs.same, costs.changed, costs.by_name,
            costs.cadvisor, costs.c_cold, costs.cold)  # fmt: skip
    columns = [str(costs.containers), str(costs.cgroups)]
    columns += ["-" if value is None else f"{value:.1f}" for value in each]
    columns.append(f"{costs.wall_p50_ms:.1f} / {costs.wall_p99_ms:.1f}")
    print(f"| {' | '.join(columns)} |", flush=True)


def _measure(
    containers: int, layout: Layout, paths: list[str], peer: cadvisor.Running | None
) -> Costs:
    kept, named = CgroupReaders(layout, fd_budget=UNLIMITED), CgroupReaders(layout, fd_budget=0)
    before = _open_files()
    one_pass(kept, paths)
    files = sorted(_open_files() - before)
    one_pass(named, paths)
    with peers.c_reader(files) as c:
        if c is None:
            raise cgroup_tree.NoCgroups("no C compiler: install gcc to measure the limit")
        costs = _alternate(kept, named, paths, c, peer)
    kept.close()
    walls, theirs = costs["walls"], costs.pop("cadvisor")
    each = {name: statistics.median(values) / len(paths) for name, values in costs.items()}
    return Costs(
        containers=containers,
        cgroups=len(paths),
        files=len(files) / len(paths),
        c_kept=each["c_kept"],
        c_open=each["c_open"],
        c_cold=each["c_cold"],
        same=each["same"],
        changed=each["changed"],
        cold=each["cold"],
        by_name=each["by_name"],
        cadvisor=statistics.median(theirs) if theirs else None,
        wall_p50_ms=statistics.median(walls) / 1e3,
        wall_p99_ms=percentile(walls, 990) / 1e3,
    )


def _alternate(
    kept: CgroupReaders,
    named: CgroupReaders,
    paths: list[str],
    c: CReader,
    peer: cadvisor.Running | None,
) -> dict[str, list[float]]:
    """CPU microseconds of whole passes, by kind.

    `walls` is the latency of unchanged ones; those of `cadvisor` are per cgroup already.
    """
    names = (
        "c_kept", "c_open", "c_cold", "same", "changed", "cold", "by_name", "cadvisor", "walls"
    )  # fmt: skip
    costs: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(ROUNDS):
        costs["c_kept"] += c.passes("kept", 1)
        costs["same"].append(_cpu(lambda: one_pass(kept, paths)))
        costs["walls"].append(_wall(lambda: one_pass(kept, paths)))
        kept.forget_texts()
        costs["changed"].append(_cpu(lambda: one_pass(kept, paths)))
        if round_ % 3 == 0:
            costs["by_name"].append(_cpu(lambda: one_pass(named, paths)))
            costs["c_open"] += c.passes("open", 1)
        if peer:
            costs["cadvisor"].append(cadvisor.pass_usec(peer))
            time.sleep(PEER_PAUSE_S)
    for _ in range(COLD_PASSES):
        time.sleep(COLD_PAUSE_S)
        costs["cold"].append(_cpu(lambda: one_pass(kept, paths)))
        costs["c_cold"] += c.passes("kept", 1, pause_ms=int(COLD_PAUSE_S * 1000))
    return costs


def one_pass(readers: CgroupReaders, paths: Iterable[str]) -> None:
    for path in paths:
        readers.read(path)


def _open_files() -> set[str]:
    """The paths of this process's descriptors."""
    return {os.path.realpath(entry.path) for entry in os.scandir("/proc/self/fd")}


def _cpu(work: Callable[[], object]) -> float:
    begun = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begun) / 1e3


def _wall(work: Callable[[], object]) -> float:
    begun = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - begun) / 1e3
