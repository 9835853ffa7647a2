"""The agent's own metrics page, computed from the live objects when it is requested.

Nothing is stored twice: every value is read from the object that owns it. Names of the `nodeagent_`
family carry no promise; those of the framework keep their stated tier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from nodeagent.archives.bounds import REASONS
from nodeagent.archives.reports import CheckpointCounts, StoreState
from nodeagent.heartbeat import LeaseLoop
from nodeagent.metrics import pods
from nodeagent.metrics.calls import RuntimeOperations
from nodeagent.metrics.families import by_label, counter, counters, gauge, gauges
from nodeagent.node.shutdown import ShutdownGuard
from nodeagent.node.status_loop import StatusLoop
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.sources.mirror import MirrorPods
from nodeagent.runtime.health import RuntimeWatch
from nodeagent.stats.sampler import Sampler
from nodeagent.watchdog import Watchdog
from orch.client.events import EventMetrics, EventRecorder
from orch.component.diagnostics import metrics
from orch.component.diagnostics.framework_metrics import FrameworkMetrics
from orch.component.diagnostics.metrics import Registry
from orch.component.flags.features import Features
from orch.component.flags.stability import MetricPolicy, Release

_RESULTS = ("success", "error")
_PSI_SUPPORTED = "supported"


def checkpoint_metrics(counts: CheckpointCounts) -> Iterator[Metric]:
    """Checkpoints by result, their durations, archives removed, and the store's size.

    The runtime's own call is among `runtime_operations` as `checkpoint_container`.
    """
    yield counters(
        "nodeagent_checkpoints",
        "Checkpoints of containers, by result.",
        ["result"],
        [((result,), counts.results[result]) for result in _RESULTS],
    )
    yield metrics.computed(counts.durations)
    yield counters(
        "nodeagent_checkpoint_archives_removed",
        "Checkpoint archives removed, by the bound that was exceeded.",
        ["bound"],
        [((reason,), counts.removed[reason]) for reason in REASONS],
    )
    yield counter(
        "nodeagent_containers_thawed",
        "Containers that a broken-off checkpoint left frozen, freed again.",
        counts.thawed,
    )
    if counts.store:
        yield from _store(counts.store)


def _store(store: StoreState) -> Iterator[Metric]:
    for name, text, value in (
        ("archives", "Checkpoint archives in the store.", store.archives),
        ("pinned_archives", "Checkpoint archives that are pinned.", store.pinned),
        ("store_bytes", "Bytes of all checkpoint archives.", store.used_bytes),
        ("store_limit_bytes", "Bytes they may take, 0 without a limit.", store.limit_bytes),
        ("store_free_bytes", "Bytes free on the store's file system.", store.free_bytes),
        ("store_excess_bytes", "Bytes pinned beyond what may be held.", store.excess_bytes),
    ):
        yield gauge(f"nodeagent_checkpoint_{name}", text, value)


@dataclass(frozen=True, slots=True)
class MetricSources:
    """The objects whose state the page shows; None where this agent runs without it."""

    node_name: str
    features: Features
    emulated: Release
    sampler: Sampler
    registry: PodRegistry
    counts: PodCounts
    runtime: RuntimeWatch
    status: StatusLoop
    lease: LeaseLoop | None
    watchdog: Watchdog | None
    shutdown: ShutdownGuard | None
    operations: RuntimeOperations
    stalls: Mapping[tuple[str, str, str], int]  # by resource, level and scope of the trigger
    checkpoints: CheckpointCounts | None = None
    events: EventRecorder | None = None
    mirrors: MirrorPods | None = None


def agent_registry(sources: MetricSources, policy: MetricPolicy) -> Registry:
    """The registry behind `/metrics`; `policy` is what the operator hides or disables."""
    registry = Registry(policy)
    registry.add_process_metrics()
    registry.register(_AgentCollector(sources))
    registry.register(sources.operations)
    if sources.events:
        registry.register(EventMetrics(sources.events))
    registry.register(FrameworkMetrics(sources.features, emulated=sources.emulated))
    return registry


def probes_registry(counts: PodCounts, policy: MetricPolicy) -> Registry:
    """The registry behind `/metrics/probes`."""
    page = Registry(policy)
    page.register(_ProbesCollector(counts))
    return page


class _ProbesCollector(Collector):
    def __init__(self, counts: PodCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        return pods.probe_metrics(self._counts)


class _AgentCollector(Collector):
    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        name = self._sources.node_name
        yield gauges("nodeagent_node_name", "The node's name.", ["node"], [((name,), 1)])
        yield from self._heartbeat()
        if self._sources.shutdown:
            yield from self._shutdown(self._sources.shutdown)
        mirrors = self._sources.mirrors.count if self._sources.mirrors else 0
        yield from pods.pod_metrics(self._sources.registry, self._sources.counts, mirrors)
        yield from self._measuring()
        if self._sources.checkpoints:
            yield from checkpoint_metrics(self._sources.checkpoints)
        if self._sources.watchdog:
            yield counters(
                "nodeagent_watchdog_skipped",
                "Keep-alives withheld, by the check that failed.",
                ["check"],
                by_label(self._sources.watchdog.skipped),
            )

    def _heartbeat(self) -> Iterator[Metric]:
        status, lease, runtime = self._sources.status, self._sources.lease, self._sources.runtime
        yield counter("nodeagent_status_reports", "Node status patches sent.", status.reports)
        yield counter("nodeagent_status_failures", "Status rounds that failed.", status.failures)
        yield gauge("nodeagent_node_ready", "1 while this node calls itself Ready.", status.ready)
        yield counter("nodeagent_runtime_checks", "Runtime status checks made.", runtime.checks)
        yield counter(
            "nodeagent_runtime_check_failures",
            "Runtime status checks that failed.",
            runtime.failures,
        )
        if lease:
            yield counter("nodeagent_lease_renewals", "Renewals of the Lease.", lease.renewals)
            yield counter("nodeagent_lease_failures", "Tries to renew that failed.", lease.failures)
            yield gauge(
                "nodeagent_lease_late_seconds",
                "How long after its planned time the last renewal came.",
                lease.late_s,
            )

    def _shutdown(self, guard: ShutdownGuard) -> Iterator[Metric]:
        yield gauge(
            "nodeagent_graceful_shutdown_start_time_seconds",
            "When the last graceful shutdown began, in Unix seconds; 0 for none.",
            guard.began_s,
        )
        yield gauge(
            "nodeagent_graceful_shutdown_end_time_seconds",
            "When the last graceful shutdown had ended its pods; 0 if it did not.",
            guard.ended_s,
        )

    def _measuring(self) -> Iterator[Metric]:
        sampler = self._sources.sampler
        reader, latest = sampler.reader, sampler.latest
        if reader.layout.version != "none":
            version = 2 if reader.layout.version == "v2" else 1
            yield gauge("nodeagent_cgroup_version", "Version of the cgroup tree.", version)
        if latest:
            yield gauges(
                "nodeagent_collector_duration_seconds",
                "How long the last reading took.",
                ["collector"],
                [((collector,), took_s) for collector, took_s in sampler.durations_s().items()],
            )
        yield counters(
            "nodeagent_read_errors",
            "Kernel files that could not be read or understood, by kind.",
            ["kind"],
            by_label(latest.errors if latest else {}),
        )
        yield counters(
            "nodeagent_slow_reads",
            "Kernel files that took 10 ms or more to read, by kind.",
            ["kind"],
            by_label(reader.slow_reads),
        )
        yield counter(
            "nodeagent_directory_walks_given_up",
            "Walks of directories that exceeded their budget.",
            sampler.background.directories.walks_given_up,
        )
        yield counters(
            "nodeagent_psi_trigger",
            "How often a pressure trigger fired.",
            ["resource", "level", "scope"],
            sorted(self._sources.stalls.items()),
        )
        yield gauges(
            "nodeagent_psi_supported",
            "1 where pressure stalls are reported, 0 where they are disabled or absent.",
            ["source", "resource"],
            [(key, state == _PSI_SUPPORTED) for key, state in sorted(reader.psi.items())],
        )
