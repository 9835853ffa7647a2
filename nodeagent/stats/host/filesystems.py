"""Disks: what a file system holds, and which block devices there are.

File systems are asked by statvfs, devices are named as /proc/diskstats names them. What single
directories use is `walk`'s business; `within` puts both together.

What the file systems of volumes and of the node hold, asked without waiting for one that hangs.

A statvfs on a network mount whose server is away does not return, and nothing can break it off.
So it is made in a thread of its own, which a pass waits for no longer than a moment; the path is
then left alone until that call has come back, and keeps its last value with the stamp of it.
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
    """The file system that holds `path`; None when it cannot be asked.

    Not every driver answers with sense: what is negative or beyond 64 bits is None.
    """
    try:
        stats = os.statvfs(path)
    except (OSError, ValueError):  # a path from a manifest may hold a NUL
        return None
    unit = stats.f_frsize
    # 0 of 0: no fixed number of inodes; cephfs says -1 of those it has
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
    return FsSample(
        part.time_ns,
        whole.available_bytes,
        whole.capacity_bytes,
        part.used_bytes,
        whole.inodes_free,
        whole.inodes,
        part.inodes_used,
    )


BUDGET_S = 1.0
MOST_HANGING = 16  # each holds a thread; beyond that nothing is asked until one comes back

Ask = Callable[[str, int], FsSample | None]


@dataclass(slots=True)
class _Turn:
    paths: list[str]
    current: str | None = None
    is_abandoned: bool = False


class Mounts:
    """`hanging` are the paths whose question has not come back. One `refresh` at a time."""

    def __init__(
        self,
        *,
        budget_s: float = BUDGET_S,
        ask: Ask = read_filesystem,
        wall_ns: Callable[[], int] = clock.wall_ns,
    ) -> None:
        self.hanging: set[str] = set()
        self._budget_s = budget_s
        self._ask = ask
        self._wall_ns = wall_ns
        self._values: dict[str, FsSample | None] = {}
        self._lock = threading.Lock()
        self._threads = OnceLog(log)  # that none is to be had

    def latest(self, path: str) -> FsSample | None:
        """The last value with the stamp of its question; None for what cannot be asked."""
        return self._values.get(path)

    def refresh(self, paths: Collection[str]) -> None:
        """Ask for all of them and forget all others; returns after the budget at the latest."""
        with self._lock:
            for gone in self._values.keys() - set(paths):
                del self._values[gone]
            turn = _Turn([path for path in dict.fromkeys(paths) if path not in self.hanging])
            is_stuck = len(self.hanging) >= MOST_HANGING
        if not turn.paths or is_stuck:
            return
        ended = threading.Event()
        try:
            threads.start(lambda: self._ask_all(turn), ended.set, name="mounts")
        except threads.NoThreadError as error:
            self._threads.failed(
                "file systems are not asked what they hold: %s; their last values stay",
                error.strerror,
            )
            return
        self._threads.recovered()
        if not ended.wait(self._budget_s):
            self._abandon(turn)

    def _ask_all(self, turn: _Turn) -> None:
        for path in turn.paths:
            with self._lock:
                if turn.is_abandoned:
                    return
                turn.current = path
            value = self._ask(path, self._wall_ns())
            with self._lock:
                self._values[path] = value
                turn.current = None
                if turn.is_abandoned:
                    self.hanging.discard(path)
                    log.info("the file system of %s answers again", path)
                    return

    def _abandon(self, turn: _Turn) -> None:
        """What the thread has not come to is asked for in the next pass, by another one."""
        with self._lock:
            turn.is_abandoned = True
            path = turn.current
            if path is None:
                return
            self.hanging.add(path)
        log.warning(
            "the file system of %s does not answer within %g s; its last values stay",
            path,
            self._budget_s,
        )
