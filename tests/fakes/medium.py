"""A storage medium in memory that fails when told to; outlives the storages opened on it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from orch.server.storage.base import Change, StorageFailed, Stored


class FakeMedium:
    """`failing` makes every commit fail; `commits` counts those that succeeded.
    While `answering` is not set, a commit hangs.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.revision = 0
        self.failing: Exception | None = None
        self.commits = 0
        self.answering = threading.Event()
        self.answering.set()

    def open(self) -> tuple[list[Stored], int]:
        if self.failing:
            raise StorageFailed("the medium is gone")
        return sorted(self.objects.values(), key=lambda stored: stored.key), self.revision

    def commit(self, changes: Sequence[Change], revision: int) -> None:
        self.answering.wait()
        if self.failing:
            raise self.failing
        for change in changes:
            if change.current is None:
                del self.objects[change.key]
            else:
                self.objects[change.key] = change.current
        self.revision = revision
        self.commits += 1

    def tidy(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nothing to let go of."""

    def size_bytes(self) -> int:
        return sum(len(stored.data) for stored in self.objects.values())
