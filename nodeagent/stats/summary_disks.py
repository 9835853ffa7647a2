"""Disk and network samples → the objects of the stats API; pure.

Shared by `summary` and whoever reports or limits ephemeral storage. Unknown fields are left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from nodeagent.stats.cgroup.values import UINT64_MAX
from nodeagent.stats.samples import (
    FsSample,
    InterfaceSample,
    NetworkSample,
    PodSample,
    VolumeSample,
)
from orch.wire import times

Json = dict[str, Any]

_NSEC_PER_S = 1_000_000_000


def timestamp(time_ns: int) -> str:
    """RFC 3339 in UTC, to the second."""
    return _rfc3339(time_ns // _NSEC_PER_S)


@lru_cache(maxsize=4096)
def _rfc3339(time_s: int) -> str:
    return times.format_time(datetime.fromtimestamp(time_s, UTC))


def without_none(fields: Json) -> Json:
    """The fields whose value is known; the same dict when all are."""
    if None not in fields.values():
        return fields
    return {name: value for name, value in fields.items() if value is not None}


def fs_json(fs: FsSample | None) -> Json | None:
    """FsStats with the fields that are known."""
    if fs is None:
        return None
    time_ns, available, capacity, used, inodes_free, inodes, inodes_used = fs
    return without_none(
        {
            "time": timestamp(time_ns),
            "availableBytes": available,
            "capacityBytes": capacity,
            "usedBytes": used,
            "inodesFree": inodes_free,
            "inodes": inodes,
            "inodesUsed": inodes_used,
        }
    )


def volume_json(volume: VolumeSample) -> Json:
    """VolumeStats: FsStats and the volume's name."""
    return (fs_json(volume.fs) or {}) | {"name": volume.target.name}


def ephemeral_storage(pod: PodSample, node_fs: FsSample | None) -> FsSample | None:
    """The pod's use of the node's disk: writable layers, logs and its own volumes.

    The stamp is the youngest of the parts; None when nothing was measured yet. As in the reference,
    inodes of the containers' log directories do not count.
    """
    parts = [volume.fs for volume in pod.volumes if volume.target.is_own_on_disk]
    if pod.logs:
        parts.append(pod.logs)
    logs = []
    for container in pod.containers:
        if container.rootfs:
            parts.append(container.rootfs)
        if container.logs:
            logs.append(container.logs)
    used = _sum([part.used_bytes for part in parts + logs])
    inodes = _sum([part.inodes_used for part in parts])
    if used is None and inodes is None:
        return None
    time_ns = max([part.time_ns for part in parts + logs])
    _, available, capacity, _, inodes_free, all_inodes, _ = node_fs or FsSample(0)
    return FsSample(time_ns, available, capacity, used, inodes_free, all_inodes, inodes)


def _sum(numbers: list[int | None]) -> int | None:
    """The sum of the known ones; None without any, or beyond 64 bits."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known and sum(known) <= UINT64_MAX else None


def network_json(network: NetworkSample | None) -> Json | None:
    """The default interface's fields inline, then all interfaces."""
    if network is None:
        return None
    interfaces = [_interface(interface) for interface in network.interfaces]
    out: Json = {"time": timestamp(network.time_ns), "name": network.default or ""}
    for interface in interfaces:
        if interface["name"] == network.default:
            out |= interface
    return out | {"interfaces": interfaces}


def _interface(interface: InterfaceSample) -> Json:
    return without_none(
        {
            "name": interface.name,
            "rxBytes": interface.rx_bytes,
            "rxErrors": interface.rx_errors,
            "txBytes": interface.tx_bytes,
            "txErrors": interface.tx_errors,
        }
    )
