"""The event half of the fake runtime: whoever listens is told of every change.

`silent` drops what would be told, `break_events` ends every stream that is open, with an error or
without; `fail("events", …)` refuses new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from nodeagent.runtime.base import ContainerEvent, EventKind
from tests.fakes.runtime_faults import CallFaults
from tests.fakes.runtime_images import EPOCH_NS

_End = Exception | None


class FakeEvents(CallFaults):
    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self._listeners: list[asyncio.Queue[ContainerEvent | _End]] = []

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def tell(self, subject: str, kind: EventKind) -> None:
        if not self.silent:
            self._put(ContainerEvent(subject, kind, EPOCH_NS))

    def break_events(self, error: Exception | None = None) -> None:
        self._put(error)

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        await self.begin("events")
        told: asyncio.Queue[ContainerEvent | _End] = asyncio.Queue()
        self._listeners.append(told)
        try:
            while isinstance(event := await told.get(), ContainerEvent):
                yield event
            if event:
                raise event
        finally:
            self._listeners.remove(told)

    def _put(self, item: ContainerEvent | _End) -> None:
        for told in self._listeners:
            told.put_nowait(item)
