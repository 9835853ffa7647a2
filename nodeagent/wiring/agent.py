"""The parts of one agent, built once from options and configuration, and how they are connected.

`main` runs them; nothing else constructs. A part that is missing on this host (no API server, no
runtime, no pressure stalls) is left out here and said in `missing`; the others do without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nodeagent import triggers as nodeagent_triggers
from nodeagent.auth.access import Access
from nodeagent.config.current import CurrentConfig
from nodeagent.config.layers import ConfigError
from nodeagent.config.options import Options
from nodeagent.config.provider import node_provider
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.heartbeat import LeaseLoop
from nodeagent.metrics import agent as agent_metrics
from nodeagent.metrics.calls import HttpMetrics, RuntimeOperations
from nodeagent.metrics.pages import StatsPages
from nodeagent.node import collector
from nodeagent.node.collector import FactsCollector
from nodeagent.node.eviction import Evictions
from nodeagent.node.rules.facts import MachineFacts
from nodeagent.node.rules.settings import NodeSettings, node_settings, start_problems
from nodeagent.node.shutdown import ShutdownGuard
from nodeagent.node.status_loop import StatusLoop, StatusTimes
from nodeagent.pods.pod_workers import PodWorkers
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.runtime.base import ContainerRuntime
from nodeagent.runtime.cri import CriRuntime
from nodeagent.runtime.health import RuntimeWatch
from nodeagent.runtime.verdict import DOWN_AFTER_S
from nodeagent.server import Services
from nodeagent.stats.host.machine import HostFacts, read_host_facts, read_hugepages
from nodeagent.stats.sampler import Sampler
from nodeagent.triggers import PressureTriggers
from nodeagent.watchdog import Check, Watchdog
from nodeagent.wiring import access as wiring_access
from nodeagent.wiring import checkpoint, node, pods
from nodeagent.wiring.checkpoint import Checkpoints
from nodeagent.wiring.stats import Measuring, SamplingCheck, build_measuring, pods_cgroup
from orch.client.events import EventRecorder
from orch.client.kubeconfig import load_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.diagnostics.health import HealthChecks, SliMetrics
from orch.component.diagnostics.zpages import ZPages
from orch.component.flags.features import Features
from orch.component.flags.stability import MetricPolicy, Release
from orch.component.process.daemon import SetupError
from orch.component.process.notify import Notifier
from orch.wire import names

log = logging.getLogger(__name__)

DISK_INTERVAL_S = 60.0
_LEASE_TIMEOUT_S = 10.0


@dataclass
class Parts:
    """Everything the agent's loops and handlers work with."""

    node_name: str
    current: CurrentConfig
    features: Features
    emulated: Release
    access: Access
    host: HostFacts
    registry: PodRegistry
    measuring: Measuring
    sampling: SamplingCheck
    runtime: ContainerRuntime | None
    operations: RuntimeOperations
    runtime_watch: RuntimeWatch
    triggers: PressureTriggers | None
    status: StatusLoop
    lease: LeaseLoop | None
    workers: PodWorkers | None
    evictions: Evictions | None
    shutdown: ShutdownGuard | None
    checkpoints: Checkpoints | None
    events: EventRecorder | None
    health: HealthChecks
    slis: SliMetrics
    transports: tuple[Transport, ...]
    missing: tuple[str, ...]  # what this agent runs without, one phrase each

    def watchdog(self, notifier: Notifier, *, interval_s: float) -> Watchdog:
        """Keep-alives that depend on this process alone, not on API server or runtime."""
        return Watchdog(notifier, self.liveness(), interval_s=interval_s)

    def liveness(self) -> dict[str, Check]:
        """What must go on for this process to count as alive, by name; a check raises to fail."""
        checks: dict[str, Callable[[], None]] = {"sampling": self.sampling}
        if self.lease:
            checks["lease"] = self.lease.alive
        return {name: _at_once(check) for name, check in checks.items()}

    def services(self, watchdog: Watchdog | None, policy: MetricPolicy, zpages: ZPages) -> Services:
        """What the HTTP handlers call."""
        metrics = agent_metrics.agent_registry(
            agent_metrics.Sources(
                node_name=self.node_name,
                features=self.features,
                emulated=self.emulated,
                sampler=self.measuring.sampler,
                registry=self.registry,
                runtime=self.runtime_watch,
                status=self.status,
                lease=self.lease,
                shutdown=self.shutdown,
                watchdog=watchdog,
                operations=self.operations,
                stalls=self.triggers.counts if self.triggers else {},
                checkpoints=self.checkpoints.counts if self.checkpoints else None,
                events=self.events,
            ),
            policy,
        )
        pages = StatsPages(
            self.measuring.sampler,
            node_name=self.node_name,
            psi=self.features.enabled("NodeAgentPSI"),
            host=self.host,
        )
        return Services(
            access=self.access,
            config=lambda: self.current.value,
            features=self.features,
            zpages=zpages,
            pages=pages,
            registry=self.registry,
            checkpoints=self.checkpoints.service if self.checkpoints else None,
            health=self.health,
            slis=self.slis,
            metrics=metrics,
            probes=agent_metrics.probes_registry(self.registry, policy),
            http=HttpMetrics(metrics),
        )

    async def stop_checkpoints(self) -> None:
        """Break off checkpoints under way, and let their containers run again."""
        if self.checkpoints:
            await self.checkpoints.service.close()

    async def recover(self) -> None:
        """Tidy up what an agent that was killed during a checkpoint left behind."""
        if self.checkpoints:
            await self.checkpoints.service.recover()

    async def close(self) -> None:
        if self.triggers:
            self.triggers.close()
        await self.measuring.sampler.close()
        for transport in self.transports:
            await transport.close()
        if self.runtime:
            await self.runtime.close()


def build(options: Options, current: CurrentConfig, features: Features) -> Parts:
    """Construct and connect everything; SetupError for what cannot work on this host."""
    config = current.value
    host = read_host_facts()
    node_name = (options.hostname_override or host.hostname).lower()
    operations = RuntimeOperations()
    runtime = _runtime(config, operations)
    client, lease_client = _clients(options)
    registry = PodRegistry(_pod_settings(options, config, host, node_name))
    measuring = build_measuring(options, config, features, host, registry, runtime)
    sampler = measuring.sampler
    watch = RuntimeWatch(runtime, on_change=lambda: status.wake())
    events = EventRecorder(client, "nodeagent", host=node_name)
    workers = pods.build_pod_workers(
        config,
        registry,
        runtime,
        client,
        events,
        node=lambda: status.node,
        sampled=lambda: sampler.latest,
    )
    guard = node.build_guard(
        config,
        registry,
        workers,
        changed=lambda: status.wake(),
        note=lambda reason, text: node.note_on(status, events, reason, text),
    )
    checkpoints = checkpoint.build(
        config,
        features,
        registry,
        runtime,
        sampler,
        workers.events if workers else None,
        watch.silent_s,
    )
    machine = collector.machine_facts(host, hostname=node_name, hugepages_bytes=read_hugepages())
    facts = FactsCollector(
        machine,
        node_ip=options.node_ip,
        sample=lambda: sampler.latest,
        health=lambda: watch.health,
        runtime=runtime,
        problems=lambda: [p for part in (guard, workers) if part for p in part.problems()],
        store_excess=checkpoints.excess_bytes if checkpoints else lambda: None,
    )
    status = StatusLoop(
        client,
        _node_settings(options, config, features, machine),
        facts.collect,
        times=StatusTimes(config.nodeStatusUpdateFrequency, config.nodeStatusReportFrequency),
        events=events,
        settled=lambda: _settled(watch, sampler),
    )
    sampling = SamplingCheck(sampler, lambda: current.value.housekeepingInterval)
    lease = _lease(lease_client, node_name, config)
    health, slis = node.build_health(sampling, lease, watch, status if client else None)
    return Parts(
        node_name=node_name,
        current=current,
        features=features,
        emulated=options.emulated_version,
        access=wiring_access.build_access(current, features, client, node_name=node_name),
        host=host,
        registry=registry,
        measuring=measuring,
        sampling=sampling,
        runtime=runtime,
        operations=operations,
        runtime_watch=watch,
        triggers=_triggers(config, features, node_name, sampler, registry, events),
        status=status,
        lease=lease,
        workers=workers,
        shutdown=guard,
        evictions=node.build_evictions(config, status, sampler, registry, workers, events),
        checkpoints=checkpoints,
        events=events if client else None,
        health=health,
        slis=slis,
        transports=tuple(c.transport for c in (client, lease_client) if c),
        missing=_missing(options, config, runtime, sampler),
    )


def _triggers(
    config: NodeAgentConfiguration,
    features: Features,
    node_name: str,
    sampler: Sampler,
    registry: PodRegistry,
    events: EventRecorder,
) -> PressureTriggers | None:
    if not config.psiTriggers:
        return None
    if not features.enabled("NodeAgentPSITriggers"):
        log.warning("psiTriggers do nothing: the feature gate NodeAgentPSITriggers is off")
        return None
    return nodeagent_triggers.pressure_triggers(
        config, node_name=node_name, sampler=sampler, registry=registry, recorder=events
    )


def _runtime(
    config: NodeAgentConfiguration, operations: RuntimeOperations
) -> ContainerRuntime | None:
    endpoint = config.containerRuntimeEndpoint
    if not endpoint:
        return None
    return CriRuntime(endpoint, timeout_s=config.runtimeRequestTimeout, observe=operations.observe)


def _clients(options: Options) -> tuple[ApiClient | None, ApiClient | None]:
    """Two clients with connections of their own, so that nothing delays the Lease."""
    if not options.kubeconfig:
        return None, None
    config = load_kubeconfig(options.kubeconfig)
    agent = f"nodeagent/{names.VERSION}"
    general = ApiClient(Transport(config, user_agent=agent))
    lease = ApiClient(Transport(config, timeout_s=_LEASE_TIMEOUT_S, user_agent=f"{agent} lease"))
    return general, lease


def _pod_settings(
    options: Options, config: NodeAgentConfiguration, host: HostFacts, node_name: str
) -> PodSettings:
    return PodSettings(
        node_name=node_name,
        root_dir=str(Path(options.root_dir).absolute()),
        pod_logs_dir=config.podLogsDir,
        cgroup_parent=pods_cgroup(config),
        host_ip=options.node_ip,
        memory_capacity_bytes=host.memory_bytes,
        kernel_version=host.kernel_version,
    )


def _node_settings(
    options: Options, config: NodeAgentConfiguration, features: Features, machine: MachineFacts
) -> NodeSettings:
    try:
        settings = node_settings(
            config,
            node_name=machine.hostname,
            agent_version=names.VERSION,
            agent_port=config.port,
            node_labels=options.node_labels,
            features=features,
            provider=node_provider(config),
        )
    except (ValueError, ConfigError) as error:
        raise SetupError(str(error)) from None
    if problems := start_problems(settings, machine, options.node_ip):
        raise SetupError("; ".join(problems))
    return settings


async def _settled(watch: RuntimeWatch, sampler: Sampler) -> None:
    """Until runtime and machine have been looked at once; neither is waited for without end."""
    await watch.known()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DOWN_AFTER_S):
            await sampler.fresh()


def _at_once(check: Callable[[], None]) -> Check:
    """The check as the watchdog runs it, beside others and under a deadline."""

    async def run() -> None:
        check()

    return run


def _lease(
    client: ApiClient | None, node_name: str, config: NodeAgentConfiguration
) -> LeaseLoop | None:
    """Renewed also where somebody else registers the node: it tells of life, not of the object."""
    if client is None:
        return None
    return LeaseLoop(client, node_name, duration_s=config.nodeLeaseDurationSeconds)


def _missing(
    options: Options,
    config: NodeAgentConfiguration,
    runtime: ContainerRuntime | None,
    sampler: Sampler,
) -> tuple[str, ...]:
    missing = []
    if not options.kubeconfig:
        missing.append("standalone: no API server (--kubeconfig is not given)")
    if runtime is None:
        missing.append("no container runtime: pods do not run (containerRuntimeEndpoint is empty)")
    if sampler.reader.layout.version == "none":
        missing.append("no cgroups are mounted: containers are not measured")
    if not Path("/proc/pressure/cpu").exists():
        missing.append("no pressure stalls: this kernel does not report them")
    missing += wiring_access.missing_access(config, standalone=not options.kubeconfig)
    return tuple(missing)
