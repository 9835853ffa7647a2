"""Settings of a cgroup, and the numbers that may be a minute old: limits, quota, peak.

They change rarely and are read by path, not through kept descriptors. A missing or unreadable
file leaves its value None; that is no error here.
"""

from __future__ import annotations

import io

from nodeagent.stats import cgroupvalues as values
from nodeagent.stats.layout import Layout
from nodeagent.stats.samples import Limits, Settings

_READ_BYTES = 4096


def read_settings(layout: Layout, path: str) -> Settings:
    """The settings of the cgroup `path`; all None when it does not exist."""
    if layout.version == "v2":
        return _read_v2(f"{layout.unified}{path}")
    return _read_v1(layout.controllers, path)


def _read_v2(directory: str) -> Settings:
    quota, period = values.parse_cpu_max(_content(f"{directory}/cpu.max"))
    weight = values.parse_limit(_content(f"{directory}/cpu.weight"))
    limits = Limits(
        memory_bytes=values.parse_limit(_content(f"{directory}/memory.max")),
        memory_reservation_bytes=values.parse_limit(_content(f"{directory}/memory.low")),
        swap_bytes=values.parse_limit(_content(f"{directory}/memory.swap.max")),
        cpu_quota_usec=quota,
        cpu_period_usec=period,
        cpu_shares=values.shares_of_weight(weight) if weight else None,
        threads=values.parse_limit(_content(f"{directory}/pids.max")),
    )
    return Settings(limits, values.parse_number(_content(f"{directory}/memory.peak")))


def _read_v1(controllers: dict[str, str], path: str) -> Settings:
    def limit(controller: str, name: str) -> int | None:
        root = controllers.get(controller)
        return values.parse_limit(_content(f"{root}{path}/{name}")) if root else None

    memory = limit("memory", "memory.limit_in_bytes")
    limits = Limits(
        memory_bytes=memory,
        memory_reservation_bytes=limit("memory", "memory.soft_limit_in_bytes"),
        swap_bytes=_swap_limit(memory, limit("memory", "memory.memsw.limit_in_bytes")),
        cpu_quota_usec=limit("cpu", "cpu.cfs_quota_us"),
        cpu_period_usec=limit("cpu", "cpu.cfs_period_us"),
        cpu_shares=limit("cpu", "cpu.shares"),
        threads=limit("pids", "pids.max"),
    )
    return Settings(
        limits,
        limit("memory", "memory.max_usage_in_bytes"),
        limit("memory", "memory.failcnt"),
        limit("memory", "memory.kmem.usage_in_bytes"),
    )


def _swap_limit(memory: int | None, memory_and_swap: int | None) -> int | None:
    """v1 limits memory and swap together; what is left for swap is the difference."""
    if memory is None or memory_and_swap is None:
        return None
    return max(memory_and_swap - memory, 0)


def _content(path: str) -> bytes:
    try:
        with io.FileIO(path) as file:  # a node of a hundred pods reads thousands a minute
            return file.read(_READ_BYTES) or b""
    except OSError:
        return b""
