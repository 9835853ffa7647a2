"""The storage role: current objects under keys, one global revision, a bounded history of changes.

The contract of every implementation (tests/orch/server/storage/contract.py): a write is durable
before it is answered; every write gets the next revision, which never goes back or is given twice,
not even across a restart; reads and watches are answered from memory and see a write as soon as it
was answered; watches get every change after their revision, in order, once, or `Compacted`. Keys
are `/<plural>[.<group>]/[<namespace>/]<name>`; data is opaque here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from orch.server.storage.tally import Tally

Derived = TypeVar("Derived")
Hold = Callable[[Callable[[], None]], Callable[[], None]]  # `Storage.hold` of a prefix


class StorageError(Exception):
    """A write or a watch that storage refused."""


class KeyExists(StorageError):
    """The key to create is taken."""


class KeyMissing(StorageError):
    """The key to update or delete does not exist."""


class RevisionMismatch(StorageError):
    """The object was changed since the caller read it; `current` is its revision now."""

    def __init__(self, key: str, expected: int, current: int) -> None:
        super().__init__(f"{key} is at revision {current}, not {expected}")
        self.current = current


class Compacted(StorageError):
    """Some changes after the requested revision are no longer held: read the objects again.

    `oldest` is the oldest revision a watch can still start from.
    """

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")
        self.oldest = oldest


class StorageFailed(StorageError):
    """The medium failed (full, unwritable, closed): nothing was written."""


class StorageUnavailable(StorageFailed):
    """The medium cannot be reached: nothing was written, and a retry may succeed."""


class OutcomeUnknown(StorageFailed):
    """The medium was lost between a write and its answer: the outcome is unknown."""


class ObjectTooLarge(StorageFailed):
    """The medium does not accept an object of this size."""


class StorageFull(StorageFailed):
    """The medium takes no more data: nothing was written."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One object at one revision. `memo` caches values that readers derive from `data`."""

    key: str
    revision: int
    data: bytes
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, name: str, derive: Callable[[Stored], Derived]) -> Derived:
        """`derive(self)`, cached as `name`: an object never changes, it is replaced."""
        if name not in self.memo:
            self.memo[name] = derive(self)
        derived: Derived = self.memo[name]
        return derived


class Write(NamedTuple):
    """A requested write; `data` None deletes the object. `expected` is the revision that the
    caller read: 0 where there must be no object, None for any.
    """

    key: str
    data: bytes | None
    expected: int | None


class Change(NamedTuple):
    """One write: `previous` is None for a creation, `current` is None for a deletion."""

    key: str
    revision: int
    current: Stored | None
    previous: Stored | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Objects in key order, as they were at `revision`."""

    items: Sequence[Stored]
    revision: int


@dataclass(frozen=True, slots=True)
class Concern:
    """Restricts a watch to objects for which `of` gives `value`, before or after a change.

    `name` identifies `of`; watches with the same name must have the same `of`.
    """

    name: str
    value: str
    of: Callable[[Stored], str]

    def values(self, change: Change) -> set[str]:
        """The values before and after the change: one, or two when it moved between them."""
        return {self.of(stored) for stored in (change.current, change.previous) if stored}


class Watch(Protocol):
    """A reader's place in the history."""

    async def changes(self) -> list[Change] | None:
        """The next changes; None when storage ends its watches.

        Compacted when this reader fell behind what is held.
        """

    def take(self) -> list[Change] | None:
        """`changes` without waiting, a bounded number: [] when there is nothing more, or nothing
        among those that were looked at.
        """

    @property
    def is_behind(self) -> bool:
        """There is more for `take` to look at."""

    def wake(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` once, at the next change; None cancels that. For a reader that does not
        wait in `changes`, and has taken everything.
        """

    @property
    def revision(self) -> int:
        """Every change up to this revision was delivered or does not concern this watch."""

    def close(self) -> None: ...


class Past(NamedTuple):
    """What is below a prefix now, and all changes of its kind since a revision."""

    prefix: str
    revision: int
    items: Sequence[Stored]
    changes: list[Change]

    @property
    def size(self) -> int:
        """How many of them are gone through."""
        return len(self.items) + len(self.changes)

    def snapshot(self) -> Snapshot:
        """What was there at the revision; a thread may find out, as nothing of this changes."""
        undone = {
            change.key: change.previous
            for change in reversed(self.changes)
            if change.key.startswith(self.prefix)
        }
        found = [stored for stored in self.items if stored.key not in undone]
        found += filter(None, undone.values())
        return Snapshot(sorted(found, key=attrgetter("key")), self.revision)


class Storage(Protocol):
    """Reads are synchronous and from memory; writes return after they are durable.

    A medium may be shared by servers: each sees its own writes when they are answered, and those
    of the others a moment later, or immediately after `settle`.
    """

    @property
    def revision(self) -> int:
        """Revision of the newest write."""

    @property
    def tally(self) -> Tally:
        """The amounts of what `get` and `list` would show now."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def check(self) -> None:
        """StorageFailed unless a write would succeed now; StorageFull if only changes and deletions
        would. What was queued before is written then, as without a failure.
        """

    async def settle(self) -> None:
        """Reads after this see every write answered before it, also by other servers.

        StorageFailed when the medium does not answer. Free where there are no other servers.
        """

    async def reach(self, revision: int) -> bool:
        """Wait a few seconds until reads are as new as `revision`; returns whether they are."""

    async def maintain(self) -> None:
        """Maintenance of the medium, every few minutes; does not raise."""

    def size_bytes(self) -> int:
        """Bytes on the medium; may block, and may be called from any thread."""

    def get(self, key: str) -> Stored | None: ...

    def list(self, prefix: str, revision: int | None = None) -> Snapshot:
        """Everything below a prefix that begins with `/<plural>[.<group>]/`.

        With `revision`, as it was then; Compacted when some changes since are no longer held.
        """

    def past(self, prefix: str, revision: int) -> Past:
        """What `list` at a revision is made of; Compacted."""

    async def create(
        self, key: str, data: bytes, also: Sequence[Write] = (), within: Stored | None = None
    ) -> Stored:
        """KeyExists when the key is taken. `also` are updates of other objects: all are written, or
        nothing is (RevisionMismatch when one of them changed or is gone). `within` is an object
        that no other server may have changed meanwhile (RevisionMismatch).
        """

    async def update(
        self, key: str, data: bytes, expected_revision: int, also: Sequence[Write] = ()
    ) -> Stored:
        """KeyMissing, RevisionMismatch; `also` as for `create`."""

    async def delete(self, key: str, expected_revision: int | None = None) -> Stored:
        """The last data under the revision of the deletion. KeyMissing, RevisionMismatch."""

    def watch(self, prefix: str, from_revision: int, concern: Concern | None = None) -> Watch:
        """Changes after `from_revision` below the prefix; Compacted when that is too old.

        With a concern the watch may omit other changes, and they cost it nothing.
        """

    def hold(self, prefix: str, outdated: Callable[[], None]) -> Callable[[], None]:
        """Announce a reader that keeps the present states of objects until it calls the result.

        `outdated` is called once too much was replaced since: then the reader must let go.
        """

    def shrink_history(self, max_bytes: int) -> None:
        """Bound the bytes that only history holds: the oldest changes are forgotten."""

    def end_watches(self, prefix: str = "") -> None:
        """End every watch, present and future, with None: the program is stopping. Of a kind, by
        its prefix, only the present ones: it is served no longer.
        """

    def compact(self, keep: int) -> None:
        """Forget history beyond the newest `keep` changes of each kind."""
