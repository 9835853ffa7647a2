"""What is too slow for every pass: directories, open files; refreshed at a cadence of its own."""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.stats import layout
from nodeagent.stats.directories import DirectoryUsage
from nodeagent.stats.layout import Layout
from nodeagent.stats.processes import Container, ProcessUsage
from nodeagent.stats.samples import PodSample, PodTarget
from nodeagent.stats.targets import directories_of


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
