"""Builds what reports the node and ends its pods early: status loop, Lease, evictions, the node's
shutdown; and the health checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodeagent.config.layers import ConfigError
from nodeagent.config.provider import node_provider
from nodeagent.config.types import RESERVED_PARTS, NodeAgentConfiguration
from nodeagent.heartbeat import LeaseLoop
from nodeagent.node import collector
from nodeagent.node.collector import FactsCollector, ProblemSource
from nodeagent.node.eviction import Evictions
from nodeagent.node.logind import Logind
from nodeagent.node.rules import capacity
from nodeagent.node.rules.ending_order import groups_of
from nodeagent.node.rules.facts import DeviceFacts, MachineFacts
from nodeagent.node.rules.settings import NodeSettings, node_settings, start_problems
from nodeagent.node.shutdown import ShutdownGuard
from nodeagent.node.status_loop import StatusLoop, StatusTimes
from nodeagent.pods.cgroups.reserved import ReservedPart
from nodeagent.pods.devices import assignment
from nodeagent.pods.devices.assignment import Devices
from nodeagent.pods.pod_workers import PodWorkers
from nodeagent.stats.host.machine import read_hugepages
from nodeagent.stats.sampler import Sampler, SamplingCheck
from nodeagent.wiring.base import Base
from nodeagent.wiring.checkpoint import Checkpoints
from orch.client.informer import Informer
from orch.component.diagnostics.health import HealthChecks, SliMetrics
from orch.component.flags.features import Features
from orch.component.process.daemon import SetupError
from orch.wire import names


def build_guard(base: Base, workers: PodWorkers | None) -> ShutdownGuard | None:
    """None unless an ordered shutdown is configured and there are pods."""
    try:
        groups = groups_of(base.config)
    except ValueError as error:
        raise SetupError(str(error)) from None
    if not groups or workers is None:
        return None
    root_dir = base.settings.root_dir
    return ShutdownGuard(
        groups, base.registry, workers, base.own_node, root_dir=root_dir, manager=Logind
    )


def build_status(
    base: Base,
    sampler: Sampler,
    problem_sources: Sequence[ProblemSource],
    checkpoints: Checkpoints | None,
    devices: Devices | None = None,
) -> StatusLoop:
    """`problem_sources` report why the node is not Ready."""

    were_given = Path(base.settings.root_dir, assignment.FILE).exists()

    def listed() -> DeviceFacts:
        if devices is None:
            return DeviceFacts({}, is_first=True) if were_given else DeviceFacts()
        if not devices.is_loaded:
            return DeviceFacts()
        found = devices.inventory
        return DeviceFacts(found.counts(), found.gone(), is_first=not devices.known)

    machine = collector.machine_facts(
        base.host, hostname=base.node_name, hugepages_bytes=read_hugepages()
    )
    facts = FactsCollector(
        machine,
        sampler,
        base.watch,
        node_ip=base.options.node_ip,
        runtime=base.runtime,
        problem_sources=problem_sources,
        store_excess=checkpoints.pruner.excess_bytes if checkpoints else lambda: None,
        devices=listed,
    )
    config = base.config
    return StatusLoop(
        base.client,
        _node_settings(base, machine),
        facts.collect,
        own=base.own_node,
        times=StatusTimes(
            config.nodeStatusUpdateFrequency, config.nodeStatusReportFrequency, config.watchSilence
        ),
        settled=facts.settled,
    )


def build_lease(base: Base) -> LeaseLoop | None:
    """None without an API server; not dependent on registerNode, since it shows that we live."""
    if base.clients is None:
        return None
    duration_s = base.config.nodeLeaseDurationSeconds
    return LeaseLoop(base.clients.lease, base.node_name, duration_s=duration_s)


def build_evictions(
    base: Base, status: StatusLoop, sampler: Sampler, workers: PodWorkers | None
) -> Evictions | None:
    if workers is None:
        return None
    return Evictions(
        base.registry,
        base.counts,
        base.own_node,
        state=lambda: status.pressure,
        fresh=sampler.fresh,
        evict=workers.evict,
        longest_soft_grace_s=base.config.evictionMaxPodGracePeriod,
    )


def reserved_parts(config: NodeAgentConfiguration, features: Features) -> list[ReservedPart]:
    """The cgroups beside those of pods that are to be bounded; of compressible parts only cpu."""
    found = []
    for part, (amounts, cgroup) in RESERVED_PARTS.items():
        whole = part in config.enforceNodeAllocatable
        if not whole and f"{part}-compressible" not in config.enforceNodeAllocatable:
            continue
        reserved = capacity.parse_reserved(getattr(config, amounts))
        bounded = ReservedPart(cgroup, getattr(config, cgroup), reserved.get(capacity.CPU))
        if whole:
            bounded = replace(
                bounded,
                memory_bytes=reserved.get(capacity.MEMORY),
                pids=reserved.get(capacity.PID),
                protects=features.enabled("MemoryQoS"),
            )
        found.append(bounded)
    return found


def build_health(
    base: Base,
    sampling: SamplingCheck,
    lease: LeaseLoop | None,
    status: StatusLoop,
    informers: Sequence[Informer[Any]],
) -> tuple[HealthChecks, SliMetrics]:
    """/healthz and /livez: this process works; /readyz: what it depends on does too."""
    slis = SliMetrics()
    checks = HealthChecks(slis)
    checks.add("ping", lambda: None)
    checks.add("sampling", sampling)
    if lease:
        checks.add("lease", lease.alive)
    checks.add("runtime", base.watch.require_ready, endpoints=("readyz",))
    checks.add("registered", status.require_registered, endpoints=("readyz",))
    for informer in informers:
        name = f"informer-{informer.plural}"
        checks.add(name, informer.require_contact, endpoints=("readyz",))
    return checks, slis


def _node_settings(base: Base, machine: MachineFacts) -> NodeSettings:
    config = base.config
    try:
        settings = node_settings(
            config,
            node_name=machine.hostname,
            agent_version=names.VERSION,
            agent_port=config.port,
            node_labels=base.options.node_labels,
            features=base.features,
            provider=node_provider(config),
        )
    except (ValueError, ConfigError) as error:
        raise SetupError(str(error)) from None
    if problems := start_problems(settings, machine, base.options.node_ip):
        raise SetupError("; ".join(problems))
    return settings
