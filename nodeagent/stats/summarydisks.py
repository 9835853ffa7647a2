"""Disk and network samples → the objects of the stats API; pure. Used by `summary` alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from nodeagent.stats.samples import FsSample, InterfaceSample, NetworkSample, PodSample
from nodeagent.stats.targets import EPHEMERAL_KINDS
from orch.wire import times

Json = dict[str, Any]

_NSEC_PER_S = 1_000_000_000
_FS_FIELDS = (
    ("availableBytes", "available_bytes"),
    ("capacityBytes", "capacity_bytes"),
    ("usedBytes", "used_bytes"),
    ("inodesFree", "inodes_free"),
    ("inodes", "inodes"),
    ("inodesUsed", "inodes_used"),
)


def timestamp(time_ns: int) -> str:
    """RFC 3339 in UTC, to the second."""
    return _of_second(time_ns // _NSEC_PER_S)


@lru_cache(maxsize=4096)
def _of_second(time_s: int) -> str:
    return times.format_time(datetime.fromtimestamp(time_s, UTC))


def known_json(fs: FsSample) -> Json:
    """FsStats with the fields that are known."""
    out: Json = {"time": timestamp(fs.time_ns)}
    for field, name in _FS_FIELDS:
        value = getattr(fs, name)
        if value is not None:
            out[field] = value
    return out


def fs_json(fs: FsSample | None) -> Json | None:
    return None if fs is None else known_json(fs)


def ephemeral_storage(pod: PodSample, node_fs: FsSample | None) -> FsSample | None:
    """What the pod keeps on the node's disk: layers, logs and its own volumes.

    The stamp is the youngest of the parts; None when nothing was measured yet.
    """
    rootfs = [container.rootfs for container in pod.containers if container.rootfs]
    logs = [container.logs for container in pod.containers if container.logs]
    volumes = [volume.fs for volume in pod.volumes if volume.target.kind in EPHEMERAL_KINDS]
    own_logs = [pod.logs] if pod.logs else []
    parts = [*rootfs, *logs, *volumes, *own_logs]
    used = _total(parts, lambda part: part.used_bytes)
    inodes = _total([*rootfs, *volumes, *own_logs], lambda part: part.inodes_used)
    if used is None and inodes is None:
        return None
    whole = node_fs or FsSample(0)
    time_ns = max(part.time_ns for part in parts)
    return whole._replace(time_ns=time_ns, used_bytes=used, inodes_used=inodes)


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
    return {
        "name": interface.name,
        "rxBytes": interface.rx_bytes,
        "rxErrors": interface.rx_errors,
        "txBytes": interface.tx_bytes,
        "txErrors": interface.tx_errors,
    }


def _total(parts: list[FsSample], field: Callable[[FsSample], int | None]) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in map(field, parts) if value is not None]
    return sum(known) if known else None
