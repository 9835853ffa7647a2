"""CPU seconds and memory of a process."""

from __future__ import annotations

import time
from pathlib import Path

import psutil


def cpu_s(pid: int) -> float:
    """User and system time since the process began; psutil has 10 ms, this the nanosecond."""
    return time.clock_gettime(~pid << 3 | 2)


def cpu_percent(pid: int, over_s: float) -> float:
    """Share of one core over the given time, which it waits for."""
    used_s, begun_s = cpu_s(pid), time.monotonic()
    time.sleep(over_s)
    return 100 * (cpu_s(pid) - used_s) / (time.monotonic() - begun_s)


def resident_mib(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 2**20


def peak_mib(pid: int) -> float:
    """The peak resident memory, which psutil lacks on Linux."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
