"""One reading of everything: the machine, its parts, every pod and container.

Synchronous: the sampler runs it whole in one worker thread, one reading at a time. A part that
cannot be read is None in the sample and counted in `errors`; a pod whose reading fails for an
unforeseen reason is logged and left empty, and the others are still read. Values that take long to
measure (directories, mounts) come from earlier measurements; nothing here waits for them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from nodeagent.psi import RESOURCES, Pressure
from nodeagent.runtime.base import SandboxUsage
from nodeagent.stats import runtime
from nodeagent.stats.cgroup import layout
from nodeagent.stats.cgroup.readers import CgroupPaths, CgroupReaders
from nodeagent.stats.cgroup.values import UINT64_MAX
from nodeagent.stats.host import filesystems, machine, network
from nodeagent.stats.host.filesystems import FilesystemPoller
from nodeagent.stats.runtime import RuntimeDisks
from nodeagent.stats.samples import (
    OWN_KINDS,
    CgroupSample,
    ContainerSample,
    ContainerTarget,
    FsSample,
    MemorySample,
    NetworkSample,
    NodeSample,
    PodSample,
    PodTarget,
    Sample,
    SystemSample,
    VolumeSample,
)
from nodeagent.stats.sources import Background, Sources
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

SUPPORTED = "supported"


class HostReader:
    """Holds the descriptors between two readings; `errors` counts by kind since the start.

    `psi` maps (source, resource) to supported, disabled or absent; sources are node and cgroup.
    `durations_s` are those of the last reading, by part.
    """

    def __init__(self, sources: Sources, background: Background) -> None:
        self._sources = sources
        self.layout = layout.detect_layout(sources.cgroup_root)
        self.errors: Counter[str] = Counter()
        self.psi: dict[tuple[str, str], str] = {}
        self.durations_s: dict[str, float] = {}
        self._psi_news: dict[tuple[str, str], list[str]] = {}  # (state, source) → resources
        self._failing: set[str] = set()  # in this reading
        self._defects = OnceLog(log, logging.ERROR)
        self._cgroups = CgroupReaders(
            self.layout, fd_budget=sources.fd_budget, wall_ns=sources.wall_ns, pread=sources.pread
        )
        self._filesystems = FilesystemPoller(wall_ns=sources.wall_ns)
        self._node = NodeReader(sources, self._cgroups, self._note_psi_state, self._filesystems)
        self._paths = CgroupPaths(self.layout)
        self._pods = PodReader(sources, self._cgroups, self._paths, background, self._filesystems)

    def read(
        self, targets: Sequence[PodTarget], measured: Mapping[str, SandboxUsage] | None = None
    ) -> Sample:
        """Sample everything now; closes the readers of cgroups that are no longer wanted.

        `measured` has the pods, by uid, whose numbers come from the runtime.
        """
        begun_s = time.perf_counter()
        time_ns = self._sources.wall_ns()
        self._failing.clear()
        self._drop_unwanted(targets)
        disks = self._sources.runtime_disks()
        self._filesystems.refresh(self._polled_paths(targets, disks))
        node = self._guarded_node(time_ns, disks)
        node_done_s = time.perf_counter()
        measured = measured or {}
        pods = tuple(
            self._guarded_pod(target, measured.get(target.uid), disks, node) for target in targets
        )
        self._pods.forget_others(targets)
        self._defects.retain(self._failing)
        self._note_psi()
        done_s = time.perf_counter()
        self.durations_s = {"node": node_done_s - begun_s, "pods": done_s - node_done_s}
        errors = dict(self.errors + self._cgroups.context.errors)
        return Sample(time_ns, node, pods, done_s - begun_s, errors)

    @property
    def slow_reads(self) -> Mapping[str, int]:
        """Reads of 10 ms or more since the start, by kind of file."""
        return self._cgroups.context.slow

    @property
    def fds_left(self) -> int:
        """How many more descriptors it may hold."""
        return self._cgroups.context.fds_left

    def close(self) -> None:
        """Close every descriptor; the next reading opens them again."""
        self._cgroups.close()

    def _polled_paths(self, targets: Sequence[PodTarget], disks: RuntimeDisks) -> list[str]:
        """One path on each file system to query: the node's, the images', every volume's."""
        paths = [self._sources.node_path]
        if disks.image_fs:
            paths.append(disks.image_fs.mountpoint)
        return [*paths, *(volume.path for target in targets for volume in target.volumes)]

    def _drop_unwanted(self, targets: Sequence[PodTarget]) -> None:
        parts = [part.cgroup for part in self._sources.system_parts()]
        try:
            self._cgroups.retain(["", *parts, *self._paths.all(targets)])
        except Exception as error:
            self._note_failure("placement", "finding the cgroups of the pods", error)

    def _guarded_node(self, time_ns: int, disks: RuntimeDisks) -> NodeSample:
        try:
            return self._node.read(time_ns, disks)
        except Exception as error:
            self._note_failure("node", "sampling the machine itself", error)
            return NodeSample()

    def _guarded_pod(
        self,
        target: PodTarget,
        measured: SandboxUsage | None,
        disks: RuntimeDisks,
        node: NodeSample,
    ) -> PodSample:
        try:
            if measured is not None:
                return self._pods.from_runtime(target, measured, disks, node)
            return self._pods.read(target, disks, node)
        except Exception as error:
            self._note_failure("pod", f"sampling pod {target.namespace}/{target.name}", error)
            return PodSample(target)

    def _note_failure(self, kind: str, what: str, error: Exception) -> None:
        """Count an unforeseen error; its trace is logged when it begins."""
        self.errors[kind] += 1
        self._failing.add(what)
        text = "%s failed; the rest of the sample is complete"
        self._defects.failed(text, what, subject=what, error=error)

    def _note_psi(self) -> None:
        for resource in RESOURCES:
            state = self._cgroups.context.psi.get(resource)
            if state is None and self.layout.unified is None:
                state = "absent"
            if state is not None:
                self._note_psi_state("cgroup", resource, state)
        self._log_psi()

    def _note_psi_state(self, source: str, resource: str, state: str) -> None:
        """Note changes only, not the same at every reading."""
        if self.psi.get((source, resource)) != state:
            self.psi[source, resource] = state
            self._psi_news.setdefault((state, f"{source}s"), []).append(resource)

    def _log_psi(self) -> None:
        """A line for all that the kernel reports, and one for each reason why it does not."""
        news, self._psi_news = self._psi_news, {}
        for state in dict.fromkeys(state for state, _ in news):
            what = " and ".join(
                f"{', '.join(resources)} of {source}"
                for (each, source), resources in news.items()
                if each == state
            )
            if state == SUPPORTED:
                log.info("the kernel reports pressure: %s", what)
            else:
                hint = "boot with psi=1" if state == "disabled" else "its files are missing"
                log.warning("pressure is %s: %s (%s)", state, what, hint)


NoteState = Callable[[str, str, str], None]


class NodeReader:
    """Reads the machine and the cgroups of its system parts.

    What version 2 lacks in the root cgroup (memory.current) comes from /proc. `note_psi` receives,
    per resource, whether the kernel reports the machine's pressure.
    """

    def __init__(
        self,
        sources: Sources,
        cgroups: CgroupReaders,
        note_psi: NoteState,
        polled: FilesystemPoller,
    ) -> None:
        self._sources = sources
        self._cgroups = cgroups
        self._filesystems = polled
        self._note_psi = note_psi

    def read(self, time_ns: int, disks: RuntimeDisks) -> NodeSample:
        """Sample the machine now; a part that cannot be read is None."""
        sources = self._sources
        meminfo = machine.read_meminfo(sources.proc_root)
        image_fs = self._image_fs(disks)
        devices = filesystems.parse_diskstats(machine.read_bytes(sources.proc_root, "diskstats"))
        return NodeSample(
            cgroup=self._root_cgroup(time_ns),
            memory_bytes=meminfo.get("MemTotal", 0),
            boot_time_ns=sources.boot_time_ns,
            fs=self._filesystems.latest(sources.node_path),
            image_fs=image_fs,
            container_fs=image_fs,
            network=network.read_network(sources.proc_root, 1, time_ns),
            rlimit=machine.read_rlimit(sources.proc_root, time_ns),
            swap=machine.swap_of(meminfo, time_ns),
            system=self._system(),
            devices=devices,
            fs_device=filesystems.device_of(sources.node_path, devices),
        )

    def _root_cgroup(self, time_ns: int) -> CgroupSample:
        sample = self._cgroups.read("") or CgroupSample(time_ns)
        pressures = [self._pressure(resource) for resource in RESOURCES]
        return sample._replace(
            memory=_root_memory(sample.memory, machine.read_oom_kills(self._sources.proc_root)),
            cpu_pressure=pressures[0] or sample.cpu_pressure,
            memory_pressure=pressures[1] or sample.memory_pressure,
            io_pressure=pressures[2] or sample.io_pressure,
        )

    def _pressure(self, resource: str) -> Pressure | None:
        pressure, state = machine.read_pressure(self._sources.proc_root, resource)
        self._note_psi("node", resource, state)
        return pressure

    def _image_fs(self, disks: RuntimeDisks) -> FsSample | None:
        """The file system of the images; `used` is the runtime's figure for images alone."""
        usage = disks.image_fs
        whole = usage and self._filesystems.latest(usage.mountpoint)
        if not usage or not whole:
            return None
        return whole._replace(
            time_ns=usage.timestamp_ns, used_bytes=usage.used_bytes, inodes_used=usage.inodes_used
        )

    def _system(self) -> tuple[SystemSample, ...]:
        parts = []
        for part in self._sources.system_parts():
            sample = self._cgroups.read(part.cgroup)
            if sample is not None:
                parts.append(SystemSample(part.name, part.started_at_ns, sample))
        return tuple(parts)


def _root_memory(memory: MemorySample | None, oom_kills: int | None) -> MemorySample | None:
    """v2's root cgroup has no memory.current: anonymous and cached memory count as used.

    Its OOM kills are the machine's: v1 counts those of the root's own tasks alone, v2 none.
    """
    if memory is None:
        return None
    memory = memory._replace(oom_kills=oom_kills)
    if memory.usage_bytes is not None:
        return memory
    if memory.rss_bytes is None or memory.cache_bytes is None:
        return memory
    usage = memory.rss_bytes + memory.cache_bytes
    if usage > UINT64_MAX:
        return memory
    inactive = memory.inactive_file_bytes
    working_set = None if inactive is None else max(usage - inactive, 0)
    return memory._replace(usage_bytes=usage, working_set_bytes=working_set)


class PodReader:
    """Reads pods: cgroups, network, disks. Caches which sandboxes use the machine's network."""

    def __init__(
        self,
        sources: Sources,
        cgroups: CgroupReaders,
        paths: CgroupPaths,
        background: Background,
        polled: FilesystemPoller,
    ) -> None:
        self._sources = sources
        self._filesystems = polled
        self._cgroups = cgroups
        self._paths = paths
        self._directories = background.directories.latest
        self._processes = background.processes.latest
        self._host_network: dict[str, bool] = {}

    def read(self, target: PodTarget, disks: RuntimeDisks, node: NodeSample) -> PodSample:
        """Sample the pod now; `node` is the machine, sampled a moment ago."""
        path, sandbox_path = self._paths.pod(target), self._paths.sandbox(target)
        pod_cgroup = self._pod_cgroup(path)
        containers = []
        for container in target.containers:
            own_path = self._paths.container(target, container)
            cgroup = self._cgroups.read(own_path, parent=path)
            containers.append(self._container(container, cgroup, own_path, disks, node))
        return PodSample(
            target,
            pod_cgroup,
            self._cgroups.read(sandbox_path, parent=path) if sandbox_path else None,
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
        samples = {measured.id: runtime.usage_sample(measured) for measured in usage.containers}
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
        """Drop cached facts about pods that are no longer measured."""
        known = {f"{target.sandbox_id}/{target.sandbox_pid}" for target in known_targets}
        for key in self._host_network.keys() - known:
            del self._host_network[key]

    def _pod_cgroup(self, path: str) -> CgroupSample | None:
        """Without OOM kills where the kernel does not add those of the containers' cgroups."""
        sample = self._cgroups.read(path)
        if sample is None or sample.memory is None or self._cgroups.context.layout.sums_oom_kills:
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
        """None for a pod on the machine's network, whose counters are the node's."""
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
            whole = self._filesystems.latest(volume.path)
            used = self._directories.get(volume.path) if volume.kind in OWN_KINDS else None
            if whole is not None:
                fs = whole._replace(used_bytes=None, inodes_used=None)
                fs = filesystems.within(fs, used) or fs
                samples.append(VolumeSample(volume, fs))
        return tuple(samples)
