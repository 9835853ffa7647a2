"""When to list the runtime's pods again: told by its events, asked for, or at a regular time.

A stream of events that breaks is opened again with growing delays; a runtime that has none is asked
now and then, because it may be upgraded. Events come in bursts, so they are collected for a moment,
and listing takes at most a small part of the time. All times are the running loop's.
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

STANDS_AFTER_S = 2.0  # refusals come at once; a stream that stands says nothing until an event
_FIRST_DELAY_S, _LONGEST_DELAY_S = 1.0, 60.0


class EventStream:
    """`healthy` while changes are told; `on_turn` is called in the loop when that changes."""

    def __init__(
        self,
        runtime: ContainerRuntime,
        *,
        on_event: Callable[[ContainerEvent], None],
        on_turn: Callable[[], None],
    ) -> None:
        self.healthy = False
        self._runtime = runtime
        self._on_event = on_event
        self._on_turn = on_turn
        self._outage = OnceLog(log, logging.INFO)
        self._backoff = Backoff(_FIRST_DELAY_S, 2.0, _LONGEST_DELAY_S)

    async def run(self) -> None:
        """Listen for ever."""
        loop = asyncio.get_running_loop()
        while True:
            stands = loop.call_later(STANDS_AFTER_S, self._stands)
            try:
                await self._listen()
                self._broke("the runtime ended the stream of its events")
            except RuntimeNotSupported as error:
                self._broke(f"the runtime does not tell what happens ({error})")
            except RuntimeCallError as error:
                self._broke(f"the stream of the runtime's events broke off ({error})")
            finally:
                stands.cancel()
            await asyncio.sleep(self._backoff.next())

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._runtime.events()) as events:
            async for event in events:
                self._stands()
                self._on_event(event)

    def _stands(self) -> None:
        self._backoff.reset()
        if self.healthy:
            return
        self.healthy = True
        log.info("the runtime tells what happens to containers")
        self._outage.recovered()
        self._on_turn()

    def _broke(self, cause: str) -> None:
        text = "%s: listing its containers every second"
        self._outage.failed(text, cause, cause="broken")
        if self.healthy:
            self.healthy = False
            self._on_turn()


COLLECT_S = 0.05
_REST = 5.0  # hints are left alone for so many times what the last look took,
_LONGEST_REST_S = 1.0  # but not longer than this


class Due(Enum):
    ASKED = "asked"
    HINTED = "hinted"
    TIME = "time"


class RelistTimer:
    """One waits, others `ask` and `hint`; what came before a wait ends it."""

    def __init__(self) -> None:
        self._stirred = asyncio.Event()
        self._asked = False
        self._hinted = False

    def ask(self) -> None:
        """Look now."""
        self._asked = True
        self._stirred.set()

    def hint(self) -> None:
        """Look soon."""
        self._hinted = True
        self._stirred.set()

    async def wait(self, until_s: float, *, took_s: float = 0.0) -> Due:
        """Why to look now; `until_s` is the regular time, `took_s` how long the last look took."""
        loop = asyncio.get_running_loop()
        rested_s = loop.time() + min(took_s * _REST, _LONGEST_REST_S)
        due_s = until_s
        while not self._asked:
            self._stirred.clear()
            if self._hinted:
                due_s = min(due_s, max(loop.time() + COLLECT_S, rested_s))
            try:
                async with asyncio.timeout_at(due_s):
                    await self._stirred.wait()
            except TimeoutError:
                break
        return self._reason()

    def _reason(self) -> Due:
        asked, hinted = self._asked, self._hinted
        self._asked = self._hinted = False
        self._stirred.clear()
        return Due.ASKED if asked else Due.HINTED if hinted else Due.TIME
