"""How many objects and bytes are stored: of each kind in each namespace, and in all.

The mirror records every change here, so that a write is charged (`objects.charging`) without a look
at other objects. Keys and data count, as bytes; what the objects are is not known here, but in how
many braces they are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Growth(NamedTuple):
    """Of `records`, JSON objects within the stored ones, each costs who reads it more memory."""

    objects: int
    bytes: int
    records: int


def growth(key: str, before: bytes | None, after: bytes | None) -> Growth:
    """What is stored more once the data under the key is replaced; None: there is none."""
    objects = (after is not None) - (before is not None)
    old, new = before or b"", after or b""
    size = len(new) - len(old) + objects * len(key.encode())
    return Growth(objects, size, _records_in(new) - _records_in(old))


def _records_in(data: bytes) -> int:
    return len(data) - len(data.translate(None, b"{"))  # quicker than counting


@dataclass(slots=True)
class Count:
    """`changes` grows with every change."""

    objects: int = 0
    bytes: int = 0
    records: int = 0
    changes: int = 0

    def add(self, more: Growth) -> None:
        self.objects += more.objects
        self.bytes += more.bytes
        self.records += more.records
        self.changes += 1


class ScopeTally:
    """One namespace, or one kind of objects without a namespace."""

    def __init__(self) -> None:
        self.all = Count()
        self.kinds: dict[str, Count] = {}

    def of(self, kind: str) -> Count:
        """`kind` as in keys: `<plural>[.<group>]`."""
        return self.kinds.get(kind) or Count()


class Tally:
    """`record` and `add` take keys; `scope` takes the name that `place_in` gives."""

    def __init__(self) -> None:
        self.all = Count()
        self._scopes: dict[str, ScopeTally] = {}

    def scope(self, name: str) -> ScopeTally:
        """An empty one where nothing is stored."""
        return self._scopes.get(name) or ScopeTally()

    def record(self, key: str, before: bytes | None, after: bytes | None) -> None:
        """The data under the key was replaced; None: there is none."""
        self.add(key, growth(key, before, after))

    def add(self, key: str, more: Growth) -> None:
        name, kind = place_in(key)
        scope = self._scopes.setdefault(name, ScopeTally())
        for amount in (self.all, scope.all, scope.kinds.setdefault(kind, Count())):
            amount.add(more)
        if not (scope.all.objects or scope.all.bytes or scope.all.records):
            del self._scopes[name]


def place_in(key: str) -> tuple[str, str]:
    """The scope of a key (a namespace, or `/<kind>`, which no namespace is called) and its kind."""
    _, kind, *rest = key.split("/", 3)
    return (rest[0] if len(rest) > 1 else f"/{kind}"), kind


class NodeTally:
    """The pods bound to each node, by the keys of pods; `put` and `drop` as they change.

    `amounts` has a scope for each node, and there a kind for each namespace.
    """

    def __init__(self) -> None:
        self.amounts = Tally()
        self._held: dict[str, tuple[str, Growth]] = {}

    def put(self, key: str, node: str, amount: Growth) -> None:
        """`node` "": it has none."""
        self.drop(key)
        if node:
            held = self._held[key] = key_on(node, key), amount
            self.amounts.add(*held)

    def drop(self, key: str) -> None:
        if held := self._held.pop(key, None):
            self.amounts.add(held[0], less(held[1]))


def key_on(node: str, key: str) -> str:
    """Where the pod of that key is counted in `NodeTally.amounts`."""
    _, _, namespace, name = key.split("/", 3)
    return f"/{namespace}/{node}/{name}"


def less(amount: Growth) -> Growth:
    """The growth that takes this one back."""
    return Growth(*(-more for more in amount))


@dataclass(frozen=True, slots=True)
class Bounds:
    """0: no bound. A scope is a namespace, or one kind of objects without a namespace."""

    objects: int = 0  # of a scope
    bytes: int = 0  # of a namespace
    store_bytes: int = 0
    node_bytes: int = 0  # of the memory that the pods of a node take
