"""What the file systems of volumes and of the node hold, asked without waiting for one that hangs.

A statvfs on a network mount whose server is away does not return, and nothing can break it off.
So it is made in a thread of its own, which a pass waits for no longer than a moment; the path is
then left alone until that call has come back, and keeps its last value with the stamp of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from nodeagent.stats import filesystem
from nodeagent.stats.samples import FsSample
from orch.component import aside, clock

log = logging.getLogger(__name__)

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
        ask: Ask = filesystem.read_filesystem,
        wall_ns: Callable[[], int] = clock.wall_ns,
    ) -> None:
        self.hanging: set[str] = set()
        self._budget_s = budget_s
        self._ask = ask
        self._wall_ns = wall_ns
        self._values: dict[str, FsSample | None] = {}
        self._lock = threading.Lock()
        self._lacks_thread = False  # as was said

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
            aside.start(lambda: self._ask_all(turn), ended.set, name="mounts")
        except aside.NoThreadError as error:
            if not self._lacks_thread:
                log.warning(
                    "file systems are not asked what they hold: %s; their last values stay",
                    error.strerror,
                )
            self._lacks_thread = True
            return
        self._lacks_thread = False
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
