"""Storage's copy in memory: every current object, the history of changes, the watches.

Shared by the implementations: they make a write durable, then hand the changes to `apply`. Lives
on the event loop's thread alone and knows nothing of the medium.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter

from orch.server.storage.base import Change, Concern, Snapshot, Stored, Watch
from orch.server.storage.tally import Tally
from orch.server.storage.watches import MIN_KEPT, ConcernedWatch, ConcernIndex, CursorWatch, History

MAX_HISTORY_BYTES = 64 * 1024 * 1024  # of all kinds together
MAX_BEHIND_BYTES = 128 * 1024 * 1024  # replaced since a reader took hold of a state


class _KindTable:
    """The objects of one kind, with their keys in order (brought up to date when they are read)."""

    def __init__(self, floor: int) -> None:
        self.objects: dict[str, Stored] = {}
        self.history = History(floor)
        self.concerned = ConcernIndex()
        self._order: list[str] = []
        self._added: list[str] = []
        self._changed = False

    def put(self, stored: Stored) -> None:
        if stored.key not in self.objects:
            self._added.append(stored.key)
            self._changed = True
        self.objects[stored.key] = stored

    def drop(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self._changed = True

    def below(self, prefix: str) -> list[Stored]:
        if self._changed:
            # Sorting what is mostly sorted takes a tenth of the time.
            left = (key for key in chain(self._order, self._added) if key in self.objects)
            self._order = sorted(dict.fromkeys(left))
            self._added, self._changed = [], False
        first = bisect_left(self._order, prefix)
        end = bisect_left(self._order, prefix + "\U0010ffff", lo=first)
        return [self.objects[key] for key in self._order[first:end]]

    def below_at(self, prefix: str, revision: int) -> list[Stored]:
        """`below` at a past revision: undoes the changes since."""
        position = self.history.position_after(revision)
        undone = {
            change.key: change.previous
            for change in reversed(self.history.read(position, revision))
            if change.key.startswith(prefix)
        }
        found = [stored for stored in self.below(prefix) if stored.key not in undone]
        found += filter(None, undone.values())
        return sorted(found, key=attrgetter("key"))


def _data_of(stored: Stored | None) -> bytes | None:
    return None if stored is None else stored.data


class MirroredStorage:
    """The reading half of a storage: objects and history of all kinds under one revision."""

    def __init__(self) -> None:
        self.revision = 0
        self._loaded_at = 0
        self._tables: dict[str, _KindTable] = {}
        self.tally = Tally()
        self._ended = False
        self._replaced_bytes = 0  # ever
        self._holds: dict[object, tuple[int, Callable[[], None]]] = {}  # oldest first

    def load(self, items: Iterable[Stored], revision: int) -> None:
        """Start from the medium's contents; history before `revision` is unknown."""
        self.revision = self._loaded_at = revision
        for stored in items:
            self._table(stored.key).put(stored)
            self.tally.record(stored.key, None, stored.data)

    def reload(self, items: Iterable[Stored], revision: int) -> None:
        """Start again from the medium's contents, after changes were missed.

        Every watch ends with Compacted.
        """
        tables, self._tables, self.tally = self._tables, {}, Tally()
        self.load(items, revision)
        for table in tables.values():
            table.history.lose(revision)
            table.concerned.lose()

    def get(self, key: str) -> Stored | None:
        return self._table(key).objects.get(key)

    def list(self, prefix: str, revision: int | None = None) -> Snapshot:
        table = self._table(prefix)
        if revision is None or revision == self.revision:
            return Snapshot(table.below(prefix), self.revision)
        return Snapshot(table.below_at(prefix, revision), revision)

    def apply(self, changes: Sequence[Change]) -> None:
        """Make durable changes visible: objects first, then the watches are woken."""
        by_table: dict[_KindTable, list[Change]] = {}
        for change in changes:
            table = self._table(change.key)
            before = table.objects.get(change.key)
            if change.current is None:
                table.drop(change.key)
            else:
                table.put(change.current)
            self.tally.record(change.key, _data_of(before), _data_of(change.current))
            by_table.setdefault(table, []).append(change)
            self.revision = change.revision
        for table, its_changes in by_table.items():
            keep = max(MIN_KEPT, 2 * len(table.objects))
            self._replaced_bytes += table.history.append(its_changes, keep)
            table.concerned.notify(its_changes)
            table.concerned.forget(table.history.floor)
        self.shrink_history(MAX_HISTORY_BYTES)
        self._end_holds()

    def shrink_history(self, max_bytes: int) -> None:
        """Bound what history holds; the kind with the most forgets, an eighth more than it must."""
        total = sum(table.history.held_bytes for table in self._tables.values())
        while total > max_bytes:
            table = max(self._tables.values(), key=lambda table: table.history.held_bytes)
            before = table.history.held_bytes
            table.history.shrink(total - max_bytes + max_bytes // 8)
            table.concerned.forget(table.history.floor)
            total -= before - table.history.held_bytes

    def hold(self, outdated: Callable[[], None]) -> Callable[[], None]:
        """Announce a reader that keeps the present states of objects until it calls the result.

        `outdated` is called once too much was replaced since: then the reader must let go.
        """
        held = object()
        self._holds[held] = self._replaced_bytes, outdated

        def release() -> None:
            self._holds.pop(held, None)

        return release

    def _end_holds(self) -> None:
        while self._holds:
            held, (since_bytes, outdated) = next(iter(self._holds.items()))
            if self._replaced_bytes - since_bytes <= MAX_BEHIND_BYTES:
                return
            del self._holds[held]
            outdated()

    def watch(self, prefix: str, from_revision: int, concern: Concern | None = None) -> Watch:
        table = self._table(prefix)
        if concern is None or table.history.ended:
            return CursorWatch(table.history, prefix, from_revision, self._current_revision)
        position = table.history.position_after(from_revision)
        backlog = table.history.read(position, from_revision)
        return ConcernedWatch(table.concerned, concern, prefix, backlog, self._current_revision)

    def _current_revision(self) -> int:
        return self.revision

    def end_watches(self) -> None:
        self._ended = True
        for table in self._tables.values():
            table.history.end()
            table.concerned.end()

    def compact(self, keep: int) -> None:
        for table in self._tables.values():
            table.history.trim(keep)
            table.concerned.forget(table.history.floor)

    def _table(self, key: str) -> _KindTable:
        """The table by the kind in the key: `/pods/default/a` and `/pods/` share one."""
        kind = key[: key.index("/", 1)]
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = _KindTable(self._loaded_at)
            if self._ended:
                table.history.end()
        return table
