"""Waiting for memory to be as new as it has to be: by revision, or as new as the medium is now."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable

from orch.component import loops
from orch.server.storage.base import StorageFailed


class Waiting:
    """Who waits for memory to come to a revision."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def until(self, revision: int) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (revision, next(self._numbers), future))
        await future

    def reached(self, revision: int) -> None:
        while self._queue and self._queue[0][0] <= revision:
            future = heapq.heappop(self._queue)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: StorageFailed) -> None:
        for *_, future in self._queue:
            if not future.done():
                future.set_exception(error)
        self._queue.clear()


class Newest:
    """The medium's newest revision, asked for once for all who want it at a time.

    An answer counts only for those who asked before the question was sent.
    """

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        self._question = ask
        self._asking: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None

    async def revision(self) -> int:
        if self._next is None:
            self._next = loops.spawn(self._ask(self._asking), name="newest-revision")
        return await asyncio.shield(self._next)

    async def _ask(self, before: asyncio.Task[int] | None) -> int:
        if before is not None:
            await asyncio.wait([before])
        self._asking, self._next = self._next, None
        return await self._question()
