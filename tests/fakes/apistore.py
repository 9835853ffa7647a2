"""FakeStore: what the fake API server keeps; objects as JSON data, and the history of changes.

Nothing a caller holds changes behind its back: data is copied in and out. Tests use `put`,
`peek`, `remove` and `compact` to arrange and to look; the rules of the API are in `api`.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from orch.wire import times
from orch.wire.records.meta import ApiObject


class Change(NamedTuple):
    version: int
    type: str  # ADDED | MODIFIED | DELETED
    model: type[ApiObject]
    data: dict[str, Any]


def fixed_now() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


class FakeStore:
    """`now` stamps creations and deletions."""

    def __init__(self, now: Callable[[], datetime] = fixed_now) -> None:
        self.now = now
        self.version = 100
        self.compacted = 0
        self.data: dict[tuple[type[ApiObject], str], dict[str, Any]] = {}
        self.history: list[Change] = []
        self.news = asyncio.Event()
        self._numbers = itertools.count(1)

    def put(self, obj: ApiObject) -> Any:
        """Store `obj` as it is, status included; no rule applies. Returns it as stored."""
        data = obj.to_wire()
        meta = data.setdefault("metadata", {})
        meta.setdefault("uid", self.new_uid())
        meta.setdefault("creationTimestamp", times.format_time(self.now()))
        known = (type(obj), obj.key) in self.data
        return self.save(type(obj), obj.key, data, "MODIFIED" if known else "ADDED")

    def peek(self, model: type[Any], name: str, namespace: str = "") -> Any:
        """The stored object, or None."""
        data = self.data.get((model, key_of(namespace, name)))
        return model.from_wire(copy.deepcopy(data)) if data is not None else None

    def all(self, model: type[Any]) -> list[Any]:
        return [
            model.from_wire(copy.deepcopy(data))
            for (kind, _), data in sorted(self.data.items(), key=lambda item: item[0][1])
            if kind is model
        ]

    def remove(self, model: type[ApiObject], name: str, namespace: str = "") -> None:
        """Take the object away at once, as if somebody had deleted it."""
        self.drop(model, key_of(namespace, name))

    def compact(self) -> None:
        """Forget the history, so that a watch from an old version gets 410."""
        self.compacted = self.version
        self.history.clear()

    def new_uid(self) -> str:
        return f"uid-{next(self._numbers)}"

    def save(self, model: type[ApiObject], key: str, data: dict[str, Any], change: str) -> Any:
        self.version += 1
        data["metadata"]["resourceVersion"] = str(self.version)
        self.data[(model, key)] = data
        self._publish(Change(self.version, change, model, copy.deepcopy(data)))
        return model.from_wire(copy.deepcopy(data))

    def drop(self, model: type[ApiObject], key: str) -> None:
        last = copy.deepcopy(self.data.pop((model, key)))
        self.version += 1
        last["metadata"]["resourceVersion"] = str(self.version)
        self._publish(Change(self.version, "DELETED", model, last))

    def nudge(self) -> None:
        """Wake every watch."""
        self.news.set()
        self.news = asyncio.Event()

    def _publish(self, change: Change) -> None:
        self.history.append(change)
        self.nudge()


def key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
