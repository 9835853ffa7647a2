"""Where the sampler reads: roots, paths and budgets, fixed when the agent starts.

What is too slow for every pass: directories, open files; refreshed at a cadence of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nodeagent.stats.cgroup import layout, readers
from nodeagent.stats.cgroup.layout import Layout
from nodeagent.stats.host.directories import DirectoryUsage
from nodeagent.stats.host.processes import Container, ProcessUsage
from nodeagent.stats.runtime import RuntimeDisks
from nodeagent.stats.samples import PodSample, PodTarget, SystemPart, directories_of
from orch.component.process import clock


@dataclass(frozen=True, slots=True)
class Sources:
    """Where everything is read from. `node_path` lies on the file system called node fs; a boot
    time of 0 is not shown."""

    cgroup_root: str = "/sys/fs/cgroup"
    proc_root: str = "/proc"
    node_path: str = "/"
    boot_time_ns: int = 0
    system_parts: Callable[[], Sequence[SystemPart]] = tuple
    fd_budget: int = readers.DEFAULT_FD_BUDGET
    runtime_disks: Callable[[], RuntimeDisks] = RuntimeDisks
    wall_ns: Callable[[], int] = field(default=clock.wall_ns)


class Background:
    """Last good values; read by the sampling thread while another one refreshes them."""

    def __init__(
        self, directories: DirectoryUsage | None = None, processes: ProcessUsage | None = None
    ) -> None:
        self.directories = directories or DirectoryUsage()
        self.processes = processes or ProcessUsage()

    def refresh(
        self, host: Layout, targets: Sequence[PodTarget], pods: Sequence[PodSample]
    ) -> None:
        """Refresh everything once; `pods` tell where the containers' cgroups are."""
        self.directories.refresh(directories_of(targets))
        self.processes.refresh(_containers(host, pods))

    def refresh_new(
        self, host: Layout, targets: Sequence[PodTarget], pods: Sequence[PodSample]
    ) -> None:
        """Read what no refresh has come to yet, and nothing else."""
        self.directories.refresh_new(directories_of(targets))
        self.processes.refresh_new(_containers(host, pods))


def _containers(host: Layout, pods: Sequence[PodSample]) -> dict[str, Container]:
    """By id; none where no hierarchy counts processes."""
    root = next((f.hierarchy for f in host.files if f.position == layout.PROCESSES), None)
    if root is None:
        return {}
    return {
        container.target.id: Container(f"{root}{container.path}/cgroup.procs", container.cgroup)
        for pod in pods
        for container in pod.containers
        if container.cgroup
    }
