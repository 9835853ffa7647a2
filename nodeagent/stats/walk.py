"""What a directory uses, found by walking it in this process, never by a forked `du`.

A walk has a budget of time and inodes and is given up beyond it. Its author may be hostile (the
directories are written by containers): it goes from descriptor to descriptor, never follows a
symbolic link, never leaves the file system, and goes no deeper than a fixed number of levels.
Blocks are counted, as `du` does, and a file with several names counts once.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own
_MAX_DEPTH = 128  # every level keeps a descriptor open
_INODES_PER_LOOK = 1000  # how often the clock is asked
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectoryUse(NamedTuple):
    used_bytes: int
    inodes_used: int


@dataclass(frozen=True, slots=True)
class WalkBudget:
    time_s: float = 2.0
    inodes: int = 500_000


class BudgetSpent(Exception):
    """The walk was given up; the text says why."""


def measure_directory(
    path: str,
    budget: WalkBudget,
    *,
    recursive: bool = True,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> DirectoryUse | None:
    """What `path` and everything below it uses; None when it is no directory that can be read.

    Not recursive: only the plain files directly in it, as for log directories. BudgetSpent when
    the budget does not suffice. What vanishes during the walk, or may not be read, is not counted.
    """
    try:
        fd = os.open(path, _DIRECTORY)
    except OSError:
        return None
    try:
        root = os.fstat(fd)
        walk = _Walk(budget, root.st_dev, monotonic_s)
        if recursive:
            walk.count(root)
            walk.enter(fd)
        else:
            for entry in _entries(fd):
                if stat.S_ISREG(entry.status.st_mode):
                    walk.count(entry.status)
    finally:
        os.close(fd)
    return DirectoryUse(walk.used_bytes, walk.inodes)


class _Entry(NamedTuple):
    name: str
    status: os.stat_result


class _Walk:
    def __init__(self, budget: WalkBudget, device: int, monotonic_s: Callable[[], float]) -> None:
        self.used_bytes = 0
        self.inodes = 0
        self._budget = budget
        self._device = device
        self._monotonic_s = monotonic_s
        self._end_s = monotonic_s() + budget.time_s
        self._linked: set[int] = set()

    def count(self, status: os.stat_result) -> None:
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if status.st_ino in self._linked:
                return
            self._linked.add(status.st_ino)
        self.used_bytes += status.st_blocks * _BLOCK_BYTES
        self.inodes += 1
        if self.inodes > self._budget.inodes:
            raise BudgetSpent(f"it has more than {self._budget.inodes} inodes")
        if self.inodes % _INODES_PER_LOOK == 0:
            self._look_at_the_clock()

    def enter(self, fd: int, depth: int = 0) -> None:
        """Count everything below the open directory; the descriptor stays the caller's."""
        self._look_at_the_clock()
        if depth > _MAX_DEPTH:
            raise BudgetSpent(f"it is deeper than {_MAX_DEPTH} levels")
        directories = []
        for entry in _entries(fd):
            if entry.status.st_dev != self._device:
                continue
            self.count(entry.status)
            if stat.S_ISDIR(entry.status.st_mode):
                directories.append(entry.name)
        for name in directories:
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=fd)
            except OSError:
                continue  # gone, unreadable, or no directory any more
            try:
                if os.fstat(inner).st_dev == self._device:
                    self.enter(inner, depth + 1)
            finally:
                os.close(inner)

    def _look_at_the_clock(self) -> None:
        if self._monotonic_s() > self._end_s:
            raise BudgetSpent(f"{self._budget.time_s} s passed after {self.inodes} inodes")


def _entries(fd: int) -> Iterator[_Entry]:
    try:
        entries = os.scandir(fd)
    except OSError:
        return
    with entries:
        for entry in entries:
            try:
                yield _Entry(entry.name, entry.stat(follow_symlinks=False))
            except OSError:
                continue
