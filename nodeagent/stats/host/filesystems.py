"""File systems and block devices: capacity and use by statvfs, names from /proc/diskstats.

A statvfs on a network mount whose server is gone does not return and cannot be interrupted. So a
thread makes it, a pass waits for that no longer than a moment, and the path is left alone, with its
last value and stamp, until the call returns. What single directories use is `directories`'
business; `within` combines both.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from nodeagent.stats.cgroup.values import UINT64_MAX
from nodeagent.stats.samples import FsSample
from orch.component.process import clock, threads
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)


def read_filesystem(path: str, time_ns: int) -> FsSample | None:
    """The file system that holds `path`; None when it cannot be queried.

    Not every driver's answer makes sense: a value that is negative or beyond 64 bits is None.
    """
    try:
        stats = os.statvfs(path)
    except (OSError, ValueError):  # a path from a manifest may hold a NUL
        return None
    unit = stats.f_frsize
    # 0 of 0: no fixed number of inodes; cephfs reports -1 free ones
    counts_inodes = 0 < stats.f_files >= stats.f_ffree
    return FsSample(
        time_ns,
        available_bytes=_amount(stats.f_bavail * unit),
        capacity_bytes=_amount(stats.f_blocks * unit),
        used_bytes=_amount((stats.f_blocks - stats.f_bfree) * unit),
        inodes_free=stats.f_ffree if counts_inodes else None,
        inodes=stats.f_files if counts_inodes else None,
        inodes_used=stats.f_files - stats.f_ffree if counts_inodes else None,
    )


def _amount(value: int) -> int | None:
    return value if 0 <= value <= UINT64_MAX else None


def parse_diskstats(data: bytes) -> dict[tuple[int, int], str]:
    """/proc/diskstats → the names of block devices by major and minor number."""
    names = {}
    for line in data.splitlines():
        words = line.split(None, 3)
        if len(words) >= 3 and words[0].isdigit() and words[1].isdigit():
            names[int(words[0]), int(words[1])] = words[2].decode("utf-8", "replace")
    return names


def device_of(path: str, names: Mapping[tuple[int, int], str]) -> str:
    """The block device that holds `path`, as `/dev/sda1`; empty when there is none."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return ""
    name = names.get((os.major(device), os.minor(device)))
    return f"/dev/{name}" if name else ""


def within(whole: FsSample | None, part: FsSample | None) -> FsSample | None:
    """The use of `part` with the capacity of the file system that holds it; None without `part`."""
    if part is None or whole is None:
        return part
    _, available, capacity, _, inodes_free, inodes, _ = whole
    time_ns, _, _, used, _, _, inodes_used = part
    return FsSample(time_ns, available, capacity, used, inodes_free, inodes, inodes_used)


BUDGET_S = 1.0
MAX_HANGING = 16  # each holds a thread; with more, nothing is queried until a call returns

Query = Callable[[str, int], FsSample | None]


@dataclass(slots=True)
class _Batch:
    paths: list[str]
    current: str | None = None
    is_abandoned: bool = False


class FilesystemPoller:
    """`hanging` are the paths whose query has not returned. One `refresh` at a time."""

    def __init__(
        self,
        *,
        budget_s: float = BUDGET_S,
        query: Query = read_filesystem,
        wall_ns: Callable[[], int] = clock.wall_ns,
    ) -> None:
        self.hanging: set[str] = set()
        self._budget_s = budget_s
        self._query = query
        self._wall_ns = wall_ns
        self._values: dict[str, FsSample | None] = {}
        self._lock = threading.Lock()
        self._threads = OnceLog(log)  # that cannot be started

    def latest(self, path: str) -> FsSample | None:
        """The last value with the stamp of its query; None for what cannot be queried."""
        return self._values.get(path)

    def refresh(self, paths: Collection[str]) -> None:
        """Query all of them and forget all others; returns after the budget at the latest."""
        with self._lock:
            for gone in self._values.keys() - set(paths):
                del self._values[gone]
            batch = _Batch([path for path in dict.fromkeys(paths) if path not in self.hanging])
            is_stuck = len(self.hanging) >= MAX_HANGING
        if not batch.paths or is_stuck:
            return
        ended = threading.Event()
        try:
            threads.start(lambda: self._query_all(batch), ended.set, name="mounts")
        except threads.NoThreadError as error:
            self._threads.failed(
                "file systems are not queried: %s; their last values remain", error.strerror
            )
            return
        self._threads.recovered()
        if not ended.wait(self._budget_s):
            self._abandon(batch)

    def _query_all(self, batch: _Batch) -> None:
        for path in batch.paths:
            with self._lock:
                if batch.is_abandoned:
                    return
                batch.current = path
            value = self._query(path, self._wall_ns())
            with self._lock:
                self._values[path] = value
                batch.current = None
                if batch.is_abandoned:
                    self.hanging.discard(path)
                    log.info("the file system of %s answers again", path)
                    return

    def _abandon(self, batch: _Batch) -> None:
        """The next pass queries the paths that this thread has not reached."""
        with self._lock:
            batch.is_abandoned = True
            path = batch.current
            if path is None:
                return
            self.hanging.add(path)
        log.warning(
            "the file system of %s does not answer within %g s; its last values remain",
            path,
            self._budget_s,
        )
