"""The text of single cgroup files → numbers; pure.

Parsing is targeted: find the key, read its number, look no further (a whole memory.stat as a
dict costs four times as much). A parser never raises: what is missing, malformed, negative or
beyond 64 bits is None. Sources: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from nodeagent.stats.samples import CpuSample, DeviceIo

UINT64_MAX = 2**64 - 1
UNLIMITED_FROM = 2**62  # v1 writes "no limit" as the largest multiple of the page size
_NSEC_PER_USEC = 1000
_NSEC_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class MemoryStat(NamedTuple):
    """The keys of memory.stat that the agent reports; v1 names are those of the hierarchy."""

    rss_bytes: int | None
    cache_bytes: int | None
    kernel_bytes: int | None
    mapped_file_bytes: int | None
    inactive_file_bytes: int | None
    active_file_bytes: int | None
    swap_bytes: int | None
    page_faults: int | None
    major_page_faults: int | None


class MemoryEvents(NamedTuple):
    """`limit_failures` counts how often usage was about to exceed the limit."""

    oom_kills: int | None
    limit_failures: int | None


def parse_number(data: bytes) -> int | None:
    """A file that holds one number: memory.current, pids.current, cpuacct.usage."""
    try:
        value = int(data)
    except ValueError:
        return None
    return value if 0 <= value <= UINT64_MAX else None


def parse_limit(data: bytes) -> int | None:
    """A limit in bytes or tasks; None also for `max`, -1 and v1's way to write "no limit"."""
    value = parse_number(data)
    return value if value is not None and value < UNLIMITED_FROM else None


def find_number(data: bytes, key: bytes) -> int | None:
    """The number after `key` at the beginning of a line; `key` is `b"\\nanon "`."""
    start = data.find(key)
    if start >= 0:
        start += len(key)
    elif data.startswith(key[1:]):
        start = len(key) - 1
    else:
        return None
    end = data.find(b"\n", start)
    return parse_number(data[start:end] if end >= 0 else data[start:])


def parse_cpu_stat(data: bytes) -> CpuSample | None:
    """v2 cpu.stat; the lines of bandwidth control exist with the cpu controller only."""
    usage_nsec = _times(find_number(data, b"\nusage_usec "), _NSEC_PER_USEC)
    if usage_nsec is None:
        return None
    throttled = _throttled_usec(data)
    return CpuSample(
        usage_nsec,
        _times(find_number(data, b"\nuser_usec "), _NSEC_PER_USEC),
        _times(find_number(data, b"\nsystem_usec "), _NSEC_PER_USEC),
        *throttled,
    )


def _throttled_usec(data: bytes) -> tuple[int | None, int | None, int | None]:
    if b"\nnr_periods " not in data:
        return None, None, None
    return (
        find_number(data, b"\nnr_periods "),
        find_number(data, b"\nnr_throttled "),
        _times(find_number(data, b"\nthrottled_usec "), _NSEC_PER_USEC),
    )


def parse_cpuacct_stat(data: bytes) -> tuple[int | None, int | None]:
    """v1 cpuacct.stat: user and system time in nanoseconds (the file counts clock ticks)."""
    return (
        _times(find_number(data, b"\nuser "), _NSEC_PER_TICK),
        _times(find_number(data, b"\nsystem "), _NSEC_PER_TICK),
    )


def parse_throttling(data: bytes) -> tuple[int | None, int | None, int | None]:
    """v1 cpu.stat: periods, throttled periods, throttled nanoseconds."""
    return (
        find_number(data, b"\nnr_periods "),
        find_number(data, b"\nnr_throttled "),
        find_number(data, b"\nthrottled_time "),
    )


def parse_memory_stat(data: bytes) -> MemoryStat | None:
    """v2 memory.stat, whose numbers count the whole subtree; None when none is there."""
    return _known(
        MemoryStat(
            find_number(data, b"\nanon "),
            find_number(data, b"\nfile "),
            find_number(data, b"\nkernel "),
            find_number(data, b"\nfile_mapped "),
            find_number(data, b"\ninactive_file "),
            find_number(data, b"\nactive_file "),
            None,
            find_number(data, b"\npgfault "),
            find_number(data, b"\npgmajfault "),
        )
    )


def parse_memory_stat_v1(data: bytes) -> MemoryStat | None:
    """v1 memory.stat: the `total_` lines, which count the whole subtree."""
    start = data.find(b"\ntotal_cache ")
    tail = data[start:] if start >= 0 else data
    return _known(
        MemoryStat(
            find_number(tail, b"\ntotal_rss "),
            find_number(tail, b"\ntotal_cache "),
            None,
            find_number(tail, b"\ntotal_mapped_file "),
            find_number(tail, b"\ntotal_inactive_file "),
            find_number(tail, b"\ntotal_active_file "),
            find_number(tail, b"\ntotal_swap "),
            find_number(tail, b"\ntotal_pgfault "),
            find_number(tail, b"\ntotal_pgmajfault "),
        )
    )


def parse_memory_events(data: bytes) -> MemoryEvents:
    """v2 memory.events and v1 memory.oom_control, which has no `max` and, before 4.13, no kills."""
    return MemoryEvents(find_number(data, b"\noom_kill "), find_number(data, b"\nmax "))


def count_lines(data: bytes) -> int:
    """cgroup.procs: one process per line."""
    return data.count(b"\n")


def parse_io_stat(data: bytes) -> tuple[DeviceIo, ...]:
    """v2 io.stat: `8:0 rbytes=1 wbytes=2 rios=3 wios=4 …` per device; broken lines are left out."""
    if not data:
        return ()
    devices = []
    for line in data.splitlines():
        name, _, rest = line.partition(b" ")
        numbers = _device_numbers(name)
        if numbers is None:
            continue
        pairs = dict(pair.partition(b"=")[::2] for pair in rest.split())
        values = [
            parse_number(pairs.get(key, b"")) for key in (b"rbytes", b"wbytes", b"rios", b"wios")
        ]
        devices.append(DeviceIo(*numbers, *values))
    return tuple(devices)


def parse_blkio(data: bytes) -> dict[tuple[int, int], tuple[int | None, int | None]]:
    """v1 blkio.throttle.*: device → its `Read` and its `Write` number."""
    found: dict[tuple[int, int], list[int | None]] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) != 3 or words[1] not in (b"Read", b"Write"):
            continue
        numbers = _device_numbers(words[0])
        if numbers is not None:
            pair = found.setdefault(numbers, [None, None])
            pair[words[1] == b"Write"] = parse_number(words[2])
    return {numbers: (pair[0], pair[1]) for numbers, pair in found.items()}


def parse_cpu_max(data: bytes) -> tuple[int | None, int | None]:
    """v2 cpu.max, `max 100000` or `50000 100000`: quota (None: none) and period, microseconds."""
    words = data.split()
    if len(words) != 2:
        return None, None
    return parse_limit(words[0]), parse_limit(words[1])


def shares_of_weight(weight: int) -> int:
    """v2 cpu.weight (1 to 10000) → v1 cpu.shares (2 to 262144), as the runtimes convert."""
    return 2 + ((weight - 1) * 262142) // 9999


def _device_numbers(text: bytes) -> tuple[int, int] | None:
    major, _, minor = text.partition(b":")
    pair = parse_number(major), parse_number(minor)
    return (pair[0], pair[1]) if pair[0] is not None and pair[1] is not None else None


def _times(value: int | None, factor: int) -> int | None:
    """Value x factor; None stays None, and so does a product beyond 64 bits."""
    if value is None:
        return None
    return value * factor if value * factor <= UINT64_MAX else None


def _known(stat: MemoryStat) -> MemoryStat | None:
    return stat if any(value is not None for value in stat) else None
