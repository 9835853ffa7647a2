"""Storage's copy in memory: every current object, the history of changes, the watches.

Shared by the implementations: they make a write durable, then hand the changes to `apply`. Lives
on the event loop's thread alone and knows nothing of the medium.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import overload
from weakref import WeakSet

from orch.server.storage import watches
from orch.server.storage.base import Change, Concern, Past, Snapshot, Stored, Watch
from orch.server.storage.tally import Tally
from orch.server.storage.watches import MIN_KEPT, ConcernedWatch, ConcernIndex, CursorWatch, History

MAX_HISTORY_BYTES = 64 * 1024 * 1024  # of all kinds together
MAX_BEHIND_BYTES = 128 * 1024 * 1024  # replaced since readers took hold of a state, in all
_NAMESPACES = "/namespaces/"  # begins the keys of namespaces

_PART = 512  # objects; of twice as many two are made
_KEY: Callable[[Stored], str] = attrgetter("key")


def _first_key(part: Sequence[Stored]) -> str:
    return part[0].key


class Joined(Sequence[Stored]):
    """Parts that follow each other, as one."""

    def __init__(self, parts: Sequence[Sequence[Stored]]) -> None:
        self._parts = parts
        self._ends = [*accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self._ends[-1]

    def __iter__(self) -> Iterator[Stored]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, at: int) -> Stored: ...
    @overload
    def __getitem__(self, at: slice) -> list[Stored]: ...
    def __getitem__(self, at: int | slice) -> Stored | list[Stored]:
        if isinstance(at, int):
            return self._between(range(len(self))[at], 1)[0]
        places = range(*at.indices(len(self)))
        if places.step != 1:
            return [self[place] for place in places]
        return self._between(places.start, len(places))

    def _between(self, start: int, count: int) -> list[Stored]:
        number = bisect_right(self._ends, start)
        found: list[Stored] = []
        while len(found) < count:
            part = self._parts[number]
            begin = start + len(found) - (self._ends[number] - len(part))
            found += part[begin : begin + count - len(found)]
            number += 1
        return found


class _Ordered:
    """Objects in the order of their keys, in parts that readers share: one of 50,000 objects takes
    a hundred references. A part that is shared is copied before it changes.
    """

    def __init__(self) -> None:
        self._parts: list[list[Stored]] = []  # none is empty
        self._own: set[int] = set()  # identities of those that no reader has

    def put(self, stored: Stored) -> None:
        if not self._parts:
            self._parts.append([stored])
            return
        number, part, place = self._find(stored.key)
        if place < len(part) and part[place].key == stored.key:
            part[place] = stored
            return
        part.insert(place, stored)
        if len(part) > 2 * _PART:
            self._own.discard(id(part))
            self._parts[number : number + 1] = part[:_PART], part[_PART:]

    def drop(self, key: str) -> None:
        """One that is there."""
        number, part, place = self._find(key)
        del part[place]
        if not part:
            self._own.discard(id(part))
            del self._parts[number]

    def below(self, prefix: str) -> Sequence[Stored]:
        end = prefix + "\U0010ffff"
        first = max(bisect_right(self._parts, prefix, key=_first_key) - 1, 0)
        parts = self._parts[first : bisect_left(self._parts, end, key=_first_key)]
        if len(parts) > 2:
            self._own.clear()  # what lies between the first and the last is shared
        if parts:
            parts[0] = parts[0][bisect_left(parts[0], prefix, key=_KEY) :]
            parts[-1] = parts[-1][: bisect_left(parts[-1], end, key=_KEY)]
        parts = [part for part in parts if part]
        return Joined(parts) if len(parts) > 1 else parts[0] if parts else ()

    def _find(self, key: str) -> tuple[int, list[Stored], int]:
        """Where it is, or belongs: a part, to be changed, and the place in it."""
        number = max(bisect_right(self._parts, key, key=_first_key) - 1, 0)
        part = self._parts[number]
        if id(part) not in self._own:
            self._parts[number] = part = part.copy()
            self._own.add(id(part))
        return number, part, bisect_left(part, key, key=_KEY)


class _KindTable:
    """The objects of one kind."""

    def __init__(self, floor: int) -> None:
        self.objects: dict[str, Stored] = {}
        self.history = History(floor)
        self.concerned = ConcernIndex()
        self._ordered = _Ordered()

    def put(self, stored: Stored) -> None:
        self.objects[stored.key] = stored
        self._ordered.put(stored)

    def drop(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self._ordered.drop(key)

    def below(self, prefix: str) -> Sequence[Stored]:
        return self._ordered.below(prefix)

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
        self._watches = WeakSet[CursorWatch]()
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
        """Make durable changes visible: objects first, then the watches are woken.

        A watch ends with its namespace: the next one of that name may be somebody else's.
        """
        start = 0
        for count, change in enumerate(changes, 1):
            if change.current is None and change.key.startswith(_NAMESPACES):
                self._make_visible(changes[start:count])
                self._end_within(change.key)
                start = count
        self._make_visible(changes[start:])

    def _end_within(self, namespace_key: str) -> None:
        for watch in [one for one in self._watches if _NAMESPACES + one.namespace == namespace_key]:
            watch.end()

    def _make_visible(self, changes: Sequence[Change]) -> None:
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
        table, newest = self._table(prefix), self._current_revision
        if concern is None or table.history.ended:
            made = CursorWatch(table.history, prefix, from_revision, newest)
        else:
            made = ConcernedWatch(
                table.concerned, concern, table.history, prefix, from_revision, newest
            )
        self._watches.add(made)
        return made

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
