"""Builds what measures this host: the sampler, its pages, and the queries to the runtime."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.metrics.pages import StatsPages
from nodeagent.overview.history import History
from nodeagent.pressure.closer import CloserReader
from nodeagent.pressure.watch import PressureWatch
from nodeagent.runtime.endpoint import socket_path
from nodeagent.stats.cgroup.readers import CgroupReaders
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
    pressure: PressureWatch
    history: History | None  # None: the overview page is off
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
    pressure = _pressure(base, sampler, sources)
    history = History(sampler) if base.config.overviewPage else None
    looks = [new_disks.look, pressure.look, *([history.look] if history else [])]
    return Measuring(
        sampler=sampler,
        pages=pages,
        pressure=pressure,
        history=history,
        sampling=sampling_loop(pages, looks, reading_s),
        directories=Periodic("directories", sampler.step_disks, interval_s=DISK_INTERVAL_S),
        new_disks=new_disks,
        runtime_disks=_loop("runtime disks", disks),
        runtime_part=_loop("runtime cgroup", part),
        runtime_stats=_loop("runtime statistics", stats, reading_s),
    )


def sampling_loop(
    pages: StatsPages, looks: Sequence[Callable[[], None]], interval_s: float
) -> Periodic:
    """Each reading is followed by its pages, and by a look at it for new disks and pressure."""

    async def step() -> None:
        await pages.step()
        for look in looks:
            look()

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
    require_machine(base.config, base.host, sampler.reader.layout.version)
    return sampler


def _pressure(base: Base, sampler: Sampler, sources: Sources) -> PressureWatch:
    """Its readers hold no descriptors: they read seldom."""
    readers = CgroupReaders(sampler.reader.layout, fd_budget=0, wall_ns=sources.wall_ns)
    reader = CloserReader(sources, readers, pods_cgroup=pods_cgroup(base.config))
    return PressureWatch(sampler, reader, node_name=base.node_name, cpus=base.host.cpu_count)


def require_machine(config: NodeAgentConfiguration, host: HostFacts, version: str) -> None:
    """SetupError for a machine that the configuration rules out; `version` is that of cgroups."""
    if config.failCgroupV1 and version != "v2":
        raise SetupError(f"failCgroupV1 is set and this host has cgroup {version}")
    if config.singleProcessOOMKill is False and version != "v2":
        raise SetupError(
            f"singleProcessOOMKill is false, which needs cgroup v2, and this host has {version}"
        )
    if config.failSwapOn and host.swap_bytes:
        raise SetupError(
            f"failSwapOn is set and this host has {host.swap_bytes} bytes of swap; run swapoff -a"
        )


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
