"""What a runtime measured itself: values of the optional statistics calls.

Frozen values in the agent's units: times in nanoseconds since the epoch, None where the runtime
reports nothing. `base` hands them out under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeagent.psi import Pressure


@dataclass(frozen=True, slots=True)
class FilesystemUsage:
    mountpoint: str
    used_bytes: int
    inodes_used: int | None
    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What the runtime itself measured of a container; None where it reports nothing.

    Stamps are 0 where it gives none.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    cpu_usage_core_ns: int | None
    cpu_timestamp_ns: int
    memory_working_set_bytes: int | None
    memory_usage_bytes: int | None
    writable_layer_used_bytes: int | None
    writable_layer_inodes_used: int | None
    writable_layer_timestamp_ns: int = 0
    cpu_usage_nano_cores: int | None = None
    memory_timestamp_ns: int = 0
    memory_available_bytes: int | None = None
    memory_rss_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    swap_available_bytes: int | None = None
    swap_usage_bytes: int | None = None
    cpu_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None


@dataclass(frozen=True, slots=True)
class InterfaceUsage:
    """Counters of one network interface since it was made; None where not reported."""

    name: str
    rx_bytes: int | None
    rx_errors: int | None
    tx_bytes: int | None
    tx_errors: int | None


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """What the runtime measured of a pod as a whole and of each of its containers.

    `total` carries the sandbox's id and the pod's name where a container's would be; writable
    layer and swap are never reported of a pod. The default interface comes first.
    """

    namespace: str
    uid: str
    total: ContainerUsage
    network_timestamp_ns: int = 0
    interfaces: Sequence[InterfaceUsage] = ()
    process_count: int | None = None
    containers: Sequence[ContainerUsage] = ()
