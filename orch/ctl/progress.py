"""How long something has been going on, on the terminal's last line; nothing anywhere else."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from orch.component.process import loops
from orch.ctl.failures import visible

_INTERVAL_S = 0.2
_CLEAR = "\r\x1b[K"


class Watch:
    """`finish` tells how long it took, and what came of it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._begin_s = asyncio.get_running_loop().time()
        self._end_s = self._begin_s

    def stop(self) -> None:
        self._end_s = asyncio.get_running_loop().time()

    def finish(self, outcome: str) -> None:
        """Say it on standard error: standard output is for what scripts read."""
        took = f"{self._end_s - self._begin_s:.1f} s"
        shown = ", ".join(part for part in (outcome, took) if part)
        print(visible(f"{self._what}: done, {shown}"), file=sys.stderr)

    async def show(self) -> None:
        """For ever: a line that counts the seconds."""
        loop = asyncio.get_running_loop()
        while True:
            line = visible(f"{self._what}: {loop.time() - self._begin_s:.0f} s")
            print(f"{_CLEAR}{line}", end="", file=sys.stderr, flush=True)
            await asyncio.sleep(_INTERVAL_S)


@contextlib.asynccontextmanager
async def shown(what: str) -> AsyncIterator[Watch]:
    """Count the seconds on a terminal while the body runs."""
    watch = Watch(what)
    on_terminal = sys.stderr.isatty()
    counting = [loops.spawn(watch.show(), name="progress")] if on_terminal else []
    try:
        yield watch
    finally:
        watch.stop()
        await loops.cancel(*counting)
        if on_terminal:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
