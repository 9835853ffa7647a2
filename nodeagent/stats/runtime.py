"""Facts from the container runtime: its own cgroup, disk use, and the usage that it measures.

`RuntimeStatsLoop` serves the feature gate PodAndContainerStatsFromCRI. Every value is fetched in a
loop and cached, never per scrape: a list call costs the runtime about a millisecond per container.
A runtime that does not answer leaves the last values with their own stamps; pods it says nothing
recent about are read from their cgroups, as without the gate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.runtime.base import (
    ContainerRuntime,
    ContainerUsage,
    FilesystemUsage,
    RuntimeCallError,
    RuntimeNotSupported,
    SandboxUsage,
)
from nodeagent.stats.host import machine
from nodeagent.stats.samples import (
    CgroupSample,
    CpuSample,
    FsSample,
    InterfaceSample,
    Limits,
    MemorySample,
    NetworkSample,
    SystemPart,
)
from orch.component.process import system
from orch.component.process.once_log import OnceLog
from orch.component.process.system import server_pid

log = logging.getLogger(__name__)

DEADLINE_S = 8.0  # less than the interval of the loop
MAX_AGE_S = 60.0


class RuntimeStatsLoop:
    """`step` belongs in a loop of the sampling interval."""

    def __init__(self, runtime: ContainerRuntime) -> None:
        self._runtime = runtime
        self._usage: Mapping[str, SandboxUsage] = {}
        self._taken_s = 0.0
        self._outage = OnceLog(log)

    def latest(self) -> Mapping[str, SandboxUsage]:
        """Pods by uid; empty once the runtime's last answer is a minute old."""
        age_s = asyncio.get_running_loop().time() - self._taken_s
        return self._usage if age_s <= MAX_AGE_S else {}

    async def step(self) -> None:
        """Query once; never raises when the runtime does not answer."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                usage = await self._runtime.sandbox_usage()
        except (RuntimeCallError, TimeoutError) as error:
            self._log_outage(error)
            return
        self._outage.recovered()
        self._taken_s = asyncio.get_running_loop().time()
        self._usage = {sandbox.uid: sandbox for sandbox in usage}

    def _log_outage(self, error: Exception) -> None:
        """Log once per kind of failure."""
        reason = str(error) or f"no answer within {DEADLINE_S} s"
        what = "measures no pods" if isinstance(error, RuntimeNotSupported) else "did not answer"
        when = "once its last numbers are a minute old" if self.latest() else "instead"
        text = "the runtime %s, cgroups are read %s: %s"
        self._outage.failed(text, what, when, reason, cause=type(error).__name__)


def usage_sample(usage: ContainerUsage) -> CgroupSample:
    """The runtime's figures for a container or a pod, as if read from its cgroup."""
    memory = MemorySample(
        usage_bytes=usage.memory_usage_bytes,
        working_set_bytes=usage.memory_working_set_bytes,
        rss_bytes=usage.memory_rss_bytes,
        swap_bytes=usage.swap_usage_bytes,
        page_faults=usage.page_faults,
        major_page_faults=usage.major_page_faults,
    )
    cpu = usage.cpu_usage_core_ns
    return CgroupSample(
        time_ns=usage.cpu_timestamp_ns or usage.memory_timestamp_ns,
        cpu=None if cpu is None else CpuSample(cpu, usage_nanocores=usage.cpu_usage_nano_cores),
        memory=memory if memory != MemorySample() else None,
        cpu_pressure=usage.cpu_pressure,
        memory_pressure=usage.memory_pressure,
        io_pressure=usage.io_pressure,
        limits=Limits(
            # containerd reports 0 available bytes when there is no limit
            memory_bytes=_sum(usage.memory_available_bytes or None, usage.memory_working_set_bytes),
            swap_bytes=_sum(usage.swap_available_bytes, usage.swap_usage_bytes),
            from_kernel=False,
        ),
    )


def usage_network(usage: SandboxUsage) -> NetworkSample | None:
    """The pod's interfaces; CRI counts neither packets nor drops, containerd sends no stamp."""
    interfaces = tuple(
        InterfaceSample(
            interface.name,
            rx_bytes=interface.rx_bytes,
            rx_errors=interface.rx_errors,
            tx_bytes=interface.tx_bytes,
            tx_errors=interface.tx_errors,
        )
        for interface in usage.interfaces
    )
    if not interfaces:
        return None
    time_ns = usage.network_timestamp_ns or usage.total.cpu_timestamp_ns
    return NetworkSample(time_ns, interfaces, interfaces[0].name)


def _sum(available: int | None, used: int | None) -> int | None:
    return None if available is None or used is None else available + used


class RuntimeCgroup:
    """Finds the cgroup of the process that serves the runtime's socket; `latest` has it, if any.

    `step` belongs in a loop of about a minute. A runtime that does not answer keeps its last
    cgroup. There is none when systemd itself or another PID namespace holds the socket, or when
    the runtime shares `own_cgroup`, the agent's.
    """

    def __init__(self, socket: str, own_cgroup: str | None, proc_root: str = "/proc") -> None:
        self.latest: tuple[SystemPart, ...] = ()
        self._socket = socket
        self._own_cgroup = own_cgroup
        self._proc_root = proc_root

    async def step(self) -> None:
        """Search once; never raises when there is nothing to find."""
        self.latest = await asyncio.to_thread(self._find)

    def _find(self) -> tuple[SystemPart, ...]:
        pid = server_pid(self._socket)
        if not pid:
            return self.latest
        cgroup = machine.cgroup_of(self._proc_root, pid)
        if pid == 1 or cgroup is None or cgroup == self._own_cgroup:
            return ()
        return (SystemPart("runtime", cgroup, int(system.process_start_s(pid) * 1e9)),)


_MAX_SINGLE_CALLS = 8  # for more containers, one list of all costs less


@dataclass(frozen=True, slots=True)
class RuntimeDisks:
    """`image_fs` is None when unknown; `writable_layers` are by container id."""

    image_fs: FilesystemUsage | None = None
    writable_layers: Mapping[str, FsSample] = field(default_factory=dict)


class RuntimeDiskLoop:
    """Keeps `latest` up to date; `step` belongs in a loop of about a minute."""

    def __init__(self, runtime: ContainerRuntime) -> None:
        self.latest = RuntimeDisks()
        self._runtime = runtime
        self._outage = OnceLog(log)
        self._query_lock = asyncio.Lock()

    async def step(self) -> None:
        """Query the runtime once; never raises when it does not answer."""
        async with self._query_lock:
            try:
                filesystems = await self._runtime.image_filesystems()
                usage = await self._runtime.container_usage()
            except RuntimeCallError as error:
                self._outage.failed("the runtime does not report its disk usage: %s", error)
                return
            self._outage.recovered()
            self.latest = RuntimeDisks(
                filesystems[0] if filesystems else None, _writable_layers(usage)
            )

    async def step_new(self, ids: Sequence[str]) -> None:
        """Query the layers of these containers; those of all others stay as they are."""
        async with self._query_lock:
            try:
                usage = await self._usage_of(ids)
            except RuntimeCallError as error:
                self._outage.failed("the runtime does not report its disk usage: %s", error)
                return
            layers = {**self.latest.writable_layers, **_writable_layers(usage)}
            self.latest = replace(self.latest, writable_layers=layers)

    async def _usage_of(self, ids: Sequence[str]) -> Sequence[ContainerUsage]:
        if len(ids) > _MAX_SINGLE_CALLS:
            return await self._runtime.container_usage()
        return [usage for id_ in ids for usage in await self._runtime.container_usage(id_)]


def _writable_layers(usage: Sequence[ContainerUsage]) -> dict[str, FsSample]:
    return {
        container.id: FsSample(
            container.writable_layer_timestamp_ns or container.cpu_timestamp_ns,
            used_bytes=container.writable_layer_used_bytes,
            inodes_used=container.writable_layer_inodes_used,
        )
        for container in usage
        if container.writable_layer_used_bytes is not None
    }
