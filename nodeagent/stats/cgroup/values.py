"""The text of single cgroup files → numbers.

Only the needed numbers are parsed (a whole memory.stat as a dict costs four times as much). A
parser never raises: a number that is missing, malformed, negative or beyond 64 bits is None.
Sources: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

from __future__ import annotations

from typing import NamedTuple

from nodeagent.stats.samples import CpuSample, DeviceIo

UINT64_MAX = 2**64 - 1
UNLIMITED_FROM = 2**62  # v1 writes "no limit" as the largest multiple of the page size
_NSEC_PER_USEC = 1000
_NSEC_PER_TICK = 10_000_000  # USER_HZ is 100 on every architecture that runs this


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


NO_STAT = MemoryStat(*(None,) * 9)


def parse_number(data: bytes) -> int | None:
    """A file that holds one number: memory.current, pids.current, cpuacct.usage."""
    try:
        value = int(data)
    except ValueError:
        return None
    return value if 0 <= value <= UINT64_MAX else None


def parse_limit(data: bytes) -> int | None:
    """A limit in bytes or tasks; None also for `max`, -1 and the number v1 writes for no limit."""
    value = parse_number(data)
    return value if value is not None and value < UNLIMITED_FROM else None


class LineNumbers:
    """Finds the numbers of some keys, separated by blanks, in lines of the form `key number`.

    One kernel always writes the same lines, so the line of each key is remembered: reading there
    costs a third of a search.
    """

    def __init__(self, keys: str) -> None:
        self._places = [(0, f"{key} ".encode(), len(key) + 1) for key in keys.split()]

    def __call__(self, data: bytes) -> list[int | None]:
        """The numbers in the order of the keys; None for a missing or malformed one."""
        lines = data.split(b"\n")
        try:
            numbers: list[int | None] = [
                int(lines[at][size:]) if lines[at][:size] == key else None
                for at, key, size in self._places
            ]
            if min(numbers) >= 0 and max(numbers) <= UINT64_MAX:  # type: ignore[type-var, operator]
                return numbers
        except (IndexError, TypeError, ValueError):
            pass  # a line moved or is missing, or a number is malformed
        return self._search(lines)

    def _search(self, lines: list[bytes]) -> list[int | None]:
        numbers = []
        for index, (_, key, size) in enumerate(self._places):
            number = None
            for at, line in enumerate(lines):
                if line.startswith(key):
                    self._places[index] = (at, key, size)
                    number = parse_number(line[size:])
                    break
            numbers.append(number)
        return numbers


_CPU_STAT = LineNumbers("usage_usec user_usec system_usec")
_CPU_BANDWIDTH = LineNumbers("nr_periods nr_throttled throttled_usec")
_CPUACCT_STAT = LineNumbers("user system")
_MEMORY_STAT = LineNumbers(
    "anon file kernel file_mapped inactive_file active_file pgfault pgmajfault"
)
_MEMORY_STAT_V1 = LineNumbers(
    "total_rss total_cache total_mapped_file total_inactive_file total_active_file total_swap"
    " total_pgfault total_pgmajfault"
)
_OOM_CONTROL = LineNumbers("oom_kill")
# v1 cpu.stat: periods, throttled periods, throttled nanoseconds.
parse_throttling = LineNumbers("nr_periods nr_throttled throttled_time")
# v2 memory.events: OOM kills, and how often usage was about to exceed the limit.
parse_memory_events = LineNumbers("oom_kill max")


def parse_cpu_stat(data: bytes) -> CpuSample | None:
    """v2 cpu.stat; the lines of bandwidth control exist only with the cpu controller."""
    usage, user, system = _CPU_STAT(data)
    usage_nsec = _scaled(usage, _NSEC_PER_USEC)
    if usage_nsec is None:
        return None
    periods = throttled = throttled_usec = None
    if b"\nnr_periods " in data:
        periods, throttled, throttled_usec = _CPU_BANDWIDTH(data)
    return CpuSample(
        usage_nsec,
        _scaled(user, _NSEC_PER_USEC),
        _scaled(system, _NSEC_PER_USEC),
        periods,
        throttled,
        _scaled(throttled_usec, _NSEC_PER_USEC),
    )


def parse_cpuacct_stat(data: bytes) -> tuple[int | None, int | None]:
    """v1 cpuacct.stat: user and system time in nanoseconds (the file counts clock ticks)."""
    user, system = _CPUACCT_STAT(data)
    return _scaled(user, _NSEC_PER_TICK), _scaled(system, _NSEC_PER_TICK)


def parse_memory_stat(data: bytes) -> MemoryStat | None:
    """v2 memory.stat, whose numbers count the whole subtree; None when it has none of them."""
    rss, cache, kernel, mapped, inactive, active, faults, major = _MEMORY_STAT(data)
    stat = MemoryStat(rss, cache, kernel, mapped, inactive, active, None, faults, major)
    return stat if stat != NO_STAT else None


def parse_memory_stat_v1(data: bytes) -> MemoryStat | None:
    """v1 memory.stat: the `total_` lines, which count the whole subtree."""
    tail = data[max(data.find(b"\ntotal_cache ") + 1, 0) :]
    rss, cache, mapped, inactive, active, swap, faults, major = _MEMORY_STAT_V1(tail)
    stat = MemoryStat(rss, cache, None, mapped, inactive, active, swap, faults, major)
    return stat if stat != NO_STAT else None


def parse_oom_control(data: bytes) -> list[int | None]:
    """v1 memory.oom_control, which counts no failures and, before Linux 4.13, no kills."""
    return [*_OOM_CONTROL(data), None]


def count_lines(data: bytes) -> int:
    """cgroup.procs: one process per line."""
    return data.count(b"\n")


def parse_io_stat(data: bytes) -> tuple[DeviceIo, ...]:
    """v2 io.stat: `8:0 rbytes=1 wbytes=2 rios=3 wios=4 …` per device; skips malformed lines."""
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


def shares_from_weight(weight: int) -> int:
    """v2 cpu.weight (1 to 10000) → v1 cpu.shares (2 to 262144), as the runtimes convert."""
    return 2 + ((weight - 1) * 262142) // 9999


def _device_numbers(text: bytes) -> tuple[int, int] | None:
    major, _, minor = text.partition(b":")
    pair = parse_number(major), parse_number(minor)
    return (pair[0], pair[1]) if pair[0] is not None and pair[1] is not None else None


def _scaled(value: int | None, factor: int) -> int | None:
    """Value x factor; None stays None, and so does a product beyond 64 bits."""
    if value is None:
        return None
    return value * factor if value * factor <= UINT64_MAX else None
