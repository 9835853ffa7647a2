"""The cost of rendering a sample's pages, compared with the usual libraries.

prometheus-client renders the same families, orjson encodes the ready dict. CPU, medians of
alternating rounds, over samples of real cgroups.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.metrics import containerstats, resource
from nodeagent.stats.reading import HostReader
from nodeagent.stats.samples import PodTarget, Sample
from nodeagent.stats.sources import Background, Sources
from nodeagent.stats.summary import build_summary
from tools.bench import cgroup_tree
from tools.bench.table import Table

SIZES = (30, 110, 330, 1000)
ROUNDS = 9
_UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Pages:
    """Microseconds per series, milliseconds per page."""

    series: int
    ours_usec: float
    client_usec: float
    resource_ms: float
    build_ms: float
    encode_ms: float


def add_rows(table: Table) -> dict[int, Pages]:
    print("\npages, CPU\n")
    print(
        "| containers | series | containerstats us per series | prometheus-client us per series "
        "| resource page ms | summary build ms | orjson alone ms |"
    )
    print("|" + "---|" * 7)
    found = {}
    for size in SIZES:
        with cgroup_tree.pods(size) as (_, targets):
            sample = _sample(targets)
        found[size] = _measure(sample)
        _print_line(size, found[size])
    for size in SIZES[1:]:
        one = found[size]
        what = f"containerstats, {size} containers"
        table.row(f"{what}, CPU us per series", one.ours_usec, at_most=0.5)
        table.row(f"{what}, cheaper than prometheus-client, x", one.client_usec / one.ours_usec,
                  at_least=10)  # fmt: skip
    one = found[330]
    whole_ms = one.build_ms + one.encode_ms
    table.row("summary, 330 containers, built and encoded, ms", whole_ms, at_most=2)
    table.row("the same, x orjson on the ready dict", whole_ms / one.encode_ms, at_most=6)
    return found


def _print_line(size: int, one: Pages) -> None:
    print(
        f"| {size} | {one.series} | {one.ours_usec:.2f} | {one.client_usec:.2f} "
        f"| {one.resource_ms:.2f} | {one.build_ms:.2f} | {one.encode_ms:.2f} |",
        flush=True,
    )


def _sample(targets: list[PodTarget]) -> Sample:
    sources = Sources(fd_budget=_UNLIMITED)
    reader = HostReader(sources, Background(sources))
    sample = reader.read(targets)
    reader.close()
    return sample


def _measure(sample: Sample) -> Pages:
    page = containerstats.render_container_metrics(sample)
    families = list(text_string_to_metric_families(page.decode()))
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    body = build_summary(sample, None, node_name="bench")
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: containerstats.render_container_metrics(sample),
        "client": lambda: generate_latest(registry),
        "resource": lambda: resource.render_resource_metrics(sample),
        "build": lambda: build_summary(sample, None, node_name="bench"),
        "encode": lambda: orjson.dumps(body),
    }
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, work in ways.items():
            costs[name].append(_cpu_usec(work))
    usec = {name: statistics.median(values) for name, values in costs.items()}
    series = sum(len(family.samples) for family in families)
    return Pages(
        series,
        usec["ours"] / series,
        usec["client"] / series,
        usec["resource"] / 1e3,
        usec["build"] / 1e3,
        usec["encode"] / 1e3,
    )


class _Fixed:
    """A collector of families that were built before."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _cpu_usec(work: Callable[[], object]) -> float:
    begun = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begun) / 1e3
