"""The agent's own metrics page, computed from the live objects when it is requested.

Nothing is stored twice: every value is read from the object that owns it. Names of the `nodeagent_`
family carry no promise; those of the framework keep their stated tier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric

from nodeagent.archives.bounds import REASONS
from nodeagent.archives.reports import CheckpointCounts, StoreState
from nodeagent.heartbeat import LeaseLoop
from nodeagent.metrics import pods
from nodeagent.metrics.calls import RuntimeOperations
from nodeagent.metrics.families import Computed, counter, gauge
from nodeagent.node.shutdown import ShutdownGuard
from nodeagent.node.status_loop import StatusLoop
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.sources.mirror import MirrorPods
from nodeagent.runtime.health import RuntimeWatch
from nodeagent.stats.reading import SUPPORTED
from nodeagent.stats.sampler import Sampler
from nodeagent.watchdog import Watchdog
from orch.client.events import EventMetrics, EventRecorder
from orch.client.informer import Informer, InformerMetrics
from orch.client.metrics import RestClientMetrics
from orch.client.transport import Transport
from orch.component.diagnostics import metrics
from orch.component.diagnostics.framework_metrics import FrameworkMetrics
from orch.component.diagnostics.metrics import Registry
from orch.component.flags.features import Features
from orch.component.flags.stability import MetricPolicy, Release
from orch.component.process.clock import utc_now

if TYPE_CHECKING:
    from nodeagent.certificates.rotation import ManagedCertificate

_RESULTS = ("success", "error")


def checkpoint_metrics(counts: CheckpointCounts) -> Iterator[Metric]:
    """Checkpoints by result, their durations, archives removed, and the store's size.

    The runtime's own call is among `runtime_operations` as `checkpoint_container`.
    """
    text = "Checkpoints of containers, by result."
    results = {result: counts.results[result] for result in _RESULTS}
    yield counter("nodeagent_checkpoints", text, results, ["result"])
    yield metrics.computed(counts.durations)
    text = "Checkpoint archives removed, by the bound that was exceeded."
    removed = {reason: counts.removed[reason] for reason in REASONS}
    yield counter("nodeagent_checkpoint_archives_removed", text, removed, ["bound"])
    text = "Containers that a broken-off checkpoint left frozen, freed again."
    yield counter("nodeagent_containers_thawed", text, counts.thawed)
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
    informers: Sequence[Informer[Any]] = ()
    clients: Sequence[Transport] = ()
    certificates: Sequence[ManagedCertificate] = ()


def agent_registry(sources: MetricSources, policy: MetricPolicy) -> Registry:
    """The registry behind `/metrics`; `policy` is what the operator hides or disables."""
    registry = Registry(policy)
    registry.add_process_metrics()
    registry.register(Computed(lambda: _agent_metrics(sources)))
    registry.register(sources.operations)
    if sources.events:
        registry.register(EventMetrics(sources.events))
    if sources.clients:
        registry.register(RestClientMetrics(sources.clients))
    if sources.informers:
        registry.register(InformerMetrics(lambda: sources.informers))
    registry.register(FrameworkMetrics(sources.features, emulated=sources.emulated))
    return registry


def probes_registry(counts: PodCounts, policy: MetricPolicy) -> Registry:
    """The registry behind `/metrics/probes`."""
    page = Registry(policy)
    page.register(Computed(lambda: pods.probe_metrics(counts)))
    return page


def _agent_metrics(sources: MetricSources) -> Iterator[Metric]:
    yield gauge("nodeagent_node_name", "The node's name.", {sources.node_name: 1}, ["node"])
    yield from _heartbeat(sources)
    if sources.shutdown:
        yield from _shutdown(sources.shutdown)
    mirrors = sources.mirrors.count if sources.mirrors else 0
    yield from pods.pod_metrics(sources.registry, sources.counts, mirrors)
    yield from _measuring(sources.sampler)
    text = "How often a pressure trigger fired."
    yield counter("nodeagent_psi_trigger", text, sources.stalls, ["resource", "level", "scope"])
    if sources.checkpoints:
        yield from checkpoint_metrics(sources.checkpoints)
    yield from _certificates(sources.certificates)
    if sources.watchdog:
        text, skipped = "Keep-alives withheld, by the check that failed.", sources.watchdog.skipped
        yield counter("nodeagent_watchdog_skipped", text, skipped, ["check"])


def _certificates(managed: Sequence[ManagedCertificate]) -> Iterator[Metric]:
    """Of those that this agent renews: how long they last, and how often renewal failed."""
    by_use = {one.use: one for one in managed}
    for use, label, failures in (
        ("client", "client", "certificate_manager_client_expiration_renew_errors"),
        ("serving", "server", "server_expiration_renew_errors"),
    ):
        one = by_use.get(use)
        ends = one.ends if one else None
        text = f"Seconds until the {use} certificate that is renewed expires; +Inf without one."
        left_s = math.trunc((ends - utc_now()).total_seconds()) if ends else math.inf
        yield gauge(f"nodeagent_certificate_manager_{label}_ttl_seconds", text, left_s)
        text = f"Times that the {use} certificate could not be renewed."
        yield counter(f"nodeagent_{failures}", text, one.failures if one else 0)


def _heartbeat(sources: MetricSources) -> Iterator[Metric]:
    status, lease, runtime = sources.status, sources.lease, sources.runtime
    yield counter("nodeagent_status_reports", "Node status patches sent.", status.reports)
    yield counter("nodeagent_status_failures", "Status rounds that failed.", status.failures)
    yield gauge("nodeagent_node_ready", "1 while this node calls itself Ready.", status.ready)
    yield counter("nodeagent_runtime_checks", "Runtime status checks made.", runtime.checks)
    text = "Runtime status checks that failed."
    yield counter("nodeagent_runtime_check_failures", text, runtime.failures)
    if lease:
        yield counter("nodeagent_lease_renewals", "Renewals of the Lease.", lease.renewals)
        yield counter("nodeagent_lease_failures", "Tries to renew that failed.", lease.failures)
        text = "How long after its planned time the last renewal came, or the next is overdue."
        late_s = max(lease.late_s, lease.overdue_s())
        yield gauge("nodeagent_lease_late_seconds", text, late_s)
        text = "When the Lease was last renewed, in Unix seconds; 0 if it never was."
        name = "nodeagent_lease_last_renewal_timestamp_seconds"
        yield gauge(name, text, lease.last_renewal_unix_s)


def _shutdown(guard: ShutdownGuard) -> Iterator[Metric]:
    text = "When the last graceful shutdown began, in Unix seconds; 0 for none."
    yield gauge("nodeagent_graceful_shutdown_start_time_seconds", text, guard.began_s)
    text = "When the last graceful shutdown had ended its pods; 0 if it did not."
    yield gauge("nodeagent_graceful_shutdown_end_time_seconds", text, guard.ended_s)


def _measuring(sampler: Sampler) -> Iterator[Metric]:
    reader, latest = sampler.reader, sampler.latest
    if reader.layout.version != "none":
        version = 2 if reader.layout.version == "v2" else 1
        yield gauge("nodeagent_cgroup_version", "Version of the cgroup tree.", version)
    if latest:
        name, durations_s = "nodeagent_collector_duration_seconds", sampler.durations_s()
        yield gauge(name, "How long the last reading took.", durations_s, ["collector"])
    errors: Mapping[str, int] = latest.errors if latest else {}
    text = "Kernel files that could not be read or understood, by kind."
    yield counter("nodeagent_read_errors", text, errors, ["kind"])
    text = "Kernel files that took 10 ms or more to read, by kind."
    yield counter("nodeagent_slow_reads", text, reader.slow_reads, ["kind"])
    text, walks = "Walks of directories that exceeded their budget.", sampler.background.directories
    yield counter("nodeagent_directory_walks_given_up", text, walks.walks_given_up)
    states = {key: state == SUPPORTED for key, state in reader.psi.items()}
    text = "1 where pressure stalls are reported, 0 where they are disabled or absent."
    yield gauge("nodeagent_psi_supported", text, states, ["source", "resource"])
