"""The door of a listener: how many connections it holds, and TLS before anything else is read.

A connection counts from the moment it is accepted, handshake included, so that clients which open
TLS and say nothing cannot use up the memory of the process. One address gets at most its share.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Protocol

from orch.component.http import tcp
from orch.component.http.connection import Connection
from orch.component.process import loops
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
_LOOKED_AT = 64  # connections, for one that is idle: an accept must stay cheap


class Guest(Protocol):
    """A connection as the door sees it."""

    @property
    def is_idle(self) -> bool:
        """No request is under way: nothing is lost but a new dial."""

    def drop(self) -> None:
        """Cut it at once, and have `leave` called."""


class Admission:
    """The open connections; asked at each accept, told at each end.

    Where there is no room, the oldest connection without a request gives its place: of the same
    address when that has its share, else of the address with most. So that clients which connect
    and say nothing can neither use up memory nor keep others out. Refused is who comes while every
    place is at work.
    """

    def __init__(self, name: str, *, limit: int, limit_per_address: int) -> None:
        self.open = 0
        self.refused = 0
        self.shed = 0
        self.handshakes: set[asyncio.Task[None]] = set()
        self._name = name
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._guests: dict[str, dict[Guest, None]] = {}  # by address, oldest first
        self._crowding = OnceLog(log)

    def admit(self, address: str, guest: Guest) -> bool:
        """Let one more connection of an address in, or refuse it."""
        if not self._has_room(address):
            self.refused += 1
            self._tell("refuses connections", address)
            return False
        self.open += 1
        self._guests.setdefault(address, {})[guest] = None
        return True

    def leave(self, address: str, guest: Guest) -> None:
        guests = self._guests[address]
        del guests[guest]
        self.open -= 1
        if not guests:
            del self._guests[address]
        if self.open < self._limit_per_address * 0.9:
            text = "%s has room again: %d connections are open"
            self._crowding.recovered(text, self._name, self.open)

    def _has_room(self, address: str) -> bool:
        mine = self._guests.get(address, {})
        if len(mine) >= self._limit_per_address:
            return self._make_room(mine, address)
        if self.open >= self._limit:
            return self._make_room(max(self._guests.values(), key=len), address)
        return True

    def _make_room(self, guests: Mapping[Guest, None], address: str) -> bool:
        idle = next((guest for guest in islice(guests, _LOOKED_AT) if guest.is_idle), None)
        if idle is None:
            return False
        self._tell("cuts connections without a request to make room", address)
        self.shed += 1
        idle.drop()
        return True

    def _tell(self, what: str, address: str) -> None:
        mine = len(self._guests.get(address, ()))
        self._crowding.failed(
            "%s %s: %d are open, %d of them from %s",
            self._name, what, self.open, mine, address, cause="full",
        )  # fmt: skip


class Gate(asyncio.Protocol):
    """The first protocol of an accepted socket; hands it to a Connection or closes it."""

    def __init__(
        self,
        admission: Admission,
        make_connection: Callable[[], Connection],
        context: ssl.SSLContext | None,
    ) -> None:
        self._admission = admission
        self._make_connection = make_connection
        self._context = context

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream server's
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        connection = self._make_connection()
        if not self._admission.admit(address, connection):
            transport.abort()
            return
        connection.on_end = lambda: self._admission.leave(address, connection)
        connection.cut = transport.abort
        tcp.notice_dead_peer(transport.get_extra_info("socket"))
        if self._context is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
        else:
            transport.pause_reading()  # the hello belongs to TLS
            handshake = loops.spawn(
                self._secure(transport, connection, self._context), name=f"handshake {address}"
            )
            self._admission.handshakes.add(handshake)
            handshake.add_done_callback(self._admission.handshakes.discard)

    async def _secure(
        self, transport: asyncio.Transport, connection: Connection, context: ssl.SSLContext
    ) -> None:
        secured: asyncio.Transport | None = None
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                connection,
                context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
        except OSError as error:
            log.debug("no TLS with %s: %s", transport.get_extra_info("peername"), error)
        finally:
            if secured is None:
                transport.abort()
                connection.end()
        if secured is not None and not connection.ended:
            connection.connection_made(secured)
