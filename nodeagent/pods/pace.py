"""When to look again: at once when asked to, soon after a hint, and at a regular time otherwise.

Hints come in bursts, so they are collected for a moment; and looking takes at most a small part of
the time, however many there are. All times are the running loop's.
"""

from __future__ import annotations

import asyncio
from enum import Enum

COLLECT_S = 0.05
_REST = 5.0  # hints are left alone for so many times what the last look took,
_LONGEST_REST_S = 1.0  # but not longer than this


class Due(Enum):
    ASKED = "asked"
    HINTED = "hinted"
    TIME = "time"


class Pace:
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
