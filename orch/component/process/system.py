"""Facts about this machine and its processes, outside the hot path: the one door to psutil.

The sampler does not use it and reads its own few files. A process that has exited, or that may not
be inspected, is data and no error. Blocking I/O.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from orch.component.process import clock
from orch.component.terminal import visible
from orch.wire import times

READ, WRITE = 0o044, 0o022  # of group and others
_SHOWN = ("pid", "username", "status", "create_time", "num_threads", "memory_percent")
_MAX_PROCESSES = 2000
_ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound
_PEER = struct.Struct("3i")  # pid, uid, gid
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
    """Each fact by itself; 0 where it is hidden."""
    return Hardware(
        cpu_count=psutil.cpu_count() or 1,
        physical_cores=_or_zero(lambda: psutil.cpu_count(logical=False) or 0),
        memory_bytes=_or_zero(lambda: psutil.virtual_memory().total),
        swap_bytes=_or_zero(lambda: psutil.swap_memory().total),
        boot_time_ns=_or_zero(lambda: int(psutil.boot_time())) * _NSEC_PER_S,
    )


def _or_zero(fact: Callable[[], int]) -> int:
    try:
        return fact()
    except (*_HIDDEN, RuntimeError, LookupError, ValueError):  # psutil's, for a line not there
        return 0


def open_files() -> int:
    """How many files this process may have open; -1 for no limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


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
        return f"pid {pid}, {_command(pid)} of {process.username()} since {since}"
    except _HIDDEN:
        return f"pid {pid}"


def listening_process(address: str, port: int) -> int | None:
    """The process whose TCP socket keeps others from that address, or None: none can be seen."""
    listening = (c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN)
    met = [(c.pid, *c.laddr) for c in listening if c.laddr and c.laddr.port == port]
    taken = (address, *_ANY_ADDRESS)
    return next((pid for pid, ip, _ in met if ip in taken or address in _ANY_ADDRESS), None)


def server_pid(path: str) -> int:
    """The process that listens on a unix socket; 0 when none accepts, or it is invisible."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)  # not to wait for a full backlog
        try:
            connection.connect(path)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        except OSError:
            return 0
    pid: int = _PEER.unpack(credentials)[0]
    return pid


def environment_of(pid: int) -> Mapping[str, str]:
    """The initial environment of a process; empty when it may not be read."""
    try:
        return psutil.Process(pid).environ()
    except _HIDDEN:
        return {}


def processes() -> list[dict[str, Any]]:
    """The first 2,000 visible processes, as JSON; without arguments, which may hold secrets."""
    found = islice(psutil.process_iter(_SHOWN), _MAX_PROCESSES)
    return [{**process.info, "name": _command(process.pid)} for process in found]


def is_open_to_others(path: str, rights: int) -> bool:
    """Whether group or others may READ or WRITE an existing file."""
    try:
        return bool(os.stat(path).st_mode & rights)
    except OSError:
        return False


def _command(pid: int) -> str:
    """The kernel's name of a process, at most 15 bytes: psutil completes it by an argument."""
    try:
        name = Path(psutil.PROCFS_PATH, str(pid), "comm").read_bytes()
    except OSError:
        return ""
    return visible(name.decode(errors="replace").removesuffix("\n"))
