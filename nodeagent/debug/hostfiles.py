"""What the kernel says of this host and its cgroups, as files for a support case. Reads only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
_MAX_CGROUPS = 2000
_PROC = (
    "version", "cmdline", "meminfo", "loadavg", "mounts", "self/cgroup", "self/limits",
    "self/status", "pressure/cpu", "pressure/memory", "pressure/io", "sys/kernel/pid_max",
    "sys/fs/file-nr",
)  # fmt: skip
_LOG_LINES = 2000
_LOG_TIMEOUT_S = 20.0

Entry = tuple[str, bytes]


def host_entries(*, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> Iterator[Entry]:
    """One entry for each file; one that cannot be read says why."""
    for name in _PROC:
        yield f"host/{name.replace('/', '-')}.txt", read_file(Path(proc, name))
    yield "host/cgroups.txt", _cgroup_names(Path(cgroups))


def read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except OSError as error:
        return f"{path}: {error.strerror or error}\n".encode()


def log_entry(log_file: str, unit: str) -> Entry:
    """The end of the agent's log: of a file, else of the journal of a unit."""
    if log_file:
        return "log.txt", _end_of(Path(log_file))
    command = [
        "journalctl",
        f"--unit={unit}",
        f"--lines={_LOG_LINES}",
        "--output=short-iso-precise",
    ]
    try:
        done = subprocess.run(
            [*command, "--no-pager"], capture_output=True, timeout=_LOG_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "log.txt", f"the journal cannot be read: {error}; give --log-file\n".encode()
    return "log.txt", (done.stdout or done.stderr)[-MAX_BYTES:]


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - MAX_BYTES, 0))
            lines = file.read(MAX_BYTES).splitlines(keepends=True)
    except OSError as error:
        return f"{path}: {error.strerror or error}\n".encode()
    return b"".join(lines[-_LOG_LINES:])


def _cgroup_names(root: Path) -> bytes:
    names = []
    for folder, below, _ in os.walk(root):
        below.sort()
        names.append(folder)
        if len(names) >= _MAX_CGROUPS:
            names.append(f"… and more: only {_MAX_CGROUPS} are listed")
            break
    return ("\n".join(names) + "\n").encode()
