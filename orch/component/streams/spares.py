"""Connections that are open before they are asked for: one to each server behind that is in use.

An upgrade takes its connection for itself, so a handshake would be due at each. A spare has carried
nothing of anybody's, and is taken only for exactly the destination that it was opened for, TLS
context included. One that shows any sign of life or death is not used: so nothing was sent when
another is dialled instead. They are few, and age.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
from collections.abc import Iterator

from orch.component.http import tcp
from orch.component.http.intake import Intake
from orch.component.process import loops
from orch.component.streams import upstream
from orch.component.streams.upstream import (
    Agreement,
    Destination,
    Headers,
    Unreachable,
    Upstream,
)

log = logging.getLogger(__name__)

KEPT_S = 30.0  # less than a server leaves a connection idle
MAX_SPARES = 64
_BEGUN_S = 1.0
_SOON_S = 0.05


class Spares:
    """`dial` does as that of `upstream`; `kept_for` opens the next one; `close` at the end."""

    def __init__(self) -> None:
        self._open: dict[Destination, Upstream] = {}  # the oldest first
        self._opening: dict[Destination, asyncio.Task[None]] = {}
        self._closed = False
        self._intake: Intake | None = None  # of what all those servers send

    async def dial(self, to: Destination, method: str, target: str, headers: Headers) -> Agreement:
        """Over the spare if there is one."""
        over = await self._take(to) or await self._connect(to)
        return await upstream.dial(to, method, target, headers, over=over)

    @contextlib.contextmanager
    def kept_for(self, to: Destination) -> Iterator[None]:
        """Open a spare when what is done within it has ended, or lasts: not while it begins."""
        timer = asyncio.get_running_loop().call_later(_BEGUN_S, self._prepare, to)
        try:
            yield
        finally:
            timer.cancel()
            self._prepare(to)

    def _prepare(self, to: Destination) -> None:
        known = to in self._open or to in self._opening
        if not (known or self._closed or len(self._opening) >= MAX_SPARES):
            opening = loops.spawn(self._add(to), name="open a spare connection")
            self._opening[to] = opening
            opening.add_done_callback(lambda _: self._opening.pop(to, None))

    async def _take(self, to: Destination) -> Upstream | None:
        if opening := self._opening.get(to):
            await asyncio.wait((opening,), timeout=_SOON_S)  # sooner there than a new one
        spare = self._open.pop(to, None)
        if spare is None or _is_quiet(spare):
            return spare
        tcp.abort(spare.transport)
        return None

    async def _connect(self, to: Destination) -> Upstream:
        if self._intake is None:
            self._intake = Intake(asyncio.get_running_loop(), fills_pauses=True)
        return await upstream.connect(to, self._intake)

    async def _add(self, to: Destination) -> None:
        try:
            spare = await self._connect(to)
        except Unreachable as error:
            log.debug("no spare connection to %s:%d: %s", to.host, to.port, error)
            return
        while len(self._open) >= MAX_SPARES:
            oldest = next(iter(self._open))
            self._drop(oldest, self._open[oldest])
        self._open[to] = spare
        asyncio.get_running_loop().call_later(KEPT_S, self._drop, to, spare)

    def _drop(self, to: Destination, spare: Upstream | None) -> None:
        """Nothing if it has been taken."""
        if spare is not None and self._open.get(to) is spare:
            del self._open[to]
            tcp.abort(spare.transport)

    async def close(self) -> None:
        """End those that nobody took, and open no others."""
        self._closed = True
        await loops.cancel(*self._opening.values())
        for to, spare in list(self._open.items()):
            self._drop(to, spare)


def _is_quiet(spare: Upstream) -> bool:
    """Nothing has come, and nothing waits to be read: neither bytes nor the end."""
    transport = spare.transport
    if transport is None or transport.is_closing() or spare.received:
        return False
    waiting = select.poll()
    with contextlib.suppress(OSError, ValueError):
        waiting.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not waiting.poll(0)
    return False
