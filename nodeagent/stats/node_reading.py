"""One reading of the machine itself, and of the parts of the system that have a cgroup.

What the root cgroup does not tell (version 2 has no memory.current there) comes from /proc.
"""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.psi import RESOURCES, Pressure
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.cgroup.values import UINT64_MAX
from nodeagent.stats.host import filesystems, machine, network
from nodeagent.stats.host.filesystems import Mounts
from nodeagent.stats.runtime import RuntimeDisks
from nodeagent.stats.samples import (
    CgroupSample,
    FsSample,
    MemorySample,
    NodeSample,
    SystemSample,
)
from nodeagent.stats.sources import Sources

NoteState = Callable[[str, str, str], None]


class NodeReader:
    """`note_psi` is told, per resource, whether the kernel offers the machine's pressure."""

    def __init__(
        self, sources: Sources, cgroups: CgroupReaders, note_psi: NoteState, mounts: Mounts
    ) -> None:
        self._sources = sources
        self._cgroups = cgroups
        self._mounts = mounts
        self._note_psi = note_psi

    def read(self, time_ns: int, disks: RuntimeDisks) -> NodeSample:
        """The machine now; a part that cannot be read is None."""
        sources = self._sources
        meminfo = machine.read_meminfo(sources.proc_root)
        image_fs = self._image_fs(disks)
        devices = filesystems.parse_diskstats(machine.read_bytes(sources.proc_root, "diskstats"))
        return NodeSample(
            cgroup=self._root_cgroup(time_ns),
            memory_bytes=meminfo.get("MemTotal", 0),
            boot_time_ns=sources.boot_time_ns,
            fs=self._mounts.latest(sources.node_path),
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
        """The file system of the images; `used` is what the runtime says of its images alone."""
        usage = disks.image_fs
        whole = usage and self._mounts.latest(usage.mountpoint)
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
    """v2's root cgroup has no memory.current: what is anonymous or cached is in use.

    v1's counts the kills of its own tasks alone, v2's none.
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
