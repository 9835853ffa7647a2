"""Whose writes the next commit takes, so that nobody waits for all that somebody else has queued.

Writes stand in line by namespace, or by kind where there is none, and each line moves on by one
write in its turn until the commit is full. A line that left something behind sits out the next
commit if others have something for it: they would wait for its bytes twice. So a write waits for
the commit under way, and then is in the next one, however many of another namespace came before it.
Within a line the order stays: what was judged by the state of a namespace is written before a
change of that state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from orch.server.storage.base import Change, Write
from orch.server.storage.tally import place_in

COMMIT_WRITES = 512  # of one commit: beyond this it gains nothing (reference/performance.md B5)
COMMIT_BYTES = 64 * 1024  # of its objects, without a single larger write
_NAMESPACES = "/namespaces/"


class Queued(NamedTuple):
    """Writes that belong together, and the future of their caller, who is answered with the first;
    without writes, only a commit that must succeed once everything before it is written.
    """

    writes: Sequence[Write]
    answer: asyncio.Future[Change | None]

    @property
    def size(self) -> int:
        return sum(len(write.data or b"") for write in self.writes)


class Lines:
    """Everything queued, for one thread; `waiting` are not taken yet."""

    def __init__(self) -> None:
        self.waiting = 0
        self._lines: dict[str, deque[tuple[int, Queued]]] = {}  # the next one first
        self._checks: deque[tuple[int, Queued]] = deque()  # those without writes
        self._more: set[str] = set()  # that had a turn at the last commit, and more than it took
        self._count = 0  # that were put

    def put(self, queued: Queued) -> None:
        self.waiting += 1
        self._count += 1
        line = self._checks
        if queued.writes:
            line = self._lines.setdefault(_line_of(queued.writes[0].key), deque())
        line.append((self._count, queued))

    def take(self) -> list[Queued]:
        """What the next commit is made of: never nothing while there is something."""
        batch: list[Queued] = []
        room, room_for_larger = COMMIT_BYTES, 1
        others = [name for name in self._lines if name not in self._more]
        turns = deque(others or self._lines)
        had = set[str]()
        while turns and len(batch) < COMMIT_WRITES:
            name = turns.popleft()
            size = self._lines[name][0][1].size
            if size > COMMIT_BYTES and room_for_larger:
                room_for_larger -= 1
            elif size <= room:
                room -= size
            else:
                continue  # it stays before those that had their turn
            line = self._lines.pop(name)
            batch.append(line.popleft()[1])
            if line:
                self._lines[name] = line
                turns.append(name)
            had.add(name)
        self._more = had & self._lines.keys()
        oldest = min((line[0][0] for line in self._lines.values()), default=self._count + 1)
        while self._checks and self._checks[0][0] < oldest:
            batch.append(self._checks.popleft()[1])
        self.waiting -= len(batch)
        return batch


def _line_of(key: str) -> str:
    """A namespace itself stands in line with what is in it."""
    return key.removeprefix(_NAMESPACES) if key.startswith(_NAMESPACES) else place_in(key)[0]
