"""Pods and containers as the runtime measures them (feature gate PodAndContainerStatsFromCRI).

One list call per interval into a cache, never per scrape: it costs the runtime about a millisecond
per container. A pod that the runtime says nothing of, or nothing recent, is read from its cgroups
like without the gate; so is every pod of a runtime that does not know the call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from nodeagent.runtime.base import (
    ContainerRuntime,
    ContainerUsage,
    RuntimeCallError,
    RuntimeNotSupported,
    SandboxUsage,
)
from nodeagent.stats.samples import (
    CgroupSample,
    CpuSample,
    InterfaceSample,
    Limits,
    MemorySample,
    NetworkSample,
)

log = logging.getLogger(__name__)

DEADLINE_S = 8.0  # less than the interval of the loop
MAX_AGE_S = 60.0


class RuntimeStatsLoop:
    """`step` belongs in a loop of the sampling interval."""

    def __init__(self, runtime: ContainerRuntime) -> None:
        self._runtime = runtime
        self._usage: Mapping[str, SandboxUsage] = {}
        self._taken_s = 0.0
        self._complaint = ""

    def latest(self) -> Mapping[str, SandboxUsage]:
        """Pods by uid; empty while the runtime has told nothing for a minute."""
        age_s = asyncio.get_running_loop().time() - self._taken_s
        return self._usage if age_s <= MAX_AGE_S else {}

    async def step(self) -> None:
        """Ask once; nothing is raised when the runtime does not answer."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                usage = await self._runtime.sandbox_usage()
        except (RuntimeCallError, TimeoutError) as error:
            self._complain(error)
            return
        self._complaint = ""
        self._taken_s = asyncio.get_running_loop().time()
        self._usage = {one.uid: one for one in usage}

    def _complain(self, error: Exception) -> None:
        """Once per kind of failure."""
        kind = type(error).__name__
        if kind != self._complaint:
            reason = str(error) or f"no answer within {DEADLINE_S} s"
            what = "measures no pods" if isinstance(error, RuntimeNotSupported) else "did not tell"
            when = "once its last numbers are a minute old" if self.latest() else "instead"
            log.warning("the runtime %s, cgroups are read %s: %s", what, when, reason)
        self._complaint = kind


def usage_sample(usage: ContainerUsage, processes: int | None = None) -> CgroupSample:
    """What the runtime says of a container or a pod, as if read from its cgroup."""
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
            # containerd says that 0 bytes are available where there is no limit
            memory_bytes=_sum(usage.memory_available_bytes or None, usage.memory_working_set_bytes),
            swap_bytes=_sum(usage.swap_available_bytes, usage.swap_usage_bytes),
            from_kernel=False,
        ),
    )


def usage_network(usage: SandboxUsage) -> NetworkSample | None:
    """The pod's interfaces; CRI counts neither packets nor drops, and containerd gives no stamp."""
    interfaces = tuple(
        InterfaceSample(
            one.name,
            rx_bytes=one.rx_bytes,
            rx_packets=None,
            rx_errors=one.rx_errors,
            rx_dropped=None,
            tx_bytes=one.tx_bytes,
            tx_packets=None,
            tx_errors=one.tx_errors,
            tx_dropped=None,
        )
        for one in usage.interfaces
    )
    if not interfaces:
        return None
    time_ns = usage.network_timestamp_ns or usage.total.cpu_timestamp_ns
    return NetworkSample(time_ns, interfaces, interfaces[0].name)


def _sum(available: int | None, used: int | None) -> int | None:
    return None if available is None or used is None else available + used
