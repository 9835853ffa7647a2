"""Writes of many streams done together: once in a turn of the event loop, or a little later.

A stream that was written to a moment ago waits for more to come, since a write over TLS costs more
than all else of an event; one that was silent is written to at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

GATHER_S = 0.012  # how long what is to be written waits for more

Write = Callable[[], None]


class Gathering:
    """One timer for all streams; a write must not raise."""

    def __init__(self) -> None:
        self._soon: dict[Write, None] = {}
        self._later: dict[Write, None] = {}

    def soon(self, write: Write) -> None:
        """Call it after this turn's other work."""
        if not self._soon:
            asyncio.get_running_loop().call_soon(self._write_soon)
        self._soon[write] = None

    def later(self, write: Write) -> None:
        """Call it within GATHER_S."""
        if not self._later:
            asyncio.get_running_loop().call_later(GATHER_S, self._write_later)
        self._later[write] = None

    def forget(self, write: Write) -> None:
        self._soon.pop(write, None)
        self._later.pop(write, None)

    def _write_soon(self) -> None:
        writes, self._soon = self._soon, {}
        for write in writes:
            write()

    def _write_later(self) -> None:
        writes, self._later = self._later, {}
        for write in writes:
            write()
