"""Listens to what the runtime tells by itself, and says whether it can be relied on.

A stream that breaks is opened again with growing delays; a runtime that has none is asked again
now and then, because it may be upgraded. What an event means is the listener's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from nodeagent.runtime.base import (
    ContainerEvent,
    ContainerRuntime,
    RuntimeCallError,
    RuntimeNotSupported,
)
from orch.component.loops import Backoff

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
        self._trouble: str | None = None  # None: nothing was said yet
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
        self._trouble = ""
        self._on_turn()

    def _broke(self, trouble: str) -> None:
        if trouble != self._trouble and (self.healthy or not self._trouble):
            log.info("%s: listing its containers every second", trouble)
        self._trouble = trouble
        if self.healthy:
            self.healthy = False
            self._on_turn()
