"""Whether storage takes writes, found out at a rate of its own.

Health requests get the last verdict, so that no client without credentials can make the
server write to the disk. This is also who tells the operator, once, that storage refuses writes:
those whose writes fail say it to their clients, or try again in silence.
"""

from __future__ import annotations

import asyncio
import logging

from orch.component.diagnostics.health import CheckFailed
from orch.component.process.once_log import OnceLog
from orch.server.storage.base import Storage, StorageFailed

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
LOOK_TIMEOUT_S = 10.0  # time for one member of etcd that does not answer, and then the next


class StorageHealth:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._failure = "storage was not looked at yet"
        self._outage = OnceLog(log, logging.ERROR)
        self.can_list = False  # what is read is what is stored, as of the last round

    @property
    def takes_writes(self) -> bool:
        return not self._failure

    async def look(self) -> None:
        """One round: a read, then a commit that must work."""
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                await self._settle()
                await self._storage.check()
        except StorageFailed as error:
            self._failed(str(error))
        except TimeoutError:
            self._failed(f"no answer within {LOOK_TIMEOUT_S:g} s")
        else:
            self._outage.recovered("storage takes writes again")
            self._failure = ""

    async def _settle(self) -> None:
        try:
            await self._storage.settle()
        except (StorageFailed, asyncio.CancelledError):
            self.can_list = False
            raise
        self.can_list = True

    def _failed(self, reason: str) -> None:
        self._outage.failed("storage takes no writes: %s", reason)
        self._failure = f"storage takes no writes: {reason}"

    def check(self) -> None:
        """CheckFailed with what the last round met."""
        if self._failure:
            raise CheckFailed(self._failure)
