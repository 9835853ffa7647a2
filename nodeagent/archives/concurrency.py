"""Concurrency of checkpoints: one per container, a bounded number per node, none after `close`.

Every checkpoint freezes a container and writes all of its memory; more at a time gain nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from orch.wire.errors import ApiError, service_unavailable

_RETRY_AFTER_S = 5
_CLOSE_LIMIT_S = 4.0  # the agent must exit within five seconds


@dataclass(frozen=True, slots=True)
class ContainerRef:
    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class CheckpointSlots:
    """At most `max_concurrent` holders; `close` waits for them at most `close_limit_s`."""

    def __init__(self, max_concurrent: int, *, close_limit_s: float = _CLOSE_LIMIT_S) -> None:
        self._max_concurrent = max_concurrent
        self._close_limit_s = close_limit_s
        self._holders: dict[ContainerRef, asyncio.Task[object] | None] = {}
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextlib.contextmanager
    def acquire(self, target: ContainerRef) -> Iterator[None]:
        """Hold a slot during the body; ApiError 409, 429 or 503 when none is available.

        `close` cancels the body; its caller then gets ApiError 503.
        """
        self._require_available(target)
        self._holders[target] = asyncio.current_task()
        self._idle.clear()
        try:
            yield
        except asyncio.CancelledError:
            task = self._holders[target]
            if not self._closing or task is None or task.uncancel() > 0:
                raise  # the caller itself was cancelled
            raise _stopping() from None
        finally:
            del self._holders[target]
            if not self._holders:
                self._idle.set()

    def conflict(self, target: ContainerRef) -> ApiError:
        """The refusal of a second checkpoint of the same container."""
        return ApiError(
            409,
            "Conflict",
            f"a checkpoint of {target} is already in progress; retry when it has finished",
        )

    async def close(self) -> None:
        """Refuse new holders, cancel the present ones and wait until their slots are free.

        Only the bodies are cancelled; their tasks, which may serve client connections, continue.
        """
        self._closing = True
        for task in self._holders.values():
            if task:
                task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._close_limit_s):
                await self._idle.wait()

    def _require_available(self, target: ContainerRef) -> None:
        if self._closing:
            raise _stopping()
        if target in self._holders:
            raise self.conflict(target)
        if len(self._holders) >= self._max_concurrent:
            raise ApiError(
                429,
                "TooManyRequests",
                f"{len(self._holders)} checkpoints are in progress on this node, the maximum; "
                "retry later",
                retry_after_s=_RETRY_AFTER_S,
            )


def _stopping() -> ApiError:
    return service_unavailable("the node agent is stopping; retry when it is running again")
