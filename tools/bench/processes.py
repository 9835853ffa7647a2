"""What a process of this machine has used: CPU seconds, memory, descriptors; from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path


def cpu_s(pid: int) -> float:
    """User and system time since the process began, to the nanosecond: its clock_getcpuclockid."""
    return time.clock_gettime(~pid << 3 | 2)


def cpu_percent(pid: int, over_s: float) -> float:
    """CPU of one core over the given time, which this waits for."""
    used_s, begun_s = cpu_s(pid), time.monotonic()
    time.sleep(over_s)
    return 100 * (cpu_s(pid) - used_s) / (time.monotonic() - begun_s)


def status_kib(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise KeyError(key)


def resident_mib(pid: int) -> float:
    return status_kib(pid, "VmRSS") / 1024


def open_descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
