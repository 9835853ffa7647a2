"""The event loop's time for parsing what clients send, shared among them.

In one turn the loop reads all sockets that are ready, so without a bound a turn would take as long
as the bytes of all of an attacker's connections. Of each 10 ms an owner gets 2, with what it left
of the 10 before, and all together 4, but whoever sends little need not wait for who sends much.
What is more waits, unparsed: owners come in rotation, with a slice of one of their connections in a
turn of the loop. Decrypting is charged as well. A slice may take longer than all that, as some
handshakes do: it is paid in the windows after it. An intake that fills pauses goes beyond that
while the loop has nothing else to do. Knows neither HTTP nor requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

WINDOW_S = 0.010
OWN_S = 0.002  # of a window, for one owner: twice that is a handshake and the request after it
ALL_S = 0.004
LITTLE_S = 0.0003  # of one owner: a few requests
_OWED_S = 2 * OWN_S  # at which an owner waits: with what it left of the window before
MOST_OWED_S = 0.020  # what takes longer is mostly a machine that stood still
LOOK_S = 0.001  # until the next look whether the loop has a pause


class Receiver(Protocol):
    """Has received bytes that are not parsed yet; they belong to `payer`."""

    @property
    def payer(self) -> object:
        """Whoever shares the time of one owner."""

    def parse_slice(self) -> bool:
        """Parse a bounded piece; whether there is more that may be parsed now."""

    def hold(self) -> None:
        """More is not received until `release`."""

    def release(self) -> None:
        """All is parsed that may be."""


class Intake:
    """Parses in its own time: `take` returns at once, with all parsed or the receiver held."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, fills_pauses: bool = False) -> None:
        self._loop: Any = loop
        self._fills_pauses = fills_pauses
        self._end_s = 0.0  # of the window
        self._owed_s: dict[object, float] = {}  # by owner: used, less its part of each window
        self._all_s = 0.0  # used in the window
        self._ever_s = 0.0
        self._waiting: dict[object, deque[Receiver]] = {}  # by owner; the next one first
        self._going_on: asyncio.Handle | None = None

    def take(self, receiver: Receiver) -> None:
        """Parse what it has received, or as much as there is time for; the rest in its turn."""
        owner, now_s = receiver.payer, self._loop.time()
        if now_s >= self._end_s:
            self._begin(now_s)
        is_pause = self._is_pause()
        while owner not in self._waiting and (is_pause or self._has_time(owner)):
            if not self._parse(owner, receiver, is_pause=is_pause):
                receiver.release()
                return
        receiver.hold()
        self._wait(owner, receiver)

    def _begin(self, now_s: float) -> None:
        paid_s = OWN_S * (1 + (now_s - self._end_s) // WINDOW_S)
        self._owed_s = {who: owed - paid_s for who, owed in self._owed_s.items() if owed > paid_s}
        self._end_s = now_s + WINDOW_S
        self._all_s = 0.0

    def _is_pause(self) -> bool:
        """Nobody else has anything to do in this turn of the loop."""
        return self._fills_pauses and not self._loop._ready

    def _has_time(self, owner: object) -> bool:
        return self._owed_s.get(owner, 0.0) < (_OWED_S if self._all_s < ALL_S else LITTLE_S)

    def _parse(self, owner: object, receiver: Receiver, *, is_pause: bool) -> bool:
        """What another receiver takes for what comes out of a slice is charged there; a pause is
        charged to its owner only.
        """
        began_s, before_s = self._loop.time(), self._ever_s
        more = receiver.parse_slice()
        seconds = self._loop.time() - began_s - (self._ever_s - before_s)
        owed_s = self._owed_s.get(owner, 0.0)
        if is_pause:
            self._owed_s[owner] = max(owed_s, min(owed_s + seconds, _OWED_S))
        else:
            self._owed_s[owner] = min(owed_s + seconds, MOST_OWED_S)
            self._all_s += seconds
        self._ever_s += seconds
        return more

    def _wait(self, owner: object, receiver: Receiver) -> None:
        self._waiting.setdefault(owner, deque()).append(receiver)
        if self._going_on is None:
            self._going_on = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Parse one slice of whoever is next; then it is the turn of everything else."""
        self._going_on = None
        is_pause, began_s = self._is_pause(), self._loop.time()
        if began_s >= self._end_s:
            self._begin(began_s)
        owner = next((owner for owner in self._waiting if is_pause or self._has_time(owner)), None)
        if owner is None:
            if self._waiting:
                next_s = began_s + LOOK_S if self._fills_pauses else self._end_s
                self._going_on = self._loop.call_at(min(next_s, self._end_s), self._go_on)
            return
        receivers = self._waiting.pop(owner)
        receiver = receivers.popleft()
        if receivers:
            self._waiting[owner] = receivers
        if self._waiting:
            self._going_on = self._loop.call_soon(self._go_on)
        if self._parse(owner, receiver, is_pause=is_pause):
            self._wait(receiver.payer, receiver)
        else:
            receiver.release()
