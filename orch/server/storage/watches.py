"""The changes of one kind that are still held, and the two kinds of watch that read them.

A cursor watch is a place in the shared history: no queue per watch, nothing is copied, and a reader
that falls behind gets `Compacted` instead of growing the process. It looks at every change of its
kind, which is right for clients that want most of them. A watch with a `Concern` (an agent: the
pods of one node) is found through an index and woken only for changes that concern it, so that
thousands of agents do not each look at every pod of the cluster.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from orch.server.storage.base import Change, Compacted, Concern

MIN_KEPT = 1024  # the reference keeps at least 100; leases of a mid-sized cluster need more
NewestRevision = Callable[[], int]


class History:
    """Changes in revision order; `floor` is the oldest revision a reader may start from."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._changes: list[Change] = []
        self._first = 0  # absolute position of _changes[0]
        self._waiting: dict[Callable[[], None], None] = {}  # in order
        self.ended = False

    @property
    def end_position(self) -> int:
        """The position of a reader that has seen everything."""
        return self._first + len(self._changes)

    def append(self, changes: Sequence[Change], keep: int = MIN_KEPT) -> None:
        """Forget all but the newest `keep`, in blocks, so that the cost is shared out."""
        self._changes.extend(changes)
        self._wake()
        if len(self._changes) > keep + keep // 4:
            self.trim(keep)

    def trim(self, keep: int) -> None:
        """Forget all but the newest `keep`."""
        surplus = len(self._changes) - keep
        if surplus <= 0:
            return
        self.floor = self._changes[surplus - 1].revision
        del self._changes[:surplus]
        self._first += surplus

    def lose(self, revision: int) -> None:
        """Drop everything, since changes up to `revision` were missed: readers get Compacted."""
        self._first = self.end_position + 1
        self._changes.clear()
        self.floor = revision
        self._wake()

    def position_after(self, revision: int) -> int:
        """The position after `revision`; Compacted when that is no longer held."""
        if revision < self.floor:
            raise Compacted(revision, self.floor)
        return self._first + bisect_right(self._changes, revision, key=lambda c: c.revision)

    def read(self, position: int, seen_revision: int) -> list[Change]:
        """Every change from a position on; Compacted when that is no longer held."""
        if position < self._first:
            raise Compacted(seen_revision, self.floor)
        return self._changes[position - self._first :]

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, at the next change or at the end of the history."""
        self._waiting[callback] = None

    def remove_callback(self, callback: Callable[[], None]) -> None:
        self._waiting.pop(callback, None)

    def end(self) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for callback in waiting:
            callback()


class _Watch(ABC):
    """The part common to both: at most one reader, which registers a callback or waits."""

    def __init__(self) -> None:
        self._closed = False
        self._callback: Callable[[], None] | None = None

    @abstractmethod
    def take(self) -> list[Change] | None: ...

    async def changes(self) -> list[Change] | None:
        while not (found := self.take()):
            if found is None:
                return None
            changed = asyncio.get_running_loop().create_future()
            self.wake(partial(_set, changed))
            try:
                await changed
            finally:
                self.wake(None)
        return found

    def wake(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback

    def close(self) -> None:
        self._closed = True
        self._notify()

    def _notify(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


def _set(changed: asyncio.Future[None]) -> None:
    if not changed.done():
        changed.set_result(None)


class CursorWatch(_Watch):
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

    def take(self) -> list[Change] | None:
        if self._closed or self._history.ended:
            return None
        found = self._history.read(self._position, self._revision)
        if found:
            self._position += len(found)
            self._revision = found[-1].revision
        prefix = self._prefix
        return [change for change in found if change.key.startswith(prefix)]

    def wake(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        if callback is None:
            self._history.remove_callback(self._notify)
        else:
            self._history.add_callback(self._notify)


class ConcernedWatch(_Watch):
    """Changes pushed by the index, kept until they are read."""

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
        """Add a change that concerns it; beyond a limit the watch has fallen behind."""
        if not change.key.startswith(self._prefix):
            return
        self._pending.append(change)
        if len(self._pending) > MIN_KEPT and self._fell_behind_at is None:
            self._fell_behind_at = self._pending[0].revision
            self._index.remove(self)
        self._notify()

    def lose(self) -> None:
        """Unknown changes were missed."""
        if self._fell_behind_at is None:
            self._fell_behind_at = self.revision
            self._index.remove(self)
        self._notify()

    def close(self) -> None:
        self._index.remove(self)
        super().close()

    def take(self) -> list[Change] | None:
        if self._closed:
            return None
        if self._fell_behind_at is not None:
            raise Compacted(self._fell_behind_at, self._newest())
        taken, self._pending = self._pending, []
        return taken


class ConcernIndex:
    """The concerned watches of one kind, by concern and value."""

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

    def notify(self, changes: Iterable[Change]) -> None:
        """Push each change to the watches it concerns."""
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
