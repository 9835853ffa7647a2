"""The changes of one kind of object that are still held, and the readers waiting for the next.

A reader is a cursor into one shared list: no queue per watcher, nothing is copied, and a reader
that falls behind what is held gets `Compacted` instead of growing the process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from orch.server.storage.base import Change, Compacted

MIN_KEPT = 1024  # the reference keeps at least 100; leases of a mid-sized cluster need more


class History:
    """Changes in revision order; `floor` is the oldest revision a reader may start from."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._changes: list[Change] = []
        self._first = 0  # absolute position of _changes[0]
        self._waiting: dict[Callable[[], None], None] = {}  # in the order they came
        self.ended = False

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def end_position(self) -> int:
        """Where a reader stands that has seen everything."""
        return self._first + len(self._changes)

    def append(self, changes: Sequence[Change]) -> None:
        self._changes.extend(changes)
        self._wake()

    def trim(self, keep: int) -> None:
        """Forget all but the newest `keep`; in blocks, so that the cost is shared out."""
        surplus = len(self._changes) - keep
        if surplus <= 0:
            return
        self.floor = self._changes[surplus - 1].revision
        del self._changes[:surplus]
        self._first += surplus

    def lose(self, revision: int) -> None:
        """Changes up to `revision` were missed: every reader gets Compacted."""
        self._first = self.end_position + 1
        self._changes.clear()
        self.floor = revision
        self._wake()

    def position_after(self, revision: int) -> int:
        """Where a reader that has seen `revision` continues; Compacted when that is gone."""
        if revision < self.floor:
            raise Compacted(revision, self.floor)
        return self._first + bisect_right(self._changes, revision, key=lambda c: c.revision)

    def read(self, position: int, seen_revision: int) -> list[Change]:
        """Every change held from a position on; Compacted when that position was forgotten."""
        if position < self._first:
            raise Compacted(seen_revision, self.floor)
        return self._changes[position - self._first :]

    def tell_next(self, told: Callable[[], None]) -> None:
        """Have it called once, when something was appended or the history was ended."""
        self._waiting[told] = None

    def forget(self, told: Callable[[], None]) -> None:
        self._waiting.pop(told, None)

    def end(self) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for told in waiting:
            told()
