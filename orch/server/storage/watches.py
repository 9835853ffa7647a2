"""The changes of one kind that are still held, and the two kinds of watch that read them.

A cursor watch is a place in the shared history: no queue per watch, nothing is copied, and a reader
that falls behind gets `Compacted` instead of growing the process. It looks at every change of its
kind, which is right for clients that want most of them. A watch with a `Concern` (an agent: the
pods of one node) is found through an index and woken only for changes that concern it, so that
thousands of agents do not each look at every pod of the cluster. It, too, holds nothing that the
history has forgotten, so that the history's bounds are those of all watches.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from orch.server.storage.base import Change, Compacted, Concern

MIN_KEPT = 1024  # the reference keeps at least 100; leases of a mid-sized cluster need more
MAX_TAKEN = 200  # changes that a reader gets at once
TAKEN_BYTES = 96 * 1024  # of their objects, unless a single one is larger
LOOKED_AT = 10 * MAX_TAKEN  # changes, for some that are the reader's, until others have a turn
_CHANGE_BYTES = 400  # of a change without its objects
NewestRevision = Callable[[], int]


def replaced_bytes(change: Change) -> int:
    """The memory that only the history of this change holds: the current state is the mirror's, or
    the previous one of a later change.
    """
    return _CHANGE_BYTES + (0 if change.previous is None else len(change.previous.data))


def shown_bytes(change: Change) -> int:
    """The size of the object as it is shown to a reader."""
    stored = change.current or change.previous
    return 0 if stored is None else len(stored.data)


def _first_of(changes: list[Change]) -> list[Change]:
    """As many of them as a reader gets at once; at least one."""
    size = 0
    for count, change in enumerate(changes):
        size += shown_bytes(change)
        if count and (size > TAKEN_BYTES or count == MAX_TAKEN):
            return changes[:count]
    return changes


class History:
    """Changes in revision order; `floor` is the oldest revision a reader may start from, and
    `held_bytes` what nothing else holds.
    """

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.held_bytes = 0
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
        self.held_bytes += sum(map(replaced_bytes, changes))
        self._wake()
        if len(self._changes) > keep + keep // 4:
            self.trim(keep)

    def trim(self, keep: int) -> None:
        """Forget all but the newest `keep`."""
        self._forget(len(self._changes) - keep)

    def shrink(self, surplus_bytes: int) -> None:
        """Forget the oldest changes, of at least so many bytes."""
        count = 0
        for change in self._changes:
            if surplus_bytes <= 0:
                break
            surplus_bytes -= replaced_bytes(change)
            count += 1
        self._forget(count)

    def _forget(self, count: int) -> None:
        if count <= 0:
            return
        forgotten = self._changes[:count]
        self.floor = forgotten[-1].revision
        self.held_bytes -= sum(map(replaced_bytes, forgotten))
        del self._changes[:count]
        self._first += count

    def lose(self, revision: int) -> None:
        """Drop everything, since changes up to `revision` were missed: readers get Compacted."""
        self._first = self.end_position + 1
        self._changes.clear()
        self.held_bytes = 0
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

    def read_some(self, position: int, seen_revision: int) -> list[Change]:
        """The next changes from a position on, as many as a reader gets at once; or Compacted."""
        if position < self._first:
            raise Compacted(seen_revision, self.floor)
        start = position - self._first
        return _first_of(self._changes[start : start + MAX_TAKEN])

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


class CursorWatch:
    """A place in one kind's history, narrowed to a key prefix; at most one reader, which registers
    a callback or waits.
    """

    def __init__(
        self, history: History, prefix: str, from_revision: int, newest: NewestRevision
    ) -> None:
        self._closed = False
        self._callback: Callable[[], None] | None = None
        self._history = history
        self._prefix = prefix
        self.namespace = prefix.split("/")[2]  # "" for all, or of a kind that is in none
        self._position = history.position_after(from_revision)
        self._last_position: int | None = None  # where it ends, once that is known
        self._revision = from_revision
        self._newest = newest

    @property
    def _left(self) -> int:
        """The number of changes that it has not looked at."""
        last = self._last_position
        return (self._history.end_position if last is None else last) - self._position

    @property
    def revision(self) -> int:
        return self._revision if self._left else self._newest()

    @property
    def is_behind(self) -> bool:
        return self._left > 0

    def take(self) -> list[Change] | None:
        if self._closed or self._history.ended:
            return None
        for _ in range(LOOKED_AT // MAX_TAKEN):
            if not (left := self._left):
                return self._nothing()
            found = self._history.read_some(self._position, self._revision)[:left]
            self._position += len(found)
            self._revision = found[-1].revision
            if own := self._own(found):
                return own
        return []

    def _nothing(self) -> list[Change] | None:
        return [] if self._last_position is None else None

    def _own(self, changes: list[Change]) -> list[Change]:
        prefix = self._prefix
        return [change for change in changes if change.key.startswith(prefix)]

    async def changes(self) -> list[Change] | None:
        while not (found := self.take()):
            if found is None:
                return None
            if self.is_behind:
                await asyncio.sleep(0)
                continue
            changed = asyncio.get_running_loop().create_future()
            self.wake(partial(_set, changed))
            try:
                await changed
            finally:
                self.wake(None)
        return found

    def wake(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        if callback is None:
            self._history.remove_callback(self._notify)
        else:
            self._history.add_callback(self._notify)

    def end(self) -> None:
        """After the changes that there are."""
        self._last_position = self._history.end_position
        self._notify()

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


class ConcernedWatch(CursorWatch):
    """Reads of the history what came before, until it has seen everything; from then on changes are
    pushed by the index, and kept until they are read.
    """

    def __init__(
        self,
        index: ConcernIndex,
        concern: Concern,
        history: History,
        prefix: str,
        from_revision: int,
        newest: NewestRevision,
    ) -> None:
        super().__init__(history, prefix, from_revision, newest)
        self._index = index
        self._is_pushed = False
        self._pending: list[Change] = []
        self._fell_behind_at: int | None = None
        self.concern = concern
        self._keep_up()

    @property
    def is_behind(self) -> bool:
        return not self._is_pushed

    @property
    def revision(self) -> int:
        if not self._is_pushed:
            return super().revision
        return self._pending[0].revision - 1 if self._pending else self._newest()

    def wake(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback

    def _own(self, changes: list[Change]) -> list[Change]:
        concern = self.concern
        return [c for c in super()._own(changes) if concern.value in concern.values(c)]

    def _keep_up(self) -> None:
        if not super().is_behind and self._last_position is None:
            self._is_pushed = True
            self._index.add(self)

    def push(self, change: Change) -> None:
        """Add a change that concerns it; beyond a limit the watch has fallen behind."""
        is_over = self._fell_behind_at is not None or self._last_position is not None
        if is_over or not change.key.startswith(self._prefix):
            return
        self._pending.append(change)
        if len(self._pending) > MIN_KEPT:
            self.lose()
        self._notify()

    def forget(self, floor: int) -> None:
        """Fall behind, if a change up to the revision `floor` has not been taken."""
        if self._pending and self._pending[0].revision <= floor:
            self.lose()

    def lose(self) -> None:
        """Unknown changes were missed."""
        if self._fell_behind_at is None:
            self._fell_behind_at = self.revision
            self._index.remove(self)
            self._pending.clear()
        self._notify()

    def close(self) -> None:
        self._index.remove(self)
        super().close()

    def take(self) -> list[Change] | None:
        if self._closed:
            return None
        if not self._is_pushed:
            found = super().take()
            self._keep_up()
            return found
        if self._fell_behind_at is not None:
            raise Compacted(self._fell_behind_at, self._newest())
        taken = _first_of(self._pending)
        self._pending = self._pending[len(taken) :]
        return taken or self._nothing()


class ConcernIndex:
    """The concerned watches of one kind, by concern and value."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, set[ConcernedWatch]]] = {}
        self._floor = 0

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

    def forget(self, floor: int) -> None:
        """The history has forgotten every change up to this revision."""
        if floor == self._floor:
            return
        self._floor = floor
        for watch in self._all():
            watch.forget(floor)

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
