"""Builds the parts of an agent, in the order of their dependencies, and connects them.

`main` runs them. A part without its prerequisite on this host (API server, runtime, pressure
stalls) is left out here and listed in `missing`; the others work without it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodeagent import triggers
from nodeagent.auth.access import Access
from nodeagent.config.current import CurrentConfig
from nodeagent.config.options import Options
from nodeagent.container_streams import ContainerStreams
from nodeagent.heartbeat import LeaseLoop
from nodeagent.metrics import agent as agent_metrics
from nodeagent.metrics.calls import HttpMetrics
from nodeagent.node.eviction import Evictions
from nodeagent.node.shutdown import ShutdownGuard
from nodeagent.node.status_loop import StatusLoop
from nodeagent.overview.overview import Overview
from nodeagent.pods.cgroups import reserved
from nodeagent.pods.cgroups.tree import CgroupError
from nodeagent.server import Services
from nodeagent.stats.sampler import Sampler, SamplingCheck
from nodeagent.triggers import PressureTriggers
from nodeagent.watchdog import Check, Watchdog
from nodeagent.wiring import access as wiring_access
from nodeagent.wiring import checkpoint, node, pods, stats
from nodeagent.wiring.base import Base, build_base
from nodeagent.wiring.checkpoint import Checkpoints
from nodeagent.wiring.pods import Pods
from nodeagent.wiring.rotation import build_client_renewal, build_rotation
from nodeagent.wiring.stats import Measuring
from orch.client.informer import Informer
from orch.component.diagnostics.health import HealthChecks, SliMetrics
from orch.component.diagnostics.metrics import Registry
from orch.component.diagnostics.zpages import ZPages
from orch.component.flags.features import Features
from orch.component.flags.stability import MetricPolicy
from orch.component.process.daemon import SetupError
from orch.component.process.loops import Periodic
from orch.component.process.notify import Notifier

if TYPE_CHECKING:
    from nodeagent.certificates.rotation import Rotation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the agent's loops and handlers work with; None for what it runs without."""

    base: Base
    access: Access
    measuring: Measuring
    sampling: SamplingCheck
    checkpoints: Checkpoints | None
    pods: Pods | None
    shutdown: ShutdownGuard | None
    status: StatusLoop
    lease: LeaseLoop | None
    informers: tuple[Informer[Any], ...]
    evictions: Evictions | None
    triggers: PressureTriggers | None
    health: HealthChecks
    slis: SliMetrics
    rotation: Rotation | None
    client_renewal: Periodic | None
    missing: tuple[str, ...]  # what this agent runs without, one phrase each

    def watchdog(self, notifier: Notifier, *, interval_s: float) -> Watchdog:
        return Watchdog(notifier, self.liveness(), interval_s=interval_s)

    def liveness(self) -> dict[str, Check]:
        """The checks of the loops that must run for this process to count as alive, by name."""
        checks: dict[str, Check] = {"sampling": self.sampling}
        if self.lease:
            checks["lease"] = self.lease.alive
        return checks

    def services(self, watchdog: Watchdog | None, policy: MetricPolicy, zpages: ZPages) -> Services:
        """The objects that the HTTP handlers call."""
        base, metrics = self.base, self._metrics(watchdog, policy)
        return Services(
            access=self.access,
            config=lambda: base.config,
            features=base.features,
            zpages=zpages,
            pages=self.measuring.pages,
            pressure=self.measuring.pressure,
            registry=base.registry,
            checkpoints=self.checkpoints.service if self.checkpoints else None,
            overview=self._overview(),
            streams=build_streams(base),
            health=self.health,
            slis=self.slis,
            metrics=metrics,
            probes=agent_metrics.probes_registry(base.counts, policy),
            http=HttpMetrics(metrics),
        )

    def _overview(self) -> Overview | None:
        base, history = self.base, self.measuring.history
        if history is None:
            return None
        return Overview(
            history,
            self.measuring.pressure,
            base.registry,
            self.checkpoints.service if self.checkpoints else None,
            self.health,
            node_name=base.node_name,
            cpus=base.host.cpu_count,
        )

    def _metrics(self, watchdog: Watchdog | None, policy: MetricPolicy) -> Registry:
        base = self.base
        sources = agent_metrics.MetricSources(
            node_name=base.node_name,
            features=base.features,
            emulated=base.options.emulated_version,
            sampler=self.measuring.sampler,
            registry=base.registry,
            counts=base.counts,
            runtime=base.watch,
            status=self.status,
            lease=self.lease,
            shutdown=self.shutdown,
            watchdog=watchdog,
            operations=base.operations,
            stalls=self.triggers.counts if self.triggers else {},
            checkpoints=self.checkpoints.pruner.reports.counts if self.checkpoints else None,
            events=base.events if base.clients else None,
            mirrors=self.pods.mirrors if self.pods else None,
            informers=self.informers,
            clients=base.transports,
            certificates=self.rotation.certificates if self.rotation else (),
        )
        return agent_metrics.agent_registry(sources, policy)

    async def stop_checkpoints(self) -> None:
        """Cancel the checkpoints in progress and thaw their containers."""
        if self.checkpoints:
            await self.checkpoints.service.close()

    async def enforce_reserved(self) -> None:
        """Bound what is reserved from pods, where that is asked for; SetupError when it fails."""
        for part in node.reserved_parts(self.base.config, self.base.features):
            try:
                await asyncio.to_thread(reserved.enforce, part)
            except CgroupError as error:
                raise SetupError(str(error)) from error

    async def recover(self) -> None:
        """Clean up after an agent that was killed during a checkpoint."""
        if self.checkpoints:
            await self.checkpoints.service.recover()

    async def close(self) -> None:
        if self.triggers:
            self.triggers.close()
        await self.measuring.sampler.close()
        await self.base.close()


def build(options: Options, current: CurrentConfig, features: Features) -> Parts:
    """Construct and connect everything; SetupError for what cannot work on this host."""
    base = build_base(options, current, features)
    access = wiring_access.build_access(current, features, base.client, node_name=base.node_name)
    measuring = stats.build_measuring(base)
    sampler = measuring.sampler
    sampling = SamplingCheck(sampler, lambda: base.config.housekeepingInterval)
    source = pods.build_api_source(base)
    events = pods.build_events(base, source)
    checkpoints = checkpoint.build_checkpoints(base, sampler, events)
    service = checkpoints.service if checkpoints else None
    kept = pods.build_pods(base, sampler, source, events, service)
    workers = kept.workers if kept else None
    guard = node.build_guard(base, workers)
    problem_sources = [part for part in (guard, workers) if part]
    devices = kept.devices if kept else None
    status = node.build_status(base, sampler, problem_sources, checkpoints, devices)
    lease = node.build_lease(base)
    informers = tuple(part.informer for part in (source, status) if part and part.informer)
    health, slis = node.build_health(base, sampling, lease, status, informers)
    return Parts(
        base=base,
        access=access,
        measuring=measuring,
        sampling=sampling,
        checkpoints=checkpoints,
        pods=kept,
        shutdown=guard,
        status=status,
        lease=lease,
        informers=informers,
        evictions=node.build_evictions(base, status, sampler, workers),
        triggers=_triggers(base, sampler),
        health=health,
        slis=slis,
        rotation=build_rotation(base),
        client_renewal=build_client_renewal(base),
        missing=_missing(base, sampler),
    )


def build_streams(base: Base) -> ContainerStreams | None:
    """`exec` and the like, in the times of the configuration; None without a runtime."""
    if base.runtime is None:
        return None
    return ContainerStreams(
        base.registry,
        base.runtime,
        idle_s=lambda: base.config.streamingConnectionIdleTimeout,
        run_timeout_s=lambda: base.config.runtimeRequestTimeout,
    )


def _triggers(base: Base, sampler: Sampler) -> PressureTriggers | None:
    if not base.config.psiTriggers:
        return None
    if not base.features.enabled("NodeAgentPSITriggers"):
        log.warning("psiTriggers do nothing: the feature gate NodeAgentPSITriggers is off")
        return None
    return triggers.pressure_triggers(
        base.config,
        node_name=base.node_name,
        sampler=sampler,
        registry=base.registry,
        recorder=base.events,
    )


def _missing(base: Base, sampler: Sampler) -> tuple[str, ...]:
    missing = []
    if base.clients is None:
        missing.append("standalone: no API server (--kubeconfig is not given)")
    if base.runtime is None:
        missing.append("no container runtime: pods do not run (containerRuntimeEndpoint is empty)")
    if sampler.reader.layout.version == "none":
        missing.append("no cgroups are mounted: containers are not measured")
    if not Path("/proc/pressure/cpu").exists():
        missing.append("no pressure stalls: this kernel does not report them")
    missing += wiring_access.missing_access(base.config, standalone=base.clients is None)
    return tuple(missing)
