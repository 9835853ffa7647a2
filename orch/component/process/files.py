"""Files by which processes find each other: the lock file, and the port file (`--port-file`).

The lock is a POSIX record lock held for the life of the process, so that a dead agent never leaves
a stale one behind; the file's content only names the holder for people. Agents with different lock
files do not see each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from orch.component.process import system
from orch.component.process.atomic_file import replace_file
from orch.component.process.daemon import SetupError


class LockHeldError(Exception):
    """Another process holds the lock; the text names it."""


def acquire(path: str, *, holder: str) -> int:
    """Take the lock without waiting, and return the descriptor that holds it.

    `holder` is what the error calls another holder ("node agent"). LockHeldError when another
    process has the lock, OSError when the file cannot be created.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        who = system.describe_process(int(pid)) if pid.isdecimal() else "pid unknown"
        raise LockHeldError(f"another {holder} ({who}) holds the lock file {path}") from None
    with contextlib.suppress(OSError):  # on a full disk only the pid is missing, the lock is held
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def write_port(path: Path | None, port: int) -> None:
    """Replace the file in one step, because readers poll for it; None means no file.

    SetupError names the file that cannot be written. Blocking I/O.
    """
    if path is None:
        return
    try:
        replace_file(path, f"{port}\n".encode(), mode=0o644)
    except OSError as error:
        raise SetupError(f"cannot write --port-file {path}: {error.strerror}") from error
