"""The door of a listener: how many connections it holds, and TLS before anything else is read.

A connection counts from the moment it is accepted, handshake included, so that clients which open
TLS and say nothing cannot use up the memory of the process. One address gets at most its share.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable

from orch.component import loops, tcp
from orch.component.connection import Connection

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0


class Admission:
    """Counts of open connections; asked at each accept, told at each end."""

    def __init__(self, name: str, *, limit: int, limit_per_address: int) -> None:
        self.open = 0
        self.refused = 0
        self.handshakes: set[asyncio.Task[None]] = set()
        self._name = name
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._per_address: Counter[str] = Counter()
        self._refusing = False

    def admit(self, address: str) -> bool:
        """Count one more connection of an address, or refuse it."""
        full = self.open >= self._limit
        if full or self._per_address[address] >= self._limit_per_address:
            self.refused += 1
            if not self._refusing:
                self._refusing = True
                log.warning(
                    "%s refuses connections: %d are open, %d of them from %s",
                    self._name, self.open, self._per_address[address], address,
                )  # fmt: skip
            return False
        self.open += 1
        self._per_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        self.open -= 1
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]
        if self._refusing and self.open < self._limit * 0.9:
            self._refusing = False
            log.info("%s takes connections again: %d are open", self._name, self.open)


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
        if not self._admission.admit(address):
            transport.abort()
            return
        tcp.notice_dead_peer(transport.get_extra_info("socket"))
        connection = self._make_connection()
        connection.on_end = lambda: self._admission.leave(address)
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
