"""May a write happen? The one decision of optimistic concurrency; pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from orch.server.storage.base import KeyExists, KeyMissing, RevisionMismatch, StorageError


class Action(Enum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Write(NamedTuple):
    """What a caller asks for; `expected` is the revision it read (None: whatever is there)."""

    action: Action
    key: str
    data: bytes = b""
    expected: int | None = None


def refuse(write: Write, head: int | None) -> StorageError | None:
    """The refusal of a write to an object now at revision `head` (None: it does not exist)."""
    if write.action is Action.CREATE:
        return None if head is None else KeyExists(write.key)
    if head is None:
        return KeyMissing(write.key)
    if write.expected is not None and write.expected != head:
        return RevisionMismatch(write.key, write.expected, head)
    return None
