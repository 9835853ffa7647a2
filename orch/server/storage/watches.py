"""The two kinds of watch over memory: one that reads all of a kind, one that is told its few.

A cursor looks at every change of its kind, which is right for who wants most of them. A watch with
a `Concern` (an agent: the pods of one node) is found through an index and woken only for changes
that concern it, so that thousands of agents do not each look at every pod of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from orch.server.storage.base import Change, Compacted, Concern
from orch.server.storage.history import MIN_KEPT, History

NewestRevision = Callable[[], int]


class _Waiting:
    """What both have in common: at most one reader, that waits, is nudged, or has left."""

    def __init__(self) -> None:
        self._closed = False
        self._nudged = False
        self._wakeup: asyncio.Future[None] | None = None

    def nudge(self) -> None:
        self._nudged = True
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _take_nudge(self) -> bool:
        nudged, self._nudged = self._nudged, False
        return nudged

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


class CursorWatch(_Waiting):
    """A place in one kind's history, narrowed to a key prefix."""

    def __init__(
        self, history: History, prefix: str, from_revision: int, newest: NewestRevision
    ) -> None:
        super().__init__()
        self._history = history
        self._prefix = prefix
        self._position = history.position_after(from_revision)
        self._revision = from_revision
        self._newest = newest

    @property
    def revision(self) -> int:
        if self._position == self._history.end_position:
            return self._newest()
        return self._revision

    async def changes(self) -> list[Change] | None:
        while not (self._closed or self._history.ended):
            found = self._history.read(self._position, self._revision)
            if found:
                self._position += len(found)
                self._revision = found[-1].revision
                wanted = [change for change in found if change.key.startswith(self._prefix)]
                if wanted:
                    return wanted
            elif self._take_nudge():
                return []
            else:
                await self._wait()
        return None

    async def _wait(self) -> None:
        self._wakeup = self._history.next_change()
        try:
            await self._wakeup
        finally:
            self._history.forget(self._wakeup)
            self._wakeup = None


class ConcernedWatch(_Waiting):
    """Changes handed to it by the index, kept until they are read."""

    def __init__(
        self,
        index: ConcernIndex,
        concern: Concern,
        prefix: str,
        backlog: Iterable[Change],
        newest: NewestRevision,
    ) -> None:
        super().__init__()
        self._index = index
        self._prefix = prefix
        self._newest = newest
        self._pending: list[Change] = []
        self._fell_behind_at: int | None = None
        self.concern = concern
        for change in backlog:
            if concern.value in concern.values(change):
                self.push(change)
        index.add(self)

    @property
    def revision(self) -> int:
        return self._pending[0].revision - 1 if self._pending else self._newest()

    def push(self, change: Change) -> None:
        """Called with every change that concerns it; beyond a bound it has fallen behind."""
        if not change.key.startswith(self._prefix):
            return
        self._pending.append(change)
        if len(self._pending) > MIN_KEPT and self._fell_behind_at is None:
            self._fell_behind_at = self._pending[0].revision
            self._index.remove(self)
        self._wake()

    def lose(self) -> None:
        """Changes were missed that nobody knows."""
        if self._fell_behind_at is None:
            self._fell_behind_at = self.revision
            self._index.remove(self)
        self._wake()

    def close(self) -> None:
        self._index.remove(self)
        super().close()

    async def changes(self) -> list[Change] | None:
        while not self._closed:
            if self._fell_behind_at is not None:
                raise Compacted(self._fell_behind_at, self._newest())
            if self._pending:
                taken, self._pending = self._pending, []
                return taken
            if self._take_nudge():
                return []
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        return None


class ConcernIndex:
    """The concerned watches of one kind, by what concerns them."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, set[ConcernedWatch]]] = {}

    def add(self, watch: ConcernedWatch) -> None:
        by_value = self._by_name.setdefault(watch.concern.name, {})
        by_value.setdefault(watch.concern.value, set()).add(watch)

    def remove(self, watch: ConcernedWatch) -> None:
        by_value = self._by_name.get(watch.concern.name, {})
        watches = by_value.get(watch.concern.value)
        if watches is None:
            return
        watches.discard(watch)
        if not watches:
            del by_value[watch.concern.value]

    def tell(self, changes: Iterable[Change]) -> None:
        """Hand each change to the watches it concerns."""
        for by_value in self._by_name.values():
            if not by_value:
                continue
            concern = next(iter(next(iter(by_value.values())))).concern
            for change in changes:
                for value in concern.values(change):
                    for watch in tuple(by_value.get(value, ())):
                        watch.push(change)

    def end(self) -> None:
        for watch in self._all():
            watch.close()

    def lose(self) -> None:
        """Every watch has missed something."""
        for watch in self._all():
            watch.lose()

    def _all(self) -> list[ConcernedWatch]:
        return [
            watch
            for by_value in self._by_name.values()
            for watches in by_value.values()
            for watch in watches
        ]
