"""Answers of the API server, each kept for its time; who asks the same at once shares one question.

An error is never kept. Bounded: the oldest answers make room. Times are the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from orch.component import loops

V = TypeVar("V")

MAX_ANSWERS = 4096


class ReviewCache(Generic[V]):
    """`keep_s` says for how many seconds an answer is good; 0 asks every time."""

    def __init__(self, keep_s: Callable[[V], float], *, limit: int = MAX_ANSWERS) -> None:
        self._keep_s = keep_s
        self._limit = limit
        self._answers: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[V]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer that is kept, or the one to `ask`; its error is raised to all who wait."""
        known = self._answers.get(key)
        if known is not None and asyncio.get_running_loop().time() < known[0]:
            return known[1]
        task = self._asking.get(key)
        if task is None:
            task = loops.spawn(self._ask(key, ask), name="review")
            task.add_done_callback(_notice)
            self._asking[key] = task
        return await asyncio.shield(task)  # a caller that gives up does not end it for the others

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._keep(key, answer)
        return answer

    def _keep(self, key: Hashable, answer: V) -> None:
        keep_s = self._keep_s(answer)
        self._answers.pop(key, None)
        if keep_s <= 0:
            return
        self._answers[key] = (asyncio.get_running_loop().time() + keep_s, answer)
        if len(self._answers) > self._limit:
            self._answers.popitem(last=False)

    async def close(self) -> None:
        """End the questions under way."""
        await loops.cancel(*self._asking.values())


def _notice(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waited for."""
    if not task.cancelled():
        task.exception()
