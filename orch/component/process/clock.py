"""The wall clock: the one place that asks what time it is.

Everything that stamps takes a `Now` (or `wall_ns`) as a parameter and gets these by default.
Intervals and deadlines never come from here: they are the event loop's time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

Now = Callable[[], datetime]


def utc_now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)


def wall_ns() -> int:
    """Nanoseconds since the epoch."""
    return time.time_ns()


def process_start_s(proc_root: str = "/proc", pid: int | str = "self") -> float:
    """When a process began, in seconds since the epoch; now, where /proc does not tell."""
    try:
        stat = Path(proc_root, str(pid), "stat").read_text()
        boot = next(
            line
            for line in Path(proc_root, "stat").read_text().splitlines()
            if line.startswith("btime ")
        )
        # Fields are counted from after the command, which may hold blanks: starttime is no. 22.
        ticks = int(stat.rpartition(")")[2].split()[19])
        return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, IndexError, ValueError):
        return wall_ns() / 1e9
