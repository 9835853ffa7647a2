"""Whose turn it is: one checkpoint per container, a bounded number on the node, none at the end.

Every checkpoint freezes a container and writes all of its memory, so more at a time help nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from orch.wire.errors import ApiError, service_unavailable

_RETRY_AFTER_S = 5
_CLOSE_LIMIT_S = 4.0  # an agent ends within five seconds


@dataclass(frozen=True, slots=True)
class Target:
    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class Turns:
    def __init__(self, max_concurrent: int) -> None:
        self._max_concurrent = max_concurrent
        self._tasks: dict[Target, asyncio.Task[object] | None] = {}
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextlib.contextmanager
    def take(self, target: Target) -> Iterator[None]:
        """Hold a turn; ApiError 409, 429 or 503 when there is none to be had.

        The body is cancelled by `close`, and its caller gets the ApiError 503 then.
        """
        self._require_free(target)
        self._tasks[target] = asyncio.current_task()
        self._idle.clear()
        try:
            yield
        except asyncio.CancelledError:
            task = self._tasks[target]
            if not self._closing or task is None or task.uncancel() > 0:
                raise  # the caller itself was cancelled
            raise _stopping() from None
        finally:
            del self._tasks[target]
            if not self._tasks:
                self._idle.set()

    def busy(self, target: Target) -> ApiError:
        """The refusal of a second checkpoint of one container."""
        return ApiError(
            409,
            "Conflict",
            f"checkpointing of {target} is under way already; try again when it has ended",
        )

    async def close(self) -> None:
        """Give no more turns, break off those that are held and wait until all are given back.

        The tasks that held them may live on: they may be those of client connections.
        """
        self._closing = True
        for task in self._tasks.values():
            if task:
                task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await self._idle.wait()

    def _require_free(self, target: Target) -> None:
        if self._closing:
            raise _stopping()
        if target in self._tasks:
            raise self.busy(target)
        if len(self._tasks) >= self._max_concurrent:
            raise ApiError(
                429,
                "TooManyRequests",
                f"{len(self._tasks)} checkpoints are under way on this node, as many as may be "
                "at a time; try again later",
                retry_after_s=_RETRY_AFTER_S,
            )


def _stopping() -> ApiError:
    return service_unavailable("the node agent is stopping; try again when it runs again")
