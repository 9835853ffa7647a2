"""Limits on the connections of a listener, in all and per address, and the TLS handshake.

A connection counts from the moment it is accepted, handshake included, so that clients which open
TLS and send nothing cannot use up the memory of the process. Knows nothing of requests.
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
_MAX_SCANNED = 64  # connections, in search of an idle one: an accept must stay cheap


class OpenConnection(Protocol):
    """A connection as its limit sees it."""

    @property
    def is_idle(self) -> bool:
        """No request is in flight: closing it costs the client a new dial, no more."""

    def drop(self) -> None:
        """Cut it at once, which also releases its place."""


class ConnectionLimit:
    """The open connections, by address; at a limit an idle connection makes room for a new one.

    The oldest idle connection is cut: of the same address when that is at its limit, else of the
    address with the most. So clients that connect and send nothing neither use up memory nor keep
    others out. While every connection is busy, new ones are refused.
    """

    def __init__(self, name: str, *, limit: int, limit_per_address: int) -> None:
        self.open = 0
        self.refused = 0
        self.shed = 0
        self.handshakes: set[asyncio.Task[None]] = set()
        self._name = name
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._open: dict[str, dict[OpenConnection, None]] = {}  # by address, oldest first
        self._full = OnceLog(log)

    def admit(self, address: str, connection: OpenConnection) -> bool:
        """Count one more connection of an address, or refuse it."""
        if not self._has_room(address):
            self.refused += 1
            self._log_full("refuses connections", address)
            return False
        self.open += 1
        self._open.setdefault(address, {})[connection] = None
        return True

    def release(self, address: str, connection: OpenConnection) -> None:
        connections = self._open[address]
        del connections[connection]
        self.open -= 1
        if not connections:
            del self._open[address]
        if self.open < self._limit_per_address * 0.9:
            text = "%s has room again: %d connections are open"
            self._full.recovered(text, self._name, self.open)

    def _has_room(self, address: str) -> bool:
        same_address = self._open.get(address, {})
        if len(same_address) >= self._limit_per_address:
            return self._make_room(same_address, address)
        if self.open >= self._limit:
            return self._make_room(max(self._open.values(), key=len), address)
        return True

    def _make_room(self, connections: Mapping[OpenConnection, None], address: str) -> bool:
        idle = next((c for c in islice(connections, _MAX_SCANNED) if c.is_idle), None)
        if idle is None:
            return False
        self._log_full("cuts connections without a request to make room", address)
        self.shed += 1
        idle.drop()
        return True

    def _log_full(self, action: str, address: str) -> None:
        same_address = len(self._open.get(address, ()))
        self._full.failed(
            "%s %s: %d are open, %d of them from %s",
            self._name, action, self.open, same_address, address, cause="full",
        )  # fmt: skip


class AcceptedSocket(asyncio.Protocol):
    """The first protocol of an accepted socket; hands it to a Connection or closes it."""

    def __init__(
        self,
        limit: ConnectionLimit,
        make_connection: Callable[[], Connection],
        context: ssl.SSLContext | None,
    ) -> None:
        self._limit = limit
        self._make_connection = make_connection
        self._context = context

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream server's
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        connection = self._make_connection()
        if not self._limit.admit(address, connection):
            transport.abort()
            return
        connection.on_end = lambda: self._limit.release(address, connection)
        connection.socket = transport
        accepted = transport.get_extra_info("socket")
        tcp.notice_dead_peer(accepted)
        tcp.limit_unsent(accepted)
        if self._context is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
        else:
            transport.pause_reading()  # the ClientHello is for TLS to read
            handshake = loops.spawn(
                self._secure(transport, connection, self._context), name=f"handshake {address}"
            )
            self._limit.handshakes.add(handshake)
            handshake.add_done_callback(self._limit.handshakes.discard)

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
