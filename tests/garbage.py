"""Whether a call that fails leaves what it used to garbage collection.

An error holds the frames it went through. Where one of them holds the error, by a future or a task,
all of them stay: requests of megabytes, until some thousand objects are to be collected at once.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable


class Used:
    """What the frame that makes the call holds."""


async def is_left_by(call: Callable[[], Awaitable[object]], kind: type = Used) -> bool:
    """Whether an object of the kind stays for more than a second after the call. It must fail,
    unless the kind is of what it makes elsewhere.
    """
    gc.collect()
    gc.disable()
    try:
        before = _known(kind)
        assert await _has_failed(call) or kind is not Used, "the call did not fail"
        for _ in range(100):
            if not _known(kind) - before:
                return False
            await asyncio.sleep(0.01)
        return True
    finally:
        gc.enable()


async def _has_failed(call: Callable[[], Awaitable[object]]) -> bool:
    try:
        await _use(call)
    except Exception:
        return True
    return False


async def _use(call: Callable[[], Awaitable[object]]) -> None:
    """Where the error of the call holds this frame, it holds what is used here."""
    used = Used()
    await call()
    del used


def _known(kind: type) -> set[int]:
    return {id(one) for one in gc.get_objects() if type(one) is kind}
