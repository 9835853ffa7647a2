"""Two connections joined: what one sends the other gets, in order, with little kept in between.

A side that does not take what it is sent stops the other side's reading, so both buffers stay at
what the transports hold. When a side ends, the other still gets what is on its way, and is then
closed; of a client that was reset nothing more is passed on. Knows bytes only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from orch.component.http import tcp
from orch.component.http.slow_clients import STALL_S
from orch.component.process.loops import Backoff

LINGER_S = 300.0  # for what is on its way when the other side has ended
_LOOK_S, _LAST_LOOK_S = 0.01, 1.0  # at whether it has arrived: ever less often
HELD_BYTES = 64 * 1024  # about, by the side that its client does not see


class Source(Protocol):
    """What is read."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


@dataclass(slots=True)
class _Side:
    """What a splice knows of one of its two connections."""

    transport: asyncio.Transport
    source: Source
    is_half_closed: bool = False  # it has sent its last
    is_lost: bool = False
    is_full: bool = False  # it does not take what it is sent


class End(asyncio.Protocol):
    """The protocol of one side's transport."""

    def __init__(self, splice: Splice, number: int) -> None:
        self._splice = splice
        self._number = number

    def data_received(self, data: bytes) -> None:
        self._splice.received(self._number, data)

    def eof_received(self) -> bool:
        return self._splice.side_ended(self._number)

    def pause_writing(self) -> None:
        self._splice.side_is_full(self._number, full=True)

    def resume_writing(self) -> None:
        self._splice.side_is_full(self._number, full=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._splice.side_lost(self._number, was_reset=exc is not None)


CLIENT, UPSTREAM = 0, 1


class Splice:
    """`ends` are to become the protocols of the two transports, client and upstream; `source` is
    what the client's bytes come from, if not its transport.

    `run` returns when both are closed. It is cut when nothing was sent for `idle_s` seconds, unless
    that is 0.
    """

    def __init__(
        self,
        client: asyncio.Transport,
        upstream: asyncio.Transport,
        *,
        idle_s: float,
        source: Source | None = None,
    ) -> None:
        self.ends = End(self, CLIENT), End(self, UPSTREAM)
        self.why = ""  # it ended, for the log
        self.admit: Callable[[bytes], bytes] | None = None  # of what the client sends, what passes
        self._sides = _Side(client, source or client), _Side(upstream, upstream)
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._used_s = self._loop.time()
        self._timer = self._loop.call_later(idle_s, self._look_for_use) if idle_s else None
        self._over = asyncio.Event()

    async def run(self, *, unsent_bytes: Callable[[], int]) -> None:
        """Carry until a side has ended; `unsent_bytes` tells what still waits for the client."""
        try:
            await self._over.wait()
            await self._deliver(unsent_bytes)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for side in self._sides:
                side.transport.close()

    async def _deliver(self, unsent_bytes: Callable[[], int]) -> None:
        """Wait until both sides have what is on its way to them."""
        client, upstream = self._sides
        until_s, moved_s, left_bytes = self._loop.time() + LINGER_S, 0.0, 0
        looks = Backoff(_LOOK_S, 1.5, _LAST_LOOK_S)
        while (now_s := self._loop.time()) < until_s:
            before_bytes = left_bytes
            left_bytes = 0 if upstream.is_lost else upstream.transport.get_write_buffer_size()
            moved_s = moved_s if left_bytes == before_bytes else now_s
            if not left_bytes and (client.is_lost or unsent_bytes() <= 0):
                return
            if client.is_lost and now_s > moved_s + STALL_S:
                break
            await asyncio.sleep(looks.next())
        tcp.abort(client.transport)
        tcp.reset(upstream.transport)

    def resume(self) -> None:
        """Begin to read the upstream."""
        if not self._sides[CLIENT].is_full:
            _set_reading(self._sides[UPSTREAM], paused=False)

    def cut(self, why: str) -> None:
        """End it: both sides get what is on its way to them, and are closed."""
        self.why = self.why or why
        self._over.set()

    def received(self, number: int, data: bytes) -> None:
        other = self._sides[1 - number]
        if self._over.is_set() or other.is_lost or other.transport.is_closing():
            return
        self._used_s = self._loop.time()
        if number == CLIENT and self.admit is not None:
            data = self.admit(data)
        other.transport.write(data)

    def side_ended(self, number: int) -> bool:
        """It sends no more; True: it may still be sent to."""
        side, other = self._sides[number], self._sides[1 - number]
        side.is_half_closed = True
        halves = side.transport.can_write_eof() and other.transport.can_write_eof()
        if other.is_half_closed or not halves:
            self.cut(f"{_NAMES[number]} ended it")
        else:
            other.transport.write_eof()
        return side.transport.can_write_eof()

    def side_lost(self, number: int, *, was_reset: bool = False) -> None:
        self._sides[number].is_lost = True
        if was_reset and number == CLIENT:
            tcp.reset(self._sides[UPSTREAM].transport)
        # It may take the rest only once its own is read, which goes nowhere.
        _set_reading(self._sides[1 - number], paused=False)
        self.cut(f"{_NAMES[number]} ended it")

    def side_is_full(self, number: int, *, full: bool) -> None:
        """Stop or go on reading from the other."""
        self._sides[number].is_full = full
        _set_reading(self._sides[1 - number], paused=full)

    def _look_for_use(self) -> None:
        due_s = self._used_s + self._idle_s
        if due_s <= self._loop.time():
            self.cut(f"nothing was sent for {self._idle_s:g} s")
        else:
            self._timer = self._loop.call_at(due_s, self._look_for_use)


_NAMES = ("the client", "the server behind")


def _set_reading(side: _Side, *, paused: bool) -> None:
    if side.is_lost or side.transport.is_closing():
        return
    if paused:
        side.source.pause_reading()
    else:
        side.source.resume_reading()
