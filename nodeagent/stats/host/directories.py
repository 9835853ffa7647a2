"""Disk use of directories: last good values, refreshed at their own slow interval.

Directories are walked in this process, never by a forked `du`. A walk has a budget of time and
inodes; a directory that exceeds it keeps its old value and is walked less often, down to a
sixteenth; `excessive` has those that are to blame themselves. A refresh has a budget too, and
begins with what the last one did not reach. The directories' authors may be hostile (containers
write them): a walk goes from descriptor to descriptor, follows no symbolic link, never leaves the
file system, and has a maximal depth.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nodeagent.stats.samples import FsSample
from orch.component.process import clock
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own
MAX_DEPTH = 128  # every level keeps a descriptor open
_ENTRIES_PER_CHECK = 1000  # between two readings of the clock
_MANY_ENTRIES = 50_000  # for less, it is the disk that is slow
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectoryUse(NamedTuple):
    used_bytes: int
    inodes_used: int


@dataclass(frozen=True, slots=True)
class WalkBudget:
    time_s: float = 2.0
    inodes: int = 500_000


class BudgetSpent(Exception):
    """The walk was given up; the text gives the reason.

    `excessive`: for the shape of the directory, not for a slow disk.
    """

    def __init__(self, reason: str, *, excessive: bool = True) -> None:
        super().__init__(reason)
        self.excessive = excessive


def measure_directory(
    path: str,
    budget: WalkBudget,
    *,
    recursive: bool = True,
    apparent: bool = False,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> DirectoryUse | None:
    """What `path` and everything below it use; None when it is not a readable directory.

    Blocks count, as for `du`, or with `apparent` lengths, as an archive has them; a file with
    several names counts once. Not recursive: only the
    plain files directly in it, as for log directories. BudgetSpent when the budget does not
    suffice. Entries that vanish during the walk or cannot be read do not count.
    """
    try:
        fd = os.open(path, _DIRECTORY)
    except OSError:
        return None
    try:
        root = os.fstat(fd)
        walk = _Walk(budget, root.st_dev, monotonic_s, apparent=apparent)
        if recursive:
            walk.count(root)
            walk.enter(fd)
        else:
            for _, status in _list(fd):
                if stat.S_ISREG(status.st_mode):
                    walk.count(status)
    finally:
        os.close(fd)
    return DirectoryUse(walk.used_bytes, walk.inodes)


class _Walk:
    def __init__(
        self,
        budget: WalkBudget,
        device: int,
        monotonic_s: Callable[[], float],
        *,
        apparent: bool,
    ) -> None:
        self.used_bytes = 0
        self.inodes = 0
        self._entries = 0  # with all names of a file
        self._budget = budget
        self._device = device
        self._apparent = apparent
        self._monotonic_s = monotonic_s
        self._end_s = monotonic_s() + budget.time_s
        self._linked: set[int] = set()

    def count(self, status: os.stat_result) -> None:
        self._entries += 1
        if self._entries % _ENTRIES_PER_CHECK == 0:
            self._check_deadline()
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if status.st_ino in self._linked:
                return
            self._linked.add(status.st_ino)
        self.used_bytes += status.st_size if self._apparent else status.st_blocks * _BLOCK_BYTES
        self.inodes += 1
        if self.inodes > self._budget.inodes:
            raise BudgetSpent(f"it has more than {self._budget.inodes} inodes")

    def enter(self, fd: int, depth: int = 0) -> None:
        """Count everything below the open directory; the caller keeps the descriptor."""
        self._check_deadline()
        if depth > MAX_DEPTH:
            raise BudgetSpent(f"it is deeper than {MAX_DEPTH} levels")
        directories = []
        for name, status in _list(fd):
            if status.st_dev != self._device:
                continue
            self.count(status)
            if stat.S_ISDIR(status.st_mode):
                directories.append(name)
        for name in directories:
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=fd)
            except OSError:
                continue  # gone, unreadable, or no longer a directory
            try:
                if os.fstat(inner).st_dev == self._device:
                    self.enter(inner, depth + 1)
            finally:
                os.close(inner)

    def _check_deadline(self) -> None:
        if self._monotonic_s() > self._end_s:
            text = f"{self._budget.time_s} s passed after {self._entries} entries"
            raise BudgetSpent(text, excessive=self._entries > _MANY_ENTRIES)


def _list(fd: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        entries = os.scandir(fd)
    except OSError:
        return
    with entries:
        for entry in entries:
            try:
                yield entry.name, entry.stat(follow_symlinks=False)
            except OSError:
                continue


REFRESH_BUDGET_S = 20.0
_MAX_SKIPPED = 15


@dataclass(slots=True)
class _Schedule:
    skip: int = 0  # refreshes to skip before the next walk
    next_skip: int = 1


class DirectoryUsage:
    """`latest` has the last good values by path, with the stamps of their walks.

    `excessive` has the reasons why directories that are too deep or hold too much could not be
    measured, by path. `duration_s` is that of the last full refresh.
    """

    def __init__(
        self,
        *,
        budget: WalkBudget | None = None,
        refresh_budget_s: float = REFRESH_BUDGET_S,
        wall_ns: Callable[[], int] = clock.wall_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latest: dict[str, FsSample] = {}
        self.excessive: dict[str, str] = {}
        self.walks_given_up = 0
        self.duration_s = 0.0
        self._budget = budget or WalkBudget()
        self._refresh_budget_s = refresh_budget_s
        self._wall_ns = wall_ns
        self._monotonic_s = monotonic_s
        self._schedules: dict[str, _Schedule] = {}
        self._overruns = OnceLog(log)

    def refresh(self, wanted: Mapping[str, bool]) -> None:
        """Walk the wanted directories (path → whether recursively) and forget all others."""
        for path in self._schedules.keys() - wanted.keys():
            del self._schedules[path]
            self.latest.pop(path, None)
            self.excessive.pop(path, None)
        begun_s = self._monotonic_s()
        unreached = self._walk(sorted(wanted, key=self._age), wanted)
        if unreached:
            self._overruns.failed(
                "measuring all directories takes more than %g s: disk use has an older stamp from"
                " %s on", self._refresh_budget_s, unreached, cause="late",
            )  # fmt: skip
        else:
            self._overruns.recovered()
        self.duration_s = self._monotonic_s() - begun_s

    def refresh_new(self, wanted: Mapping[str, bool]) -> None:
        """Walk the wanted directories that were never tried, within the same budget."""
        self._walk([path for path in wanted if path not in self._schedules], wanted)

    def _walk(self, paths: Iterable[str], wanted: Mapping[str, bool]) -> str:
        """The first path that the budget does not reach; "" when all were reached."""
        begun_s = self._monotonic_s()
        for path in paths:
            if self._monotonic_s() - begun_s > self._refresh_budget_s:
                return path
            self._measure(path, self._schedules.setdefault(path, _Schedule()), wanted[path])
        return ""

    def _age(self, path: str) -> int:
        value = self.latest.get(path)
        return value.time_ns if value else 0

    def _measure(self, path: str, schedule: _Schedule, recursive: bool) -> None:
        if schedule.skip:
            schedule.skip -= 1
            return
        time_ns = self._wall_ns()
        try:
            use = measure_directory(
                path, self._budget, recursive=recursive, monotonic_s=self._monotonic_s
            )
        except BudgetSpent as error:
            self.walks_given_up += 1
            if error.excessive:
                self.excessive[path] = str(error)
            if schedule.next_skip == 1:  # the first time in a row
                log.warning("giving up measuring %s: %s; its last value remains", path, error)
            schedule.skip = schedule.next_skip
            schedule.next_skip = min(schedule.next_skip * 2, _MAX_SKIPPED)
            return
        schedule.next_skip = 1
        self.excessive.pop(path, None)
        if use is None:
            self.latest.pop(path, None)
        else:
            self.latest[path] = FsSample(
                time_ns, used_bytes=use.used_bytes, inodes_used=use.inodes_used
            )
