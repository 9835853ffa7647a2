"""One reading of one pod: its cgroups, its network, its disks.

Sandbox and pod cgroup are read like containers. What is gone is None. What file systems hold was
asked before, aside; what directories use comes from walks done before.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.runtime.base import SandboxUsage
from nodeagent.stats import runtime
from nodeagent.stats.cgroup.paths import CgroupPaths
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.host import filesystems, network
from nodeagent.stats.host.filesystems import Mounts
from nodeagent.stats.runtime import RuntimeDisks
from nodeagent.stats.samples import (
    OWN_KINDS,
    CgroupSample,
    ContainerSample,
    ContainerTarget,
    NetworkSample,
    NodeSample,
    PodSample,
    PodTarget,
    VolumeSample,
)
from nodeagent.stats.sources import Background, Sources


class PodReader:
    """Remembers which sandboxes have the machine's own network."""

    def __init__(
        self,
        sources: Sources,
        cgroups: CgroupReaders,
        paths: CgroupPaths,
        background: Background,
        mounts: Mounts,
    ) -> None:
        self._sources = sources
        self._mounts = mounts
        self._cgroups = cgroups
        self._paths = paths
        self._directories = background.directories.latest
        self._processes = background.processes.latest
        self._host_network: dict[str, bool] = {}

    def read(self, target: PodTarget, disks: RuntimeDisks, node: NodeSample) -> PodSample:
        """The pod now; `node` is the reading of its machine a moment before."""
        path, sandbox_path = self._paths.pod(target), self._paths.sandbox(target)
        whole = self._whole(path)
        containers = []
        for container in target.containers:
            own_path = self._paths.container(target, container)
            cgroup = self._cgroups.read(own_path, above=path)
            containers.append(self._container(container, cgroup, own_path, disks, node))
        return PodSample(
            target,
            whole,
            self._cgroups.read(sandbox_path, above=path) if sandbox_path else None,
            tuple(containers),
            self._network(target),
            self._volumes(target),
            self._directories.get(target.log_dir),
            path,
            sandbox_path,
        )

    def from_runtime(
        self, target: PodTarget, usage: SandboxUsage, disks: RuntimeDisks, node: NodeSample
    ) -> PodSample:
        """The pod as the runtime measured it; its cgroups are not read."""
        samples = {one.id: runtime.usage_sample(one) for one in usage.containers}
        containers = []
        for container in target.containers:
            path = self._paths.container(target, container)
            cgroup = samples.get(container.id)
            containers.append(self._container(container, cgroup, path, disks, node))
        return PodSample(
            target,
            runtime.usage_sample(usage.total),
            None,
            tuple(containers),
            runtime.usage_network(usage),
            self._volumes(target),
            self._directories.get(target.log_dir),
            self._paths.pod(target),
            process_count=usage.process_count,
        )

    def forget_others(self, known_targets: Sequence[PodTarget]) -> None:
        """Drop what is remembered of pods that are no longer measured."""
        known = {f"{target.sandbox_id}/{target.sandbox_pid}" for target in known_targets}
        for key in self._host_network.keys() - known:
            del self._host_network[key]

    def _whole(self, path: str) -> CgroupSample | None:
        """The pod's cgroup; no OOM kills where the kernel counts those of its own tasks alone,
        of which it has none."""
        sample = self._cgroups.read(path)
        if sample is None or sample.memory is None or self._cgroups.shared.layout.sums_oom_kills:
            return sample
        return sample._replace(memory=sample.memory._replace(oom_kills=None))

    def _container(
        self,
        target: ContainerTarget,
        cgroup: CgroupSample | None,
        path: str,
        disks: RuntimeDisks,
        node: NodeSample,
    ) -> ContainerSample:
        return ContainerSample(
            target,
            cgroup,
            filesystems.within(node.container_fs, disks.writable_layers.get(target.id)),
            filesystems.within(node.fs, self._directories.get(target.log_dir)),
            path,
            self._processes.get(target.id),
        )

    def _network(self, target: PodTarget) -> NetworkSample | None:
        """None for a pod on the machine's own network: those counters are the node's."""
        pid, proc_root = target.sandbox_pid, self._sources.proc_root
        if not pid or target.host_network:
            return None
        key = f"{target.sandbox_id}/{pid}"
        if key not in self._host_network:
            self._host_network[key] = network.shares_host_network(proc_root, pid)
        if self._host_network[key]:
            return None
        return network.read_network(proc_root, pid, self._sources.wall_ns())

    def _volumes(self, target: PodTarget) -> tuple[VolumeSample, ...]:
        samples = []
        for volume in target.volumes:
            whole = self._mounts.latest(volume.path)
            used = self._directories.get(volume.path) if volume.kind in OWN_KINDS else None
            if whole is not None:
                fs = whole._replace(used_bytes=None, inodes_used=None)
                fs = filesystems.within(fs, used) or fs
                samples.append(VolumeSample(volume, fs))
        return tuple(samples)
