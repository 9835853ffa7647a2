"""The sampler's sources: roots, paths and budgets, fixed when the agent starts.

`Background` holds what is too slow for every pass: directories and open files, refreshed at their
own interval.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nodeagent.stats.cgroup import layout, readers
from nodeagent.stats.cgroup.layout import Layout, Pread
from nodeagent.stats.host.directories import DirectoryUsage
from nodeagent.stats.host.processes import ContainerProcesses, ProcessUsage
from nodeagent.stats.runtime import RuntimeDisks
from nodeagent.stats.samples import PodSample, PodTarget, SystemPart, directories_of
from orch.component.process import clock


@dataclass(frozen=True, slots=True)
class Sources:
    """`node_path` lies on the node's file system; a boot time of 0 is not reported."""

    cgroup_root: str = "/sys/fs/cgroup"
    proc_root: str = "/proc"
    node_path: str = "/"
    boot_time_ns: int = 0
    system_parts: Callable[[], Sequence[SystemPart]] = tuple
    fd_budget: int = readers.DEFAULT_FD_BUDGET
    runtime_disks: Callable[[], RuntimeDisks] = RuntimeDisks
    wall_ns: Callable[[], int] = field(default=clock.wall_ns)
    pread: Pread = field(default=os.pread)


class Background:
    """Last good values; the sampling thread reads them while another thread refreshes them."""

    def __init__(self, sources: Sources) -> None:
        self.directories = DirectoryUsage(wall_ns=sources.wall_ns)
        self.processes = ProcessUsage(sources.proc_root, wall_ns=sources.wall_ns)

    def refresh(
        self, host: Layout, targets: Sequence[PodTarget], pods: Sequence[PodSample]
    ) -> None:
        """Refresh everything once; `pods` give the paths of the containers' cgroups."""
        self.directories.refresh(directories_of(targets))
        self.processes.refresh(_containers(host, pods))

    def refresh_new(
        self, host: Layout, targets: Sequence[PodTarget], pods: Sequence[PodSample]
    ) -> None:
        """Read only what no refresh has covered yet."""
        self.directories.refresh_new(directories_of(targets))
        self.processes.refresh_new(_containers(host, pods))


def _containers(host: Layout, pods: Sequence[PodSample]) -> dict[str, ContainerProcesses]:
    """By id; empty when no hierarchy lists processes."""
    root = next((f.hierarchy for f in host.files if f.position == layout.PROCESSES), None)
    if root is None:
        return {}
    return {
        container.target.id: ContainerProcesses(
            f"{root}{container.path}/cgroup.procs", container.cgroup
        )
        for pod in pods
        for container in pod.containers
        if container.cgroup
    }
