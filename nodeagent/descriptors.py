"""Paths that a pod can change, reached from descriptor to descriptor without following a link.

A pod may write to its volumes, and through a hostPath to log directories. A path in them that was
checked can lead elsewhere a moment later; a descriptor cannot. Every descriptor returned here
belongs to the caller. Blocking.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_REACH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # never waits for a pipe
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def reach(root: int, parts: Iterable[str], *, new_mode: int | None = None) -> int:
    """A descriptor of what `parts` lead to from `root`, which the caller keeps. OSError.

    With `new_mode` missing directories are made. ELOOP where a part is a link.
    """
    current = os.dup(root)
    for part in parts:
        try:
            following = _step(current, part, new_mode)
        finally:
            os.close(current)
        current = following
    return current


def _step(parent: int, part: str, new_mode: int | None) -> int:
    try:
        reached = os.open(part, _REACH, dir_fd=parent)
    except FileNotFoundError:
        if new_mode is None:
            raise
        return _made(parent, part, new_mode)
    if stat.S_ISLNK(os.fstat(reached).st_mode):
        os.close(reached)
        raise OSError(errno.ELOOP, "it is a link, which is not followed", part)
    return reached


def _made(parent: int, name: str, mode: int) -> int:
    """A new directory, with its mode whatever the umask; one just made by others is left alone."""
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    reached = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        os.fchmod(reached, mode)
    except OSError:
        os.close(reached)
        raise
    return reached


def reach_path(path: str) -> int:
    """An O_PATH descriptor of an absolute path no part of which is a link. OSError."""
    root = os.open("/", _REACH)
    try:
        return reach(root, Path(path).parts[1:])
    finally:
        os.close(root)


@contextmanager
def directory(path: str | Path, *, parent_levels: int = 0) -> Iterator[int]:
    """A directory open for reading; neither it nor `parent_levels` above it are links. OSError."""
    parts = Path(path).parts
    first = os.open(Path(*parts[: len(parts) - 1 - parent_levels]), os.O_PATH | os.O_CLOEXEC)
    try:
        above = reach(first, parts[len(parts) - 1 - parent_levels : -1])
    finally:
        os.close(first)
    try:
        opened = os.open(parts[-1], _DIRECTORY, dir_fd=above)
    finally:
        os.close(above)
    try:
        yield opened
    finally:
        os.close(opened)


def open_file(name: str | Path, directory: int | None = None) -> int:
    """A regular file for reading, relative to a directory; OSError for anything else."""
    opened = os.open(name, _FILE, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is not a regular file", str(name))
    return opened


def create_file(name: str | Path, mode: int, directory: int | None = None) -> int:
    """A new file for writing, with its mode whatever the umask. FileExistsError, OSError."""
    opened = os.open(name, _NEW_FILE, 0o600, dir_fd=directory)
    os.fchmod(opened, mode)
    return opened


_BATCH = 1000  # names kept in memory at a time


def remove_tree(path: str | Path) -> None:
    """Remove a directory and everything below it, however deep. OSError, also at a mount.

    Directories are moved up to the top before they are emptied: no path grows long, and two
    descriptors are enough. Links are removed, never followed.
    """
    mark = f".removed-{secrets.token_hex(8)}-"
    numbers = itertools.count()
    with directory(path) as top:
        while entries := _some_entries(top):
            for name, is_directory in entries:
                if not is_directory:
                    unlink(name, top)
                    continue
                moved = name
                if not name.startswith(mark):
                    moved = f"{mark}{next(numbers)}"
                    os.rename(name, moved, src_dir_fd=top, dst_dir_fd=top)  # EBUSY for a mount
                _empty(top, moved, mark, numbers)
                os.rmdir(moved, dir_fd=top)
    os.rmdir(path)


def _empty(top: int, name: str, mark: str, numbers: Iterator[int]) -> None:
    """Remove the files of a directory, and move its directories up to `top`."""
    opened = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        while entries := _some_entries(opened):
            for inner, is_directory in entries:
                if is_directory:
                    moved = f"{mark}{next(numbers)}"
                    os.rename(inner, moved, src_dir_fd=opened, dst_dir_fd=top)
                else:
                    unlink(inner, opened)
    finally:
        os.close(opened)


def _some_entries(directory: int) -> list[tuple[str, bool]]:
    """Names, and whether they are directories."""
    with os.scandir(directory) as entries:
        some = itertools.islice(entries, _BATCH)
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in some]


def unlink(name: str, directory: int) -> None:
    """Remove what is no directory, if it is still there. OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
