"""What a sample costs, and what a page costs, beside the least that they could.

One pass over real, empty cgroups at four sizes: our readers, with texts that stay and with texts
that all change, beside a C program that does the same reads. Then the pages made of such a
sample, beside prometheus-client on the same data and orjson on the ready dict. Figures are CPU
microseconds, medians of alternated rounds. Under two minutes.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.metrics import containerstats
from nodeagent.metrics import resource as resource_page
from nodeagent.stats import host
from nodeagent.stats.background import Background
from nodeagent.stats.cgroups import CgroupReaders
from nodeagent.stats.layout import POSITIONS, Layout
from nodeagent.stats.placement import Placement
from nodeagent.stats.reading import Reader
from nodeagent.stats.samples import PodTarget, Sample
from nodeagent.stats.sources import Sources
from nodeagent.stats.summary import build_summary
from orch.component.daemon import freeze_gc
from tools.bench import cgrouptree, loopdelay, peers
from tools.bench.peers import CReader

SIZES = (30, 110, 500, 1000)
ROUNDS = 5
COLD_PASSES = 3
COLD_PAUSE_S = 0.4
INTERVAL_S = 10.0
UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU microseconds per cgroup."""

    cgroups: int
    files: float
    c_kept: float
    c_open: float
    c_cold: float
    same: float
    changed: float
    cold: float
    by_name: float
    wall_ms: float
    worst_ms: float


def main() -> None:
    """Print both tables; a machine that allows no cgroups says so."""
    _raise_descriptor_limit()
    try:
        samples = _passes()
    except cgrouptree.NoCgroups as error:
        print(error)
        return
    freeze_gc()  # as the daemons do when they have started
    _pages(samples)
    loopdelay.print_table()
    print()
    print(peers.node_exporter_row())
    own = host.read_own_usage()
    print(f"this process: {own.resident_bytes / 2**20:.0f} MiB resident after all of it")


def _passes() -> dict[int, Sample]:
    print("one pass, CPU microseconds per cgroup (containers and their pods)\n")
    print(
        "| cgroups | files each | C kept | C open | ours, same texts | ours, all changed | by name "
        "| C cold | ours cold | x hot | x changed | x cold | wall p50 / max ms | % of a core |"
    )
    print("|" + "---|" * 14)
    samples = {}
    for size in SIZES:
        with cgrouptree.pods(size) as (layout, targets):
            costs = _measure(layout, Placement(layout).all(targets))
            samples[size] = _sample(targets)
            cadvisor = peers.cadvisor_row(costs.cgroups) if size == SIZES[-1] else ""
        _print_row(costs)
    print(f"\n{cadvisor}")
    return samples


def _print_row(costs: Costs) -> None:
    steady = costs.cold * costs.cgroups / 1e6 / INTERVAL_S * 100
    columns = [
        f"{costs.cgroups}",
        f"{costs.files:.1f}",
        *(
            f"{value:.1f}"
            for value in (costs.c_kept, costs.c_open, costs.same, costs.changed, costs.by_name)
        ),
        f"{costs.c_cold:.1f}",
        f"{costs.cold:.1f}",
        f"{costs.same / costs.c_kept:.2f}",
        f"{costs.changed / costs.c_kept:.2f}",
        f"{costs.cold / costs.c_cold:.2f}",
        f"{costs.wall_ms:.1f} / {costs.worst_ms:.1f}",
        f"{steady:.2f}",
    ]
    print(f"| {' | '.join(columns)} |", flush=True)


def _measure(layout: Layout, paths: list[str]) -> Costs:
    kept, named = CgroupReaders(layout, fd_budget=UNLIMITED), CgroupReaders(layout, fd_budget=0)
    one_pass(kept, paths)
    one_pass(named, paths)
    files = _open_files(kept)
    with peers.c_reader(files) as c:
        if c is None:
            raise cgrouptree.NoCgroups("no C compiler: install gcc to measure the limit")
        costs = _alternate(kept, named, paths, c, len(files))
    kept.close()
    return costs


def _alternate(
    kept: CgroupReaders, named: CgroupReaders, paths: list[str], c: CReader, files: int
) -> Costs:
    """Every way in every round, so that a noisy neighbour disturbs all alike."""
    c_kept, c_open, same, changed, by_name, walls = [], [], [], [], [], []
    for _ in range(ROUNDS):
        c_kept += c.passes("kept", 3)
        same.append(_cpu(lambda: one_pass(kept, paths)))
        walls.append(_wall(lambda: one_pass(kept, paths)))
        forget_texts(kept)
        changed.append(_cpu(lambda: one_pass(kept, paths)))
        by_name.append(_cpu(lambda: one_pass(named, paths)))
        c_open += c.passes("open", 1)
    cold, c_cold = [], []
    for _ in range(COLD_PASSES):
        time.sleep(COLD_PAUSE_S)
        cold.append(_cpu(lambda: one_pass(kept, paths)))
        c_cold += c.passes("kept", 1, pause_ms=int(COLD_PAUSE_S * 1000))

    def each(usec: Iterable[float]) -> float:
        return statistics.median(usec) / len(paths)

    return Costs(
        len(paths),
        files / len(paths),
        each(c_kept),
        each(c_open),
        each(c_cold),
        each(same),
        each(changed),
        each(cold),
        each(by_name),
        statistics.median(walls) / 1e3,
        max(walls) / 1e3,
    )


def one_pass(readers: CgroupReaders, paths: Iterable[str]) -> None:
    for path in paths:
        readers.read(path)


def forget_texts(readers: CgroupReaders) -> None:
    """Make the next pass parse everything, as if no text were the same as before."""
    for reader in readers._readers.values():
        reader._raw = [b""] * POSITIONS


def _open_files(readers: CgroupReaders) -> list[str]:
    return [one.path for reader in readers._readers.values() for one in reader.files]


def _sample(targets: list[PodTarget]) -> Sample:
    reader = Reader(Sources(fd_budget=UNLIMITED), Background())
    sample = reader.read(targets)
    reader.close()
    return sample


def _pages(samples: dict[int, Sample]) -> None:
    print("\npages\n")
    print(
        "| containers | series | containerstats us/series | prometheus-client us/series | ratio "
        "| resource page ms | summary build ms | encode ms | build+encode / encode |"
    )
    print("|" + "---|" * 9)
    for size, sample in samples.items():
        _print_pages(size, sample)


def _print_pages(size: int, sample: Sample) -> None:
    page = containerstats.render_container_metrics(sample)
    families = list(text_string_to_metric_families(page.decode()))
    series = sum(len(family.samples) for family in families)
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    ours, theirs, resources, builds, encodes = [], [], [], [], []
    body = build_summary(sample, None, node_name="bench")
    for _ in range(ROUNDS):
        ours.append(_cpu(lambda: containerstats.render_container_metrics(sample)))
        theirs.append(_cpu(lambda: generate_latest(registry)))
        resources.append(_cpu(lambda: resource_page.render_resource_metrics(sample)))
        builds.append(_cpu(lambda: build_summary(sample, None, node_name="bench")))
        encodes.append(_cpu(lambda: orjson.dumps(body)))
    own, other = statistics.median(ours) / series, statistics.median(theirs) / series
    build, encode = statistics.median(builds) / 1e3, statistics.median(encodes) / 1e3
    print(
        f"| {size} | {series} | {own:.2f} | {other:.2f} | {other / own:.1f} "
        f"| {statistics.median(resources) / 1e3:.2f} | {build:.2f} | {encode:.2f} "
        f"| {(build + encode) / encode:.1f} |",
        flush=True,
    )


class _Fixed:
    """A collector that hands out families made before."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _cpu(work: Callable[[], object]) -> float:
    begun = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begun) / 1e3


def _wall(work: Callable[[], object]) -> float:
    begun = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - begun) / 1e3


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
