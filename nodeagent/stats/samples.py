"""Targets (what to measure) and samples (what was measured): frozen values; pure.

`None` always means "not reported", never zero. Times are nanoseconds since the epoch, counters
start at the subject's creation. Targets are frozen dataclasses; values created for every cgroup in
every pass are named tuples, which cost half as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nodeagent.psi import Pressure

# Volumes whose content belongs to the pod; that of a hostPath belongs to the host.
OWN_KINDS = frozenset({"emptyDir", "configMap", "secret", "projected", "downwardAPI"})


class VolumeTarget(NamedTuple):
    """A volume of a pod; `kind` is as the pod writes it: emptyDir, hostPath, configMap, …"""

    name: str
    path: str
    kind: str
    in_memory: bool = False

    @property
    def is_own(self) -> bool:
        """Whether its content belongs to the pod, on disk or in memory."""
        return self.kind in OWN_KINDS

    @property
    def is_own_on_disk(self) -> bool:
        """Whether it counts as ephemeral storage, which excludes memory."""
        return self.is_own and not self.in_memory


@dataclass(frozen=True, slots=True)
class ContainerTarget:
    """A running container; its cgroup is searched below its pod's unless it is given."""

    name: str
    id: str
    started_at_ns: int
    log_dir: str = ""
    image: str = ""
    cgroup: str = ""


@dataclass(frozen=True, slots=True)
class PodTarget:
    """A pod to measure; cgroup paths are relative to the root of every hierarchy."""

    namespace: str
    name: str
    uid: str
    cgroup_parent: str
    sandbox_id: str | None = None
    sandbox_pid: int | None = None
    started_at_ns: int = 0
    containers: tuple[ContainerTarget, ...] = ()
    log_dir: str = ""
    volumes: tuple[VolumeTarget, ...] = ()
    sandbox_cgroup: str = ""
    host_network: bool = False


@dataclass(frozen=True, slots=True)
class SystemPart:
    """A cgroup reported beside the pods: `nodeagent`, `runtime`, `misc` or `pods`."""

    name: str
    cgroup: str
    started_at_ns: int = 0


class CpuSample(NamedTuple):
    """`periods` and `throttled*` count CFS bandwidth control and stay None without a quota.

    `usage_nanocores` is a rate that the runtime computed, else None.
    """

    usage_nsec: int
    user_nsec: int | None = None
    system_nsec: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_nsec: int | None = None
    usage_nanocores: int | None = None


class MemorySample(NamedTuple):
    usage_bytes: int | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    cache_bytes: int | None = None
    mapped_file_bytes: int | None = None
    active_file_bytes: int | None = None
    inactive_file_bytes: int | None = None
    kernel_bytes: int | None = None
    swap_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    peak_bytes: int | None = None
    limit_failures: int | None = None
    oom_kills: int | None = None


class ProcessSample(NamedTuple):
    """`threads` is the count of the pids controller; `processes` are its thread groups."""

    threads: int | None = None
    processes: int | None = None


class DeviceIo(NamedTuple):
    major: int
    minor: int
    read_bytes: int | None
    write_bytes: int | None
    reads: int | None
    writes: int | None


class Limits(NamedTuple):
    """Settings of a cgroup; None: no limit, or none that the kernel reports.

    Without `from_kernel` they come from a runtime, where None may also mean "not reported".
    """

    memory_bytes: int | None = None
    memory_reservation_bytes: int | None = None
    swap_bytes: int | None = None
    cpu_quota_usec: int | None = None
    cpu_period_usec: int | None = None
    cpu_shares: int | None = None
    threads: int | None = None
    from_kernel: bool = True


class Settings(NamedTuple):
    """Limits, peak, count of limit failures, v1's kernel memory; up to a minute old."""

    limits: Limits = Limits()
    peak_bytes: int | None = None
    limit_failures: int | None = None
    kernel_bytes: int | None = None


class CgroupSample(NamedTuple):
    time_ns: int
    cpu: CpuSample | None = None
    memory: MemorySample | None = None
    processes: ProcessSample | None = None
    io: tuple[DeviceIo, ...] | None = None
    cpu_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None
    limits: Limits = Limits()


class InterfaceSample(NamedTuple):
    name: str
    rx_bytes: int | None = None
    rx_packets: int | None = None
    rx_errors: int | None = None
    rx_dropped: int | None = None
    tx_bytes: int | None = None
    tx_packets: int | None = None
    tx_errors: int | None = None
    tx_dropped: int | None = None


class NetworkSample(NamedTuple):
    """`default` names the interface of the default route, None when there is none."""

    time_ns: int
    interfaces: tuple[InterfaceSample, ...]
    default: str | None = None


class FsSample(NamedTuple):
    """A file system, or the share of it that a directory uses."""

    time_ns: int
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None


class RlimitSample(NamedTuple):
    time_ns: int
    max_pids: int | None
    running: int | None


class SwapSample(NamedTuple):
    time_ns: int
    total_bytes: int
    used_bytes: int


class ProcessUse(NamedTuple):
    """`max_open_files` is a process's soft limit: -1 without a limit, None if unknown.

    The sums are None when access to a process is denied.
    """

    time_ns: int
    file_descriptors: int | None
    sockets: int | None
    max_open_files: int | None


class ContainerSample(NamedTuple):
    """`cgroup` is None when the container's cgroup (`path`) does not exist (yet)."""

    target: ContainerTarget
    cgroup: CgroupSample | None = None
    rootfs: FsSample | None = None
    logs: FsSample | None = None
    path: str = ""
    use: ProcessUse | None = None


class VolumeSample(NamedTuple):
    target: VolumeTarget
    fs: FsSample


class PodSample(NamedTuple):
    """`logs` covers the pod's log directory without its containers' subdirectories.

    `process_count` is the runtime's count, None when containers are counted individually.
    """

    target: PodTarget
    cgroup: CgroupSample | None = None
    sandbox: CgroupSample | None = None
    containers: tuple[ContainerSample, ...] = ()
    network: NetworkSample | None = None
    volumes: tuple[VolumeSample, ...] = ()
    logs: FsSample | None = None
    path: str = ""
    sandbox_path: str = ""
    process_count: int | None = None

    def count_processes(self) -> int | None:
        """Processes of all containers and the sandbox; None when none could be counted."""
        if self.process_count is not None:
            return self.process_count
        samples = [self.sandbox, *[container.cgroup for container in self.containers]]
        counts = [
            sample.processes.processes
            for sample in samples
            if sample and sample.processes and sample.processes.processes is not None
        ]
        return sum(counts) if counts else None


class SystemSample(NamedTuple):
    """A part of the system with its own cgroup: the agent, the runtime, all pods."""

    name: str
    started_at_ns: int
    cgroup: CgroupSample


@dataclass(frozen=True, slots=True)
class NodeSample:
    """The machine; `memory_bytes` and `boot_time_ns` are 0 when unknown.

    `devices` names block devices by their numbers; `fs_device` is the node file system's.
    """

    cgroup: CgroupSample | None = None
    memory_bytes: int = 0
    boot_time_ns: int = 0
    fs: FsSample | None = None
    image_fs: FsSample | None = None
    container_fs: FsSample | None = None
    network: NetworkSample | None = None
    rlimit: RlimitSample | None = None
    swap: SwapSample | None = None
    system: tuple[SystemSample, ...] = ()
    devices: Mapping[tuple[int, int], str] = field(default_factory=dict)
    fs_device: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of everything; `errors` counts failed reads by kind of file."""

    time_ns: int
    node: NodeSample = NodeSample()
    pods: tuple[PodSample, ...] = ()
    duration_s: float = 0.0
    errors: Mapping[str, int] = field(default_factory=dict)


def directories_of(targets: Sequence[PodTarget]) -> Mapping[str, bool]:
    """The directories to walk for these pods: path → whether recursively (logs are not)."""
    wanted: dict[str, bool] = {}
    for target in targets:
        wanted.update({container.log_dir: False for container in target.containers})
        wanted[target.log_dir] = False
        wanted.update({volume.path: True for volume in target.volumes if volume.is_own})
    wanted.pop("", None)
    return wanted
