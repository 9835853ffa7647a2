"""Numbers of single files → one cgroup sample; pure.

The positions are those of `layout`; version 1 gives a number where version 2 gives a whole value,
and that is all that differs. A number whose file could not be read is None in the sample.
"""

from __future__ import annotations

from typing import Any

from nodeagent.stats import layout
from nodeagent.stats.samples import (
    CgroupSample,
    CpuSample,
    DeviceIo,
    MemorySample,
    ProcessSample,
    Settings,
)

_new = tuple.__new__  # the order is that of the fields; their own constructors take twice as long
_NO_STAT = (None,) * 9
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
    rss, cache, kernel, mapped, inactive, active, stat_swap, faults, major = stat or _NO_STAT
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
    """The peak may be a minute old: what is in use now may already be above it."""
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
