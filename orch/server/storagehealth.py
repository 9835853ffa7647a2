"""Whether storage takes writes, found out at a rate of its own.

Whoever asks for health gets the last verdict, so that nobody without credentials can make the
server write to the disk.
"""

from __future__ import annotations

from orch.component.health import CheckFailed
from orch.server.storage.base import Storage, StorageFailed

INTERVAL_S = 5.0


class StorageHealth:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._failure = "storage was not looked at yet"

    async def look(self) -> None:
        """One round: a commit that must work."""
        try:
            await self._storage.check()
        except StorageFailed as error:
            self._failure = str(error)
        else:
            self._failure = ""

    def check(self) -> None:
        """CheckFailed with what the last round met."""
        if self._failure:
            raise CheckFailed(self._failure)
