"""The values of one cgroup's files → its sample, and the cgroup's settings.

The positions are those of `layout`; version 1 yields a number where version 2 yields a record, and
that is the only difference. Settings (limits, quota, peak) change rarely, may be a minute old, and
are read by path. A value whose file is missing or unreadable is None; that is no error here.
"""

from __future__ import annotations

import io
from typing import Any

from nodeagent.stats.cgroup import layout, values
from nodeagent.stats.cgroup.layout import Layout
from nodeagent.stats.cgroup.values import NO_STAT
from nodeagent.stats.samples import (
    CgroupSample,
    CpuSample,
    DeviceIo,
    Limits,
    MemorySample,
    ProcessSample,
    Settings,
)

_new = tuple.__new__  # values in the order of the fields; the constructors take twice as long
_NOTHING = (None, None, None)
_PAIR = (None, None)


def assemble(time_ns: int, values: list[Any], settings: Settings) -> CgroupSample:
    """`values` by position, None where nothing was read."""
    threads, processes = values[layout.THREADS], values[layout.PROCESSES]
    return _new(
        CgroupSample,
        (
            time_ns,
            _cpu(values),
            _memory(values, settings),
            None if threads is None and processes is None else ProcessSample(threads, processes),
            _io(values),
            values[layout.PSI_CPU],
            values[layout.PSI_MEMORY],
            values[layout.PSI_IO],
            settings.limits,
        ),
    )


def _cpu(values: list[Any]) -> CpuSample | None:
    cpu = values[layout.CPU]
    if cpu is None or isinstance(cpu, CpuSample):
        return cpu
    times, throttled = values[layout.CPU_TIMES], values[layout.CPU_THROTTLE]
    return _new(CpuSample, (cpu, *(times or _PAIR), *(throttled or _NOTHING), None))


def _memory(values: list[Any], settings: Settings) -> MemorySample | None:
    usage, stat = values[layout.MEMORY_USAGE], values[layout.MEMORY_STAT]
    if usage is None and stat is None:
        return None
    rss, cache, kernel, mapped, inactive, active, stat_swap, faults, major = stat or NO_STAT
    oom_kills, failures = values[layout.MEMORY_EVENTS] or _PAIR
    swap = values[layout.SWAP]
    return _new(
        MemorySample,
        (
            usage,
            None if usage is None or inactive is None else max(usage - inactive, 0),
            rss,
            cache,
            mapped,
            active,
            inactive,
            settings.kernel_bytes if kernel is None else kernel,
            stat_swap if swap is None else swap,
            faults,
            major,
            _peak(settings.peak_bytes, usage),
            settings.limit_failures if failures is None else failures,
            oom_kills,
        ),
    )


def _peak(peak: int | None, usage: int | None) -> int | None:
    """The peak may be a minute old, and current usage already above it."""
    return peak if peak is None or usage is None else max(peak, usage)


def _io(values: list[Any]) -> tuple[DeviceIo, ...] | None:
    transferred = values[layout.IO_BYTES]
    if transferred is None or isinstance(transferred, tuple):
        return transferred
    operations = values[layout.IO_OPERATIONS] or {}
    return tuple(
        DeviceIo(*device, *transferred.get(device, (None, None)), *operations.get(device, _PAIR))
        for device in sorted(transferred.keys() | operations.keys())
    )


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
        cpu_shares=values.shares_from_weight(weight) if weight else None,
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
    """v1 limits memory and swap together; the difference is left for swap."""
    if memory is None or memory_and_swap is None:
        return None
    return max(memory_and_swap - memory, 0)


def _content(path: str) -> bytes:
    try:
        with io.FileIO(path) as file:  # a node of a hundred pods reads thousands a minute
            return file.read(_READ_BYTES) or b""
    except OSError:
        return b""
