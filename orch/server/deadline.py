"""A bound in time for work that most often needs none: what is done at once cannot be late.

`asyncio.timeout` costs a timer and its end for every request, also for those that are answered
without waiting for anything. Here the clock starts when the work first waits.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """What the work returns or raises; TimeoutError when it waits beyond that, which cancels it."""
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    async with asyncio.timeout(seconds):
        return await _going_on(work, waits_for)


@types.coroutine
def _going_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Carry on work that waits for something: pass to and fro what the event loop and it say."""
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # a cancellation: the work's own to handle
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as done:
        result: T = done.value
        return result
