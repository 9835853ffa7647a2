"""Facts about this machine and its processes, outside the hot path: the one door to psutil.

The sampler does not use it and reads its own few files. A process that has exited, or that may not
be inspected, is data and no error. Blocking I/O.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psutil

from orch.component.process import clock
from orch.wire import times

_SHOWN = ("pid", "name", "username", "status", "create_time", "num_threads", "memory_percent")
_NSEC_PER_S = 1_000_000_000
_HIDDEN = (psutil.Error, OSError)  # a file of /proc is missing, as with ProcSubset=pid


@dataclass(frozen=True, slots=True)
class Hardware:
    """Constant while the machine runs; `physical_cores` is 0 where it is unknown."""

    cpu_count: int
    physical_cores: int
    memory_bytes: int
    swap_bytes: int
    boot_time_ns: int  # since the epoch, to the second


def read_hardware() -> Hardware:
    return Hardware(
        cpu_count=psutil.cpu_count() or 1,
        physical_cores=psutil.cpu_count(logical=False) or 0,
        memory_bytes=psutil.virtual_memory().total,
        swap_bytes=psutil.swap_memory().total,
        boot_time_ns=int(psutil.boot_time()) * _NSEC_PER_S,
    )


def raise_open_files(wanted: int) -> int:
    """Raise the limit of open files to `wanted` or the hard limit; the new limit, -1 for none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= reachable:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    return reachable


def process_start_s(pid: int | None = None) -> float:
    """Start of a process (None: this one), in seconds since the epoch; now if that is hidden."""
    try:
        return psutil.Process(pid).create_time()
    except _HIDDEN:
        return clock.wall_ns() / _NSEC_PER_S


def describe_process(pid: int) -> str:
    """`pid 12, nodeagent of root since 2026-01-31T12:00:00Z`; the pid alone if that is hidden."""
    try:
        process = psutil.Process(pid)
        since = times.format_time(datetime.fromtimestamp(process.create_time(), UTC))
        return f"pid {pid}, {process.name()} of {process.username()} since {since}"
    except _HIDDEN:
        return f"pid {pid}"


def listening_process(port: int) -> int | None:
    """The process that listens on a TCP port; None when there is none or it cannot be seen."""
    listening = (c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN)
    return next((c.pid for c in listening if c.laddr and c.laddr.port == port), None)


def environment_of(pid: int) -> Mapping[str, str]:
    """The initial environment of a process; empty when it may not be read."""
    try:
        return psutil.Process(pid).environ()
    except _HIDDEN:
        return {}


def processes() -> list[dict[str, Any]]:
    """Every visible process, as JSON; without arguments, which may hold secrets."""
    return [process.info for process in psutil.process_iter(_SHOWN)]
