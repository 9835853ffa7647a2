"""A bound in time for requests: one timer for all of them, since nearly none is ever late.

`asyncio.timeout` costs each request a timer of its own. All have the same time here, so that who
began first is late first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Deadlines:
    """Work that is under way, each piece in a task of its own; what is late is cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends: dict[asyncio.Task[object], float] = {}  # the oldest first
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def hold(self, work: Awaitable[T]) -> T:
        """What the work returns or raises; TimeoutError when it takes longer, which cancels it."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise AssertionError("work is held to its time in a task")
        self._ends[task] = loop.time() + self.seconds
        if self._timer is None:
            self._timer = loop.call_at(self._ends[task], self._end_late)
        try:
            return await work
        except asyncio.CancelledError:
            if task in self._late and task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            self._ends.pop(task, None)
            self._late.discard(task)

    def _end_late(self) -> None:
        """Cancel what is late, and look again when the next one is."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, end_s in tuple(self._ends.items()):
            if end_s > loop.time():
                self._timer = loop.call_at(end_s, self._end_late)
                return
            del self._ends[task]
            self._late.add(task)
            task.cancel()
