"""The store's directory `<root>/checkpoints`: private to the agent's user, opened without trust.

Files are opened relative to the open directory, so that nothing put in its place meanwhile is
followed. Must not know what the files mean. Blocking I/O.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MODE_DIRECTORY = 0o700
MODE_FILE = 0o600
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_LIMIT = 1 << 16


class StoreError(Exception):
    """The store or an archive in it cannot be used; the text names it and says why."""


@contextlib.contextmanager
def opened(path: Path, *, create: bool = True) -> Iterator[int]:
    """A descriptor of the directory, made private; `create` it when it is missing.

    StoreError when it is no directory or belongs to another user. FileNotFoundError without
    `create`.
    """
    if create:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=MODE_DIRECTORY)
    try:
        directory = os.open(path, _OPEN_DIRECTORY)
    except NotADirectoryError:  # of a symbolic link too
        raise StoreError(f"{path} is not a directory; move it away") from None
    try:
        _require_private(path, directory)
        yield directory
    finally:
        os.close(directory)


def open_file(directory: int, name: str) -> int:
    """A descriptor for reading; does not follow links and does not block on a pipe."""
    return os.open(name, _OPEN_FILE, dir_fd=directory)


def create_file(directory: int, name: str, *, exclusive: bool = False) -> int:
    """A descriptor for writing a private file."""
    flags = _CREATE_FILE | (os.O_EXCL if exclusive else 0)
    return os.open(name, flags, MODE_FILE, dir_fd=directory)


def read_small(directory: int, name: str) -> bytes | None:
    """The first 64 KiB of a regular file; None when there is none of that name."""
    try:
        descriptor = open_file(directory, name)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, _READ_LIMIT)
    finally:
        os.close(descriptor)


def remove(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def link(directory: int, source: str, target: str) -> None:
    """Add a second name for a file; FileExistsError when something has that name."""
    os.link(source, target, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)


def _require_private(path: Path, directory: int) -> None:
    status = os.fstat(directory)
    if status.st_uid != os.geteuid():
        raise StoreError(f"{path} belongs to user {status.st_uid}; give it to user {os.geteuid()}")
    if stat.S_IMODE(status.st_mode) != MODE_DIRECTORY:
        os.fchmod(directory, MODE_DIRECTORY)
