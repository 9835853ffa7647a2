"""Measurements in CRI messages → the agent's values; pure.

A number that the runtime does not report is None, never zero.
"""

from __future__ import annotations

from typing import Any

from nodeagent.psi import Pressure, PressureLine
from nodeagent.runtime.base import (
    ContainerUsage,
    FilesystemUsage,
    InterfaceUsage,
    SandboxUsage,
)


def image_filesystems(response: Any) -> tuple[FilesystemUsage, ...]:
    return tuple(
        FilesystemUsage(
            mountpoint=usage.fs_id.mountpoint,
            used_bytes=usage.used_bytes.value,
            inodes_used=_value(usage, "inodes_used"),
            timestamp_ns=usage.timestamp,
        )
        for usage in response.image_filesystems
    )


def container_usage(stats: Any) -> ContainerUsage:
    """The usage of one container from a ContainerStats message.

    containerd measures layers every ten seconds; one not measured yet has 0 bytes and no stamp.
    """
    layer = stats.writable_layer
    is_measured = layer.timestamp or _value(layer, "used_bytes")
    return ContainerUsage(
        id=stats.attributes.id,
        name=stats.attributes.metadata.name,
        labels=dict(stats.attributes.labels),
        writable_layer_used_bytes=_value(layer, "used_bytes") if is_measured else None,
        writable_layer_inodes_used=_value(layer, "inodes_used") if is_measured else None,
        writable_layer_timestamp_ns=layer.timestamp,
        swap_available_bytes=_value(stats.swap, "swap_available_bytes"),
        swap_usage_bytes=_value(stats.swap, "swap_usage_bytes"),
        **_shared(stats),
    )


def sandbox_usage(stats: Any) -> SandboxUsage:
    """The usage of one pod from a PodSandboxStats message."""
    attributes, linux = stats.attributes, stats.linux
    network = linux.network
    interfaces = list(network.interfaces)
    if network.HasField("default_interface"):
        interfaces.insert(0, network.default_interface)
    return SandboxUsage(
        namespace=attributes.metadata.namespace,
        uid=attributes.metadata.uid,
        total=ContainerUsage(
            id=attributes.id,
            name=attributes.metadata.name,
            labels=dict(attributes.labels),
            writable_layer_used_bytes=None,
            writable_layer_inodes_used=None,
            **_shared(linux),
        ),
        network_timestamp_ns=network.timestamp,
        interfaces=tuple(_interface(item) for item in interfaces),
        process_count=_value(linux.process, "process_count"),
        containers=tuple(container_usage(item) for item in linux.containers),
    )


def pressure(psi: Any) -> Pressure:
    """The two lines of a PsiStats message; `full` is None when the runtime omits it."""
    return Pressure(
        some=_pressure_line(psi.Some),
        full=_pressure_line(psi.Full) if psi.HasField("Full") else None,
    )


def _shared(stats: Any) -> dict[str, Any]:
    """The fields that containers and pods share, by their names in ContainerUsage."""
    cpu, memory = stats.cpu, stats.memory
    return {
        "cpu_usage_core_ns": _value(cpu, "usage_core_nano_seconds"),
        "cpu_usage_nano_cores": _value(cpu, "usage_nano_cores"),
        "cpu_timestamp_ns": cpu.timestamp,
        "memory_timestamp_ns": memory.timestamp,
        "memory_working_set_bytes": _value(memory, "working_set_bytes"),
        "memory_available_bytes": _value(memory, "available_bytes"),
        "memory_usage_bytes": _value(memory, "usage_bytes"),
        "memory_rss_bytes": _value(memory, "rss_bytes"),
        "page_faults": _value(memory, "page_faults"),
        "major_page_faults": _value(memory, "major_page_faults"),
        "cpu_pressure": _pressure_of(cpu),
        "memory_pressure": _pressure_of(memory),
        "io_pressure": _pressure_of(stats.io),
    }


def _pressure_of(usage: Any) -> Pressure | None:
    return pressure(usage.psi) if usage.HasField("psi") else None


def _pressure_line(data: Any) -> PressureLine:
    """CRI's totals are nanoseconds; the agent uses the kernel's microseconds."""
    return PressureLine(data.Avg10, data.Avg60, data.Avg300, data.Total // 1000)


def _interface(item: Any) -> InterfaceUsage:
    return InterfaceUsage(
        name=item.name,
        rx_bytes=_value(item, "rx_bytes"),
        rx_errors=_value(item, "rx_errors"),
        tx_bytes=_value(item, "tx_bytes"),
        tx_errors=_value(item, "tx_errors"),
    )


def _value(message: Any, name: str) -> int | None:
    return int(getattr(message, name).value) if message.HasField(name) else None
