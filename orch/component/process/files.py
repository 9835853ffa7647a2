"""The lock file: one agent per host, one local cluster per directory.

The lock is a POSIX record lock held for the life of the process, so a dead agent never leaves a
stale one behind; the file only names the holder for people. Two agents that use different lock
files do not see each other.

The file that says which port a daemon bound (`--port-file`), for those that let it pick one.
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
    """Take the lock and return the descriptor that holds it; never wait.

    `holder` says in the error what another holder would be ("node agent").

    Raises LockHeldError when another process has it, OSError when the file cannot be made.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        who = system.describe_process(int(pid)) if pid.isdecimal() else "pid unknown"
        raise LockHeldError(f"another {holder} ({who}) holds the lock file {path}") from None
    with contextlib.suppress(OSError):  # on a full disk the lock holds, only the pid is missing
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def write_port(path: Path | None, port: int) -> None:
    """Whole or not at all: who waits for the file must not read half a number. None: no file.

    SetupError names the file that cannot be written. Blocking I/O.
    """
    if path is None:
        return
    try:
        replace_file(path, f"{port}\n".encode(), mode=0o644)
    except OSError as error:
        raise SetupError(f"cannot write --port-file {path}: {error.strerror}") from error
