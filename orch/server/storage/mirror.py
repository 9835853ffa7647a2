"""Storage's copy in memory: every current object, the history of changes, the watches.

Shared by the implementations: they make a write durable, then hand the changes to `apply`. Lives
on the event loop's thread alone and knows nothing of the medium.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from orch.server.storage import watches
from orch.server.storage.base import Change, Concern, Past, Snapshot, Stored, Watch
from orch.server.storage.tally import Tally
from orch.server.storage.watches import MIN_KEPT, ConcernedWatch, ConcernIndex, CursorWatch, History

MAX_HISTORY_BYTES = 64 * 1024 * 1024  # of all kinds together
MAX_BEHIND_BYTES = 128 * 1024 * 1024  # replaced since readers took hold of a state, in all

_FEW = 64  # keys that are put in order one by one


class _KindTable:
    """The objects of one kind, with their keys in order (brought up to date when they are read)."""

    def __init__(self, floor: int) -> None:
        self.objects: dict[str, Stored] = {}
        self.history = History(floor)
        self.concerned = ConcernIndex()
        self._order: list[str] = []
        self._unsorted: list[str] = []  # keys that came or went

    def put(self, stored: Stored) -> None:
        if stored.key not in self.objects:
            self._unsorted.append(stored.key)
        self.objects[stored.key] = stored

    def drop(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self._unsorted.append(key)

    def below(self, prefix: str) -> list[Stored]:
        if len(self._unsorted) > _FEW:
            # Sorting what is mostly sorted takes a tenth of the time.
            left = (key for key in chain(self._order, self._unsorted) if key in self.objects)
            self._order = sorted(dict.fromkeys(left))
        else:
            for key in self._unsorted:
                self._put_in_order(key)
        self._unsorted.clear()
        first = bisect_left(self._order, prefix)
        end = bisect_left(self._order, prefix + "\U0010ffff", lo=first)
        return [self.objects[key] for key in self._order[first:end]]

    def _put_in_order(self, key: str) -> None:
        """So that a list after each creation costs little, however many objects there are."""
        at = bisect_left(self._order, key)
        is_there = at < len(self._order) and self._order[at] == key
        if key in self.objects and not is_there:
            self._order.insert(at, key)
        elif is_there and key not in self.objects:
            del self._order[at]

    def below_at(self, prefix: str, revision: int) -> Past:
        """`below` at a past revision."""
        position = self.history.position_after(revision)
        return Past(prefix, revision, self.below(prefix), self.history.read(position, revision))


class _Holds:
    """The readers of what is below one prefix, the oldest first, and the bytes replaced there."""

    def __init__(self) -> None:
        self.readers: dict[object, tuple[int, Callable[[], None]]] = {}
        self.replaced_bytes = 0

    @property
    def behind_bytes(self) -> int:
        """What was replaced since the oldest reader came."""
        since_bytes, _ = next(iter(self.readers.values()), (self.replaced_bytes, None))
        return self.replaced_bytes - since_bytes


def _prefixes_of(key: str) -> list[str]:
    """Its kind's, its namespace's, and itself: `/pods/`, `/pods/default/`, `/pods/default/a`."""
    parts = key.split("/")
    return [key, *("/".join(parts[:count]) + "/" for count in range(2, len(parts)))]


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
        self._holds: dict[str, _Holds] = {}  # by the prefix that is read

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
        if revision is None or revision == self.revision:
            return Snapshot(self._table(prefix).below(prefix), self.revision)
        return self.past(prefix, revision).snapshot()

    def past(self, prefix: str, revision: int) -> Past:
        return self._table(prefix).below_at(prefix, revision)

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
            table.history.append(its_changes, keep)
            table.concerned.notify(its_changes)
            table.concerned.forget(table.history.floor)
        self.shrink_history(MAX_HISTORY_BYTES)
        if self._holds:
            self._end_holds(changes)

    def shrink_history(self, max_bytes: int) -> None:
        """Bound what history holds; the kind with the most forgets, an eighth more than it must."""
        total = sum(table.history.held_bytes for table in self._tables.values())
        while total > max_bytes:
            table = max(self._tables.values(), key=lambda table: table.history.held_bytes)
            before = table.history.held_bytes
            table.history.shrink(total - max_bytes + max_bytes // 8)
            table.concerned.forget(table.history.floor)
            total -= before - table.history.held_bytes

    def hold(self, prefix: str, outdated: Callable[[], None]) -> Callable[[], None]:
        """Announce a reader that keeps the present states of the objects below a prefix (or of one,
        by its key) until it calls the result.

        `outdated` is called once too much was replaced since: then the reader must let go.
        """
        holds = self._holds.setdefault(prefix, _Holds())
        held = object()
        holds.readers[held] = holds.replaced_bytes, outdated

        def release() -> None:
            holds.readers.pop(held, None)
            if not holds.readers and self._holds.get(prefix) is holds:
                del self._holds[prefix]

        return release

    def _end_holds(self, changes: Sequence[Change]) -> None:
        """While too much is kept in all, the oldest reader lets go of where most was replaced: what
        changes in one namespace cuts no reader of another.
        """
        for change in changes:
            for prefix in _prefixes_of(change.key):
                if prefix in self._holds:
                    self._holds[prefix].replaced_bytes += watches.replaced_bytes(change)
        behind = {prefix: holds.behind_bytes for prefix, holds in self._holds.items()}
        while sum(behind.values()) > MAX_BEHIND_BYTES:
            prefix = max(behind, key=behind.__getitem__)
            holds = self._holds[prefix]
            _, outdated = holds.readers.pop(next(iter(holds.readers)))
            behind[prefix] = holds.behind_bytes
            if not holds.readers:
                del self._holds[prefix]
            outdated()

    def watch(self, prefix: str, from_revision: int, concern: Concern | None = None) -> Watch:
        table = self._table(prefix)
        if concern is None or table.history.ended:
            return CursorWatch(table.history, prefix, from_revision, self._current_revision)
        newest = self._current_revision
        return ConcernedWatch(
            table.concerned, concern, table.history, prefix, from_revision, newest
        )

    def _current_revision(self) -> int:
        return self.revision

    def end_watches(self, prefix: str = "") -> None:
        if prefix:
            self._begin_again(prefix)
            return
        self._ended = True
        for table in self._tables.values():
            table.history.end()
            table.concerned.end()

    def _begin_again(self, prefix: str) -> None:
        """End the watches of a kind, and forget its history."""
        before = self._table(prefix)
        self._tables[prefix[: prefix.index("/", 1)]] = made = _KindTable(self.revision)
        for stored in before.objects.values():
            made.put(stored)
        before.history.end()
        before.concerned.end()

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
