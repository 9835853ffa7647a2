"""Disks: what a file system holds, and what one directory uses of it.

File systems are asked by statvfs. Directories are walked in this process, never by a forked `du`,
within a budget of time and inodes: a walk that exceeds it gives None and the caller keeps the last
good value with its own stamp. Walks never follow symbolic links and never leave the file system;
a file with several names counts once. Blocks are counted, as `du` does.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nodeagent.stats.samples import FsSample

_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own


class DirectoryUse(NamedTuple):
    used_bytes: int
    inodes_used: int


@dataclass(frozen=True, slots=True)
class WalkBudget:
    time_s: float = 2.0
    inodes: int = 500_000


class BudgetSpent(Exception):
    """The walk was given up; the text says after how many inodes."""


def read_filesystem(path: str, time_ns: int) -> FsSample | None:
    """The file system that holds `path`; None when it cannot be asked."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return None
    unit = stats.f_frsize
    return FsSample(
        time_ns,
        available_bytes=stats.f_bavail * unit,
        capacity_bytes=stats.f_blocks * unit,
        used_bytes=(stats.f_blocks - stats.f_bfree) * unit,
        inodes_free=stats.f_ffree if stats.f_files else None,  # 0 of 0: no fixed number of inodes
        inodes=stats.f_files or None,
        inodes_used=stats.f_files - stats.f_ffree if stats.f_files else None,
    )


def parse_diskstats(data: bytes) -> dict[tuple[int, int], str]:
    """/proc/diskstats → the names of block devices by major and minor number."""
    names = {}
    for line in data.splitlines():
        words = line.split(None, 3)
        if len(words) >= 3 and words[0].isdigit() and words[1].isdigit():
            names[int(words[0]), int(words[1])] = words[2].decode("utf-8", "replace")
    return names


def device_of(path: str, names: Mapping[tuple[int, int], str]) -> str:
    """`/dev/sda1` for the block device that holds `path`; empty when there is none."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return ""
    name = names.get((os.major(device), os.minor(device)))
    return f"/dev/{name}" if name else ""


def within(whole: FsSample | None, part: FsSample | None) -> FsSample | None:
    """What `part` uses, beside what the file system that holds it has; None without `part`."""
    if part is None or whole is None:
        return part
    return whole._replace(
        time_ns=part.time_ns, used_bytes=part.used_bytes, inodes_used=part.inodes_used
    )


def measure_directory(
    path: str,
    budget: WalkBudget,
    *,
    recursive: bool = True,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> DirectoryUse | None:
    """What `path` and everything below it uses; None when it does not exist.

    Not recursive: only the plain files directly in it, as for log directories. BudgetSpent when
    the budget does not suffice. What vanishes during the walk, or may not be read, is not counted.
    """
    try:
        root = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISDIR(root.st_mode):
        return None
    walk = _Walk(budget, root.st_dev, monotonic_s)
    if recursive:
        walk.count(root)
        walk.enter(path)
    else:
        for entry in _status_of_entries(path):
            if stat.S_ISREG(entry[1].st_mode):
                walk.count(entry[1])
    return DirectoryUse(walk.used_bytes, walk.inodes)


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
            raise BudgetSpent(f"more than {self._budget.inodes} inodes")

    def enter(self, path: str) -> None:
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            if self._monotonic_s() > self._end_s:
                raise BudgetSpent(f"{self._budget.time_s} s passed after {self.inodes} inodes")
            for name, status in _status_of_entries(directory):
                if status.st_dev != self._device:
                    continue
                self.count(status)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(name)


def _status_of_entries(path: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        entries = os.scandir(path)
    except OSError:
        return
    with entries:
        for entry in entries:
            try:
                yield entry.path, entry.stat(follow_symlinks=False)
            except OSError:
                continue
