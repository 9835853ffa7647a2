"""What measures this host, built and connected: the sampler, and what it takes from the runtime.

And whether it is alive: a reading that has been due for three intervals fails the health check and
withholds the keep-alive, also when there never was a reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.registry import PodRegistry
from nodeagent.runtime.base import ContainerRuntime
from nodeagent.runtime.endpoint import socket_path
from nodeagent.stats.host.machine import HostFacts, cgroup_of
from nodeagent.stats.runtime import RuntimeDiskLoop, RuntimeDisks, RuntimePart, RuntimeStatsLoop
from nodeagent.stats.sampler import Measured, NewDisks, Sampler
from nodeagent.stats.samples import SystemPart
from nodeagent.stats.sources import Sources
from orch.component.diagnostics.health import CheckFailed
from orch.component.flags.features import Features
from orch.component.process import system
from orch.component.process.daemon import SetupError

log = logging.getLogger(__name__)

_OTHER_OPEN_FILES = 1024  # connections, logs, what the budget of cgroup files does not count
_LATE_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class Measuring:
    """`disks` and `runtime_part` are None without a runtime, `stats` also where its gate is off."""

    sampler: Sampler
    disks: RuntimeDiskLoop | None
    runtime_part: RuntimePart | None
    stats: RuntimeStatsLoop | None
    new_disks: NewDisks


class SamplingCheck:
    """Is the machine still read? `interval_s` says how often it should be."""

    def __init__(self, sampler: Sampler, interval_s: Callable[[], float]) -> None:
        self._sampler = sampler
        self._interval_s = interval_s
        self._started_s = asyncio.get_running_loop().time()

    def __call__(self) -> None:
        """CheckFailed when a reading has been due for three intervals."""
        limit_s = _LATE_INTERVALS * self._interval_s()
        if self._sampler.latest is None:
            age_s = asyncio.get_running_loop().time() - self._started_s
            if age_s > limit_s:
                raise CheckFailed(f"there is no reading of statistics after {age_s:.0f} s")
        elif (age_s := self._sampler.age_s()) > limit_s:
            raise CheckFailed(f"the last reading of statistics is {age_s:.0f} s old")


def build_measuring(
    options: Options,
    config: NodeAgentConfiguration,
    features: Features,
    host: HostFacts,
    registry: PodRegistry,
    runtime: ContainerRuntime | None,
) -> Measuring:
    """SetupError on a host with cgroup v1 where that was ruled out."""
    disks = RuntimeDiskLoop(runtime) if runtime else None
    measures = features.enabled("PodAndContainerStatsFromCRI")
    stats = RuntimeStatsLoop(runtime) if runtime and measures else None
    own = cgroup_of()
    part = RuntimePart(socket_path(config.containerRuntimeEndpoint), own) if runtime else None
    sources = Sources(
        node_path=options.root_dir,
        boot_time_ns=host.boot_time_ns,
        system_parts=system_parts(config, host, own, part),
        fd_budget=_fd_budget(config.openFileBudget),
        runtime_disks=(lambda: disks.latest) if disks else RuntimeDisks,
    )
    measured: Measured = stats.latest if stats else dict
    sampler = Sampler(targets=registry.targets, sources=sources, measured=measured)
    if config.failCgroupV1 and sampler.reader.layout.version != "v2":
        raise SetupError(
            f"failCgroupV1 is set and this host has cgroup {sampler.reader.layout.version}"
        )
    return Measuring(sampler, disks, part, stats, NewDisks(sampler, disks))


def pods_cgroup(config: NodeAgentConfiguration) -> str:
    """Below which cgroup pods run."""
    return config.cgroupRoot.rstrip("/") + "/orchpods"


def system_parts(
    config: NodeAgentConfiguration, host: HostFacts, own: str | None, runtime: RuntimePart | None
) -> Callable[[], Sequence[SystemPart]]:
    """What has a cgroup beside the pods; where the runtime runs may change."""
    parts = [SystemPart("pods", pods_cgroup(config), host.boot_time_ns)]
    if config.systemCgroups:
        parts.append(SystemPart("misc", config.systemCgroups, host.boot_time_ns))
    if own:
        parts.append(SystemPart("nodeagent", own, int(system.process_start_s() * 1e9)))
    return lambda: (*parts, *(runtime.latest if runtime else ()))


def _fd_budget(wanted: int) -> int:
    """As many of the wanted descriptors as this process may keep and still serve."""
    allowed = system.raise_open_files(wanted + _OTHER_OPEN_FILES)
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
