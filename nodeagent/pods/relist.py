"""When to list the runtime's pods again: after its events, on request, or at an interval.

A broken event stream is reopened with growing delays, also on a runtime without events, which may
be upgraded. Events come in bursts, so they are collected for a moment, and listing takes at most a
small part of the time. All times are the running loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from enum import Enum

from nodeagent.runtime.base import (
    ContainerEvent,
    ContainerRuntime,
    RuntimeCallError,
    RuntimeNotSupported,
)
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

HEALTHY_AFTER_S = 2.0  # refusals come at once; an open stream is silent until the first event
_FIRST_DELAY_S, _LONGEST_DELAY_S = 1.0, 60.0


class EventStream:
    """`healthy` while the stream is open; `on_change` is called in the loop when that changes."""

    def __init__(
        self,
        runtime: ContainerRuntime,
        *,
        on_event: Callable[[ContainerEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.healthy = False
        self._runtime = runtime
        self._on_event = on_event
        self._on_change = on_change
        self._outage = OnceLog(log, logging.INFO)
        self._backoff = Backoff(_FIRST_DELAY_S, 2.0, _LONGEST_DELAY_S)

    async def run(self) -> None:
        """Listen forever."""
        loop = asyncio.get_running_loop()
        while True:
            opened = loop.call_later(HEALTHY_AFTER_S, self._opened)
            try:
                await self._listen()
                self._closed("the runtime closed its event stream")
            except RuntimeNotSupported as error:
                self._closed(f"the runtime does not support events ({error})")
            except RuntimeCallError as error:
                self._closed(f"the runtime's event stream broke ({error})")
            finally:
                opened.cancel()
            await asyncio.sleep(self._backoff.next())

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._runtime.events()) as events:
            async for event in events:
                self._opened()
                self._on_event(event)

    def _opened(self) -> None:
        self._backoff.reset()
        if self.healthy:
            return
        self.healthy = True
        log.info("receiving container events from the runtime")
        self._outage.recovered()
        self._on_change()

    def _closed(self, cause: str) -> None:
        text = "%s: listing its containers every second"
        self._outage.failed(text, cause, cause="broken")
        if self.healthy:
            self.healthy = False
            self._on_change()


COLLECT_S = 0.05
_REST = 5.0  # hints wait for this multiple of the last listing's duration,
_LONGEST_REST_S = 1.0  # at most so long


class Due(Enum):
    REQUESTED = "requested"
    HINTED = "hinted"
    INTERVAL = "interval"


class RelistTimer:
    """A single waiter; others `request` and `hint`, also before the wait begins."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._requested = False
        self._hinted = False

    def request(self) -> None:
        """List now."""
        self._requested = True
        self._woken.set()

    def hint(self) -> None:
        """List soon."""
        self._hinted = True
        self._woken.set()

    async def wait(self, until_s: float, *, took_s: float = 0.0) -> Due:
        """Return why to list now, at `until_s` at the latest; the last listing took `took_s`."""
        loop = asyncio.get_running_loop()
        rested_s = loop.time() + min(took_s * _REST, _LONGEST_REST_S)
        due_s = until_s
        while not self._requested:
            self._woken.clear()
            if self._hinted:
                due_s = min(due_s, max(loop.time() + COLLECT_S, rested_s))
            try:
                async with asyncio.timeout_at(due_s):
                    await self._woken.wait()
            except TimeoutError:
                break
        requested, hinted = self._requested, self._hinted
        self._requested = self._hinted = False
        self._woken.clear()
        return Due.REQUESTED if requested else Due.HINTED if hinted else Due.INTERVAL
