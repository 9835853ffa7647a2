"""The parts of one agent, built once from options and configuration, and how they are connected.

`main` runs them; nothing else constructs. A part that is missing on this host (no API server, no
runtime, no pressure stalls) is left out here and said in `missing`; the others do without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from nodeagent import authparts, checkpointparts, collector, podparts, stalls
from nodeagent.auth import Access
from nodeagent.checkpointparts import Checkpoints
from nodeagent.collector import FactsCollector
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.heartbeat import LeaseLoop
from nodeagent.metrics import agent as agent_metrics
from nodeagent.metrics.operations import RuntimeOperations
from nodeagent.metrics.pages import StatsPages
from nodeagent.node.facts import MachineFacts
from nodeagent.node.settings import NodeSettings, node_settings, start_problems
from nodeagent.options import Options
from nodeagent.pods.keeper import PodKeeper
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec import PodSettings
from nodeagent.runtime.base import ContainerRuntime
from nodeagent.runtime.cri import CriRuntime
from nodeagent.runtime.health import RuntimeWatch
from nodeagent.runtime.verdict import DOWN_AFTER_S
from nodeagent.server import Services
from nodeagent.stats.host import HostFacts, own_cgroup, raise_open_files, read_host_facts
from nodeagent.stats.hugepages import read_hugepages
from nodeagent.stats.layers import RuntimeDiskLoop, RuntimeDisks
from nodeagent.stats.runtimestats import RuntimeStatsLoop
from nodeagent.stats.sampler import Measured, Sampler
from nodeagent.stats.sources import Sources, SystemPart
from nodeagent.statusloop import StatusLoop, StatusTimes
from nodeagent.triggers import PressureTriggers
from nodeagent.watchdog import Watchdog
from orch.client.events import EventRecorder
from orch.client.kubeconfig import load_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component import clock
from orch.component.daemon import SetupError
from orch.component.features import Features
from orch.component.health import CheckFailed, HealthChecks, SliMetrics
from orch.component.notify import Notifier
from orch.component.stability import MetricPolicy
from orch.component.zpages import ZPages
from orch.wire import version

log = logging.getLogger(__name__)

DISK_INTERVAL_S = 60.0
_LEASE_TIMEOUT_S = 10.0
_OTHER_OPEN_FILES = 1024  # connections, logs, what the budget of cgroup files does not count


@dataclass
class Parts:
    """Everything the agent's loops and handlers work with."""

    node_name: str
    config: NodeAgentConfiguration
    features: Features
    access: Access
    host: HostFacts
    registry: PodRegistry
    sampler: Sampler
    runtime: ContainerRuntime | None
    operations: RuntimeOperations
    runtime_watch: RuntimeWatch
    runtime_disks: RuntimeDiskLoop | None
    runtime_stats: RuntimeStatsLoop | None
    triggers: PressureTriggers | None
    status: StatusLoop
    lease: LeaseLoop | None
    keeper: PodKeeper | None
    checkpoints: Checkpoints | None
    events: EventRecorder | None
    health: HealthChecks
    slis: SliMetrics
    transports: tuple[Transport, ...]
    missing: tuple[str, ...]  # what this agent runs without, one phrase each

    def watchdog(self, notifier: Notifier, *, interval_s: float) -> Watchdog:
        """Keep-alives that depend on this process alone, not on API server or runtime."""
        return Watchdog(notifier, {"sampling": self._sampling_alive}, interval_s=interval_s)

    def services(self, watchdog: Watchdog | None, policy: MetricPolicy, zpages: ZPages) -> Services:
        """What the HTTP handlers call."""
        metrics = agent_metrics.agent_registry(
            agent_metrics.Sources(
                node_name=self.node_name,
                features=self.features,
                sampler=self.sampler,
                registry=self.registry,
                runtime=self.runtime_watch,
                status=self.status,
                lease=self.lease,
                watchdog=watchdog,
                operations=self.operations,
                stalls=self.triggers.counts if self.triggers else {},
                checkpoints=self.checkpoints.counts if self.checkpoints else None,
            ),
            policy,
        )
        pages = StatsPages(
            self.sampler,
            node_name=self.node_name,
            psi=self.features.enabled("NodeAgentPSI"),
            host=self.host,
        )
        return Services(
            access=self.access,
            config=self.config,
            features=self.features,
            zpages=zpages,
            pages=pages,
            registry=self.registry,
            checkpoints=self.checkpoints.service if self.checkpoints else None,
            health=self.health,
            slis=self.slis,
            metrics=metrics,
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
        await self.sampler.close()
        for transport in self.transports:
            await transport.close()
        if self.runtime:
            await self.runtime.close()

    async def _sampling_alive(self) -> None:
        _require_recent(self.sampler, self.config.housekeepingInterval)


def build(options: Options, config: NodeAgentConfiguration, features: Features) -> Parts:
    """Construct and connect everything; SetupError for what cannot work on this host."""
    host = read_host_facts()
    node_name = (options.hostname_override or host.hostname).lower()
    operations = RuntimeOperations()
    runtime = _runtime(config, operations)
    client, lease_client = _clients(options)
    registry = PodRegistry(_pod_settings(options, config, host, node_name))
    disks = RuntimeDiskLoop(runtime) if runtime else None
    measures = features.enabled("PodAndContainerStatsFromCRI")
    stats = RuntimeStatsLoop(runtime) if runtime and measures else None
    sampler = _sampler(options, config, host, registry, disks, stats.latest if stats else dict)
    watch = RuntimeWatch(runtime, on_change=lambda: status.wake())
    events = EventRecorder(client, "nodeagent", host=node_name)
    machine = collector.machine_facts(host, hostname=node_name, hugepages_bytes=read_hugepages())
    keeper = podparts.build_keeper(
        config, registry, runtime, client, events, node=lambda: status.node
    )
    checkpoints = checkpointparts.build(
        config, features, registry, runtime, sampler, keeper.events if keeper else None
    )
    facts = FactsCollector(
        machine,
        node_ip=options.node_ip,
        sample=lambda: sampler.latest,
        health=lambda: watch.health,
        runtime=runtime,
        store_excess=checkpoints.excess_bytes if checkpoints else lambda: None,
    )
    status = StatusLoop(
        client,
        _node_settings(options, config, machine),
        facts.collect,
        times=StatusTimes(config.nodeStatusUpdateFrequency, config.nodeStatusReportFrequency),
        events=events,
        settled=lambda: _settled(watch, sampler),
    )
    triggers = None
    if config.psiTriggers and features.enabled("NodeAgentPSITriggers"):
        triggers = stalls.pressure_triggers(
            config, node_name=node_name, sampler=sampler, registry=registry, recorder=events
        )
    health, slis = _health(sampler, config.housekeepingInterval)
    return Parts(
        node_name=node_name,
        config=config,
        features=features,
        access=authparts.build_access(config, features, client, node_name=node_name),
        host=host,
        registry=registry,
        sampler=sampler,
        runtime=runtime,
        operations=operations,
        runtime_watch=watch,
        runtime_disks=disks,
        runtime_stats=stats,
        triggers=triggers,
        status=status,
        lease=_lease(lease_client, node_name, config),
        keeper=keeper,
        checkpoints=checkpoints,
        events=events if client else None,
        health=health,
        slis=slis,
        transports=tuple(c.transport for c in (client, lease_client) if c),
        missing=_missing(options, config, runtime, sampler),
    )


def _runtime(
    config: NodeAgentConfiguration, operations: RuntimeOperations
) -> ContainerRuntime | None:
    endpoint = config.containerRuntimeEndpoint
    if not endpoint:
        return None
    try:
        return CriRuntime(
            endpoint, timeout_s=config.runtimeRequestTimeout, observe=operations.observe
        )
    except ValueError as error:
        raise SetupError(f"containerRuntimeEndpoint: {error}") from None


def _clients(options: Options) -> tuple[ApiClient | None, ApiClient | None]:
    """Two clients with connections of their own, so that nothing delays the Lease."""
    if not options.kubeconfig:
        return None, None
    config = load_kubeconfig(options.kubeconfig)
    agent = f"nodeagent/{version.VERSION}"
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
        cgroup_parent=_pods_cgroup(config),
        host_ip=options.node_ip,
        memory_capacity_bytes=host.memory_bytes,
        kernel_version=host.kernel_version,
    )


def _pods_cgroup(config: NodeAgentConfiguration) -> str:
    return config.cgroupRoot.rstrip("/") + "/orchpods"


def _node_settings(
    options: Options, config: NodeAgentConfiguration, machine: MachineFacts
) -> NodeSettings:
    try:
        settings = node_settings(
            config,
            node_name=machine.hostname,
            agent_version=version.VERSION,
            agent_port=config.port,
            node_labels=options.node_labels,
        )
    except ValueError as error:
        raise SetupError(str(error)) from None
    if problems := start_problems(settings, machine, options.node_ip):
        raise SetupError("; ".join(problems))
    return settings


def _sampler(
    options: Options,
    config: NodeAgentConfiguration,
    host: HostFacts,
    registry: PodRegistry,
    disks: RuntimeDiskLoop | None,
    measured: Measured,
) -> Sampler:
    parts = [SystemPart("pods", _pods_cgroup(config), host.boot_time_ns)]
    if own := own_cgroup():
        parts.append(SystemPart("nodeagent", own, int(clock.process_start_s() * 1e9)))
    sources = Sources(
        node_path=options.root_dir,
        system_parts=tuple(parts),
        fd_budget=_fd_budget(config.openFileBudget),
        runtime_disks=(lambda: disks.latest) if disks else RuntimeDisks,
    )
    sampler = Sampler(targets=registry.targets, sources=sources, measured=measured)
    if config.failCgroupV1 and sampler.reader.layout.version != "v2":
        raise SetupError(
            f"failCgroupV1 is set and this host has cgroup {sampler.reader.layout.version}"
        )
    return sampler


def _fd_budget(wanted: int) -> int:
    """As many of the wanted descriptors as this process may keep and still serve."""
    allowed = raise_open_files(wanted + _OTHER_OPEN_FILES)
    budget = wanted if allowed < 0 else max(0, min(wanted, allowed - _OTHER_OPEN_FILES))
    if budget < wanted:
        log.warning(
            "only %d open files are allowed: %d of the %d in openFileBudget are kept for the "
            "kernel's files (raise LimitNOFILE)",
            allowed,
            budget,
            wanted,
        )
    return budget


async def _settled(watch: RuntimeWatch, sampler: Sampler) -> None:
    """Until runtime and machine have been looked at once; neither is waited for without end."""
    await watch.known()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DOWN_AFTER_S):
            await sampler.fresh()


def _lease(
    client: ApiClient | None, node_name: str, config: NodeAgentConfiguration
) -> LeaseLoop | None:
    if client is None or not config.registerNode:
        return None
    return LeaseLoop(client, node_name, duration_s=config.nodeLeaseDurationSeconds)


def _health(sampler: Sampler, interval_s: float) -> tuple[HealthChecks, SliMetrics]:
    """What /healthz says: that this process works, not that what it depends on does."""
    slis = SliMetrics()
    checks = HealthChecks(slis)
    checks.add("ping", lambda: None)
    checks.add("sampling", lambda: _require_recent(sampler, interval_s))
    return checks, slis


def _require_recent(sampler: Sampler, interval_s: float) -> None:
    """CheckFailed when a reading has been due for three intervals."""
    if sampler.latest is None:
        return
    if (age_s := sampler.age_s()) > 3 * interval_s:
        raise CheckFailed(f"the last reading of statistics is {age_s:.0f} s old")


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
    missing += authparts.missing_access(config, standalone=not options.kubeconfig)
    return tuple(missing)
