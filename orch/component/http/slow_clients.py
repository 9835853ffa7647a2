"""Clients that do not take their answers: bounded in time, and in the bytes that wait for them.

A connection is slow from the moment its write buffer is full until the client has taken it. A slow
one that takes nothing for 30 s is cut, and so are the slowest of a user, or of all, for whom too
much waits. A patient one, whose reader may have paused on purpose, is kept for a day where little
waits. Knows buffers, neither requests nor what is sent.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import NamedTuple, Protocol

from orch.component.process.daemon import return_freed_memory
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

STALL_S = 30.0  # for some 200 kB: 7 kB/s, which a modem manages
PATIENCE_S = 24 * 3600.0
GRACE_S = 1.0  # a busy client is no slow one
_MIB = 1024 * 1024
PATIENT_BYTES_OF_USER = 8 * _MIB  # some 20 logs
PATIENT_SHARE = 1 / 4  # of what may wait for all
MAX_BYTES = 256 * _MIB
MAX_BYTES_OF_USER = 64 * _MIB
_WORTH_RETURNING_BYTES = 16 * _MIB


class SlowConnection(Protocol):
    """A connection as this account sees it; `owner` asked last, None while that is unknown.

    `is_patient`: a person reads, such as a log in a pager.
    """

    owner: object
    is_patient: bool

    @property
    def waiting_bytes(self) -> int:
        """What is kept in memory until the client takes it."""

    def drop(self) -> None:
        """Cut it at once."""


class _Stall(NamedTuple):
    user: object
    size: int
    since_s: float


class SlowClients:
    """The slow connections of a listener, and the bytes that wait for each user.

    Over `max_bytes` the user with the most loses their slowest connection at once, over
    `max_bytes_of_user` after a second.
    """

    def __init__(
        self,
        name: str,
        *,
        max_bytes: int = MAX_BYTES,
        max_bytes_of_user: int = MAX_BYTES_OF_USER,
    ) -> None:
        self.waiting_bytes = 0
        self.cut = 0
        self._name = name
        self._max_bytes = max_bytes
        self._max_bytes_of_user = max_bytes_of_user
        self._stalls: dict[SlowConnection, _Stall] = {}  # longest first
        self._bytes: dict[object, int] = {}
        self._freed_bytes = 0  # by clients that were slow for longer than a moment
        self._timer: asyncio.TimerHandle | None = None
        self._log = OnceLog(log)

    def stalled(self, connection: SlowConnection) -> None:
        """The write buffer of a connection is full."""
        loop = asyncio.get_running_loop()
        stall = _Stall(connection.owner, connection.waiting_bytes, loop.time())
        self._stalls[connection] = stall
        self._count(stall.user, stall.size)
        while self.waiting_bytes > self._max_bytes:
            self._cut_slowest(max(self._bytes, key=self._bytes.__getitem__))
        if self._timer is None:
            self._set_timer(loop)

    def resumed(self, connection: SlowConnection) -> None:
        """The client has taken what waited, or is gone; no-op for others."""
        stall = self._stalls.pop(connection, None)
        if stall is None:
            return
        self._count(stall.user, -stall.size)
        if asyncio.get_running_loop().time() - stall.since_s > GRACE_S:
            self._freed_bytes += stall.size

    def cut_all(self) -> None:
        """Cut whoever was slow for a second: memory is short."""
        self._cut_since(asyncio.get_running_loop().time() - GRACE_S)

    def _count(self, user: object, size: int) -> None:
        self.waiting_bytes += size
        left = self._bytes[user] = self._bytes.get(user, 0) + size
        if not left:
            del self._bytes[user]

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._cut_since(now_s - STALL_S, keep_patient_since_s=now_s - PATIENCE_S)
        greedy = [user for user, size in self._bytes.items() if size > self._max_bytes_of_user]
        for user in greedy:
            while self._bytes.get(user, 0) > self._max_bytes_of_user:
                if not self._cut_slowest(user, now_s - GRACE_S):
                    break
        if self._freed_bytes > _WORTH_RETURNING_BYTES:
            self._freed_bytes = 0
            return_freed_memory()  # it would stay with the process, in pieces
        self._timer = None
        if self._stalls:
            self._set_timer(asyncio.get_running_loop())
        else:
            self._log.recovered(
                "%s has no slow clients any more: %d were cut", self._name, self.cut
            )

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a context of its own: it has nothing to do with the request that is slow just now."""
        self._timer = loop.call_later(GRACE_S, self._look, context=Context())

    def _cut_since(self, since_s: float, *, keep_patient_since_s: float = float("inf")) -> None:
        for connection, stall in tuple(self._stalls.items()):
            if stall.since_s > since_s:
                return
            is_kept = connection.is_patient and stall.since_s > keep_patient_since_s
            if not is_kept or not self._is_little(stall.user):
                self._cut(connection)

    def _is_little(self, user: object) -> bool:
        much = self.waiting_bytes > self._max_bytes * PATIENT_SHARE
        return not much and self._bytes[user] <= PATIENT_BYTES_OF_USER

    def _cut_slowest(self, user: object, since_s: float = float("inf")) -> bool:
        """Cut the user's slowest connection, if it was slow at `since_s`."""
        for connection, stall in self._stalls.items():
            if stall.since_s > since_s:
                return False
            if stall.user == user:
                self._cut(connection)
                return True
        return False

    def _cut(self, connection: SlowConnection) -> None:
        user = self._stalls[connection].user
        self._log.failed(
            "%s cuts clients that do not take their answers: %d kB wait for %r",
            self._name, self._bytes[user] // 1000, getattr(user, "name", user), cause="slow",
        )  # fmt: skip
        self.cut += 1
        self.resumed(connection)
        connection.drop()
