"""A loop that runs beside the monitor: a defect in it ends neither the monitor nor the term.

It is begun again after growing pauses, each defect is logged once with its traceback, and a health
check fails until the loop has lasted for a while: one that is broken for good does not stay unseen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from orch.component.diagnostics.health import CheckFailed
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
WELL_S = 120.0  # without a defect: the loop counts as mended


class SideLoop:
    """`name` is what the loop does, as in "the binding of pods"."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failed_s: float | None = None  # the loop's time of the last defect
        self._failures = OnceLog(log, logging.ERROR)

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, which never ends by itself, until cancelled."""
        backoff = Backoff(FIRST_PAUSE_S, 2.0, LAST_PAUSE_S)
        self._failed_s = None
        while True:
            began_s = _time()
            try:
                await work()
            except Exception as error:  # the nodes are judged by the same program
                text = "%s is interrupted by a defect here; it is begun again"
                self._failures.failed(text, self._name, cause=repr(error), error=error)
            else:
                self._failures.failed("%s has ended; it is begun again", self._name)
            self._failed_s = _time()
            if self._failed_s - began_s > WELL_S:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def check(self) -> None:
        """CheckFailed when the last defect is recent."""
        if self._failed_s is not None and _time() - self._failed_s < WELL_S:
            raise CheckFailed(f"{self._name} was interrupted by a defect, see the log")


def _time() -> float:
    return asyncio.get_running_loop().time()
