"""Builds what measures this host: the sampler, its pages, and the queries to the runtime."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.metrics.pages import StatsPages
from nodeagent.runtime.endpoint import socket_path
from nodeagent.stats.host import machine
from nodeagent.stats.host.machine import HostFacts
from nodeagent.stats.runtime import RuntimeCgroup, RuntimeDiskLoop, RuntimeDisks, RuntimeStatsLoop
from nodeagent.stats.sampler import DISK_INTERVAL_S, Measured, NewDisks, Sampler
from nodeagent.stats.samples import SystemPart
from nodeagent.stats.sources import Sources
from nodeagent.wiring.base import Base, pods_cgroup
from orch.component.process import system
from orch.component.process.daemon import SetupError
from orch.component.process.loops import Periodic

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measuring:
    """`runtime_…` are None without a runtime; `runtime_stats` also where its gate is off."""

    sampler: Sampler
    pages: StatsPages
    sampling: Periodic
    directories: Periodic
    new_disks: NewDisks
    runtime_disks: Periodic | None
    runtime_part: Periodic | None
    runtime_stats: Periodic | None


def build_measuring(base: Base) -> Measuring:
    """SetupError on a host with cgroup v1 that the configuration rules out."""
    runtime, reading_s = base.runtime, base.config.housekeepingInterval
    own = machine.cgroup_of()
    disks = RuntimeDiskLoop(runtime) if runtime else None
    part = (
        RuntimeCgroup(socket_path(base.config.containerRuntimeEndpoint), own) if runtime else None
    )
    measures = base.features.enabled("PodAndContainerStatsFromCRI")
    stats = RuntimeStatsLoop(runtime) if runtime and measures else None
    sources = Sources(
        node_path=base.options.root_dir,
        boot_time_ns=base.host.boot_time_ns,
        system_parts=system_parts(base.config, base.host, own, part),
        fd_budget=machine.open_files_budget(base.config.openFileBudget),
        runtime_disks=(lambda: disks.latest) if disks else RuntimeDisks,
    )
    sampler = _sampler(base, sources, stats)
    psi = base.features.enabled("NodeAgentPSI")
    pages = StatsPages(sampler, node_name=base.node_name, psi=psi, host=base.host)
    new_disks = NewDisks(sampler, disks)
    return Measuring(
        sampler=sampler,
        pages=pages,
        sampling=sampling_loop(pages, new_disks, reading_s),
        directories=Periodic("directories", sampler.step_disks, interval_s=DISK_INTERVAL_S),
        new_disks=new_disks,
        runtime_disks=_loop("runtime disks", disks),
        runtime_part=_loop("runtime cgroup", part),
        runtime_stats=_loop("runtime statistics", stats, reading_s),
    )


def sampling_loop(pages: StatsPages, new_disks: NewDisks, interval_s: float) -> Periodic:
    """Each reading is followed by its pages, and by a check for new disks."""

    async def step() -> None:
        await pages.step()
        new_disks.look()

    return Periodic("sampling", step, interval_s=interval_s)


def system_parts(
    config: NodeAgentConfiguration, host: HostFacts, own: str | None, runtime: RuntimeCgroup | None
) -> Callable[[], Sequence[SystemPart]]:
    """Everything measured beside the pods; the runtime's cgroup may change."""
    parts = [SystemPart("pods", pods_cgroup(config), host.boot_time_ns)]
    if config.systemCgroups:
        parts.append(SystemPart("misc", config.systemCgroups, host.boot_time_ns))
    if own:
        parts.append(SystemPart("nodeagent", own, int(system.process_start_s() * 1e9)))
    return lambda: (*parts, *(runtime.latest if runtime else ()))


def _sampler(base: Base, sources: Sources, stats: RuntimeStatsLoop | None) -> Sampler:
    measured: Measured = stats.latest if stats else dict
    sampler = Sampler(targets=base.registry.targets, sources=sources, measured=measured)
    version = sampler.reader.layout.version
    if base.config.failCgroupV1 and version != "v2":
        raise SetupError(f"failCgroupV1 is set and this host has cgroup {version}")
    return sampler


def warn_of_old_cgroups(version: str) -> None:
    """`version` is that of a cgroup layout."""
    if version in ("v1", "hybrid"):
        log.warning(
            "this host has cgroup %s: cgroup v1 is in maintenance mode; boot with"
            " systemd.unified_cgroup_hierarchy=1 for cgroup v2",
            version,
        )


def _loop(
    name: str,
    source: RuntimeDiskLoop | RuntimeCgroup | RuntimeStatsLoop | None,
    interval_s: float = DISK_INTERVAL_S,
) -> Periodic | None:
    return Periodic(name, source.step, interval_s=interval_s) if source else None
