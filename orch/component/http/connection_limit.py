"""Limits on the connections of a listener, in all, per network and per owner, and the handshakes.

A connection counts from the moment it is accepted, handshake included, so that clients which open
TLS and send nothing cannot use up the memory of the process. A network is an IPv4 address or the
first 64 bits of an IPv6 address, which one host can have to itself; an owner is whoever sends
requests. Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import ssl
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Protocol

from orch.component import certificates
from orch.component.http import tcp
from orch.component.http.connection import Connection, Rank
from orch.component.http.fair_queue import Bounds, FairQueue, Flow
from orch.component.http.paced_socket import PacedSocket
from orch.component.process import loops
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
HANDSHAKES_PER_TURN = 1  # of the event loop: it takes a millisecond or two
HANDSHAKE_BYTES = 24 * 1024  # of the client: 80 kB of certificates took 50 ms
KEPT_PER_OWNER = 16
_OWNER_SHARE = 1 / 8  # of all connections
_MAX_SCANNED = 64  # connections, in search of an idle one: an accept must stay cheap


class OpenConnection(Protocol):
    """A connection as its limit sees it."""

    owner: object
    rank: Rank

    @property
    def is_idle(self) -> bool:
        """No request is in flight: closing it costs the client a new dial, no more."""

    def drop(self) -> None:
        """Cut it at once, which also releases its place."""


Connections = dict[OpenConnection, None]  # the oldest first


class _Network:
    """The connections from one network, by rank."""

    def __init__(self) -> None:
        self.ranks: tuple[Connections, ...] = tuple({} for _ in Rank)
        self.handshakes = Flow()

    def __len__(self) -> int:
        return sum(map(len, self.ranks))

    def put(self, connection: OpenConnection, rank: Rank) -> None:
        self.ranks[connection.rank].pop(connection, None)
        self.ranks[rank][connection] = None
        connection.rank = rank


class ConnectionLimit:
    """The open connections, by network; at a limit an idle connection makes room for a new one.

    The oldest idle connection of the lowest rank is cut: of the same network when that is at its
    limit, else of the network with the most. So clients that connect and send nothing neither use
    up memory nor keep others out. While every connection is busy, new ones are refused.
    """

    def __init__(self, name: str, *, limit: int, limit_per_address: int) -> None:
        self.open = 0
        self.refused = 0
        self.shed = 0
        self.handshakes: set[asyncio.Task[None]] = set()
        self._name = name
        self._set(limit, limit_per_address)
        self._open: dict[str, _Network] = {}
        self._owned: dict[object, Connections] = {}
        self._emptied = asyncio.Event()
        self._starts = FairQueue(
            Bounds(starts_per_turn=HANDSHAKES_PER_TURN, wait_s=HANDSHAKE_TIMEOUT_S)
        )
        self._full = OnceLog(log)
        self._refusals = OnceLog(log)  # of client certificates

    def restrict(self, limit: int) -> None:
        """Allow no more than this many, and half of them per network."""
        if limit < self._limit:
            self._set(limit, min(self._limit_per_address, max(limit // 2, 1)))

    def _set(self, limit: int, limit_per_address: int) -> None:
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._limit_per_owner = max(int(limit * _OWNER_SHARE), 1)
        # Cutting a single connection is not yet room again.
        self._roomy = max(min(limit_per_address * 0.9, limit_per_address - 1), 1)

    def admit(self, network: str, connection: OpenConnection) -> bool:
        """Count one more connection from a network, or refuse it."""
        if not self._has_room(network):
            self.refused += 1
            self._log_full("refuses connections", network)
            return False
        self.open += 1
        self._emptied.clear()
        self._open.setdefault(network, _Network()).put(connection, Rank.STRANGER)
        return True

    def claim(self, network: str, connection: OpenConnection, owner: object, rank: Rank) -> bool:
        """Make it the owner's; False if all that one owner may have are busy."""
        here = self._open.get(network)
        if here is None or connection not in here.ranks[connection.rank]:
            return True  # it has just ended
        full = len(self._owned.get(owner, ())) >= self._limit_per_owner
        if full and rank is not Rank.PRIVILEGED:
            idle = _oldest_idle(self._owned[owner])
            if idle is None:
                return False
            idle.drop()
        self._disown(connection)
        owned = self._owned.setdefault(owner, {})
        owned[connection] = None
        connection.owner = owner
        many = rank is Rank.KEPT and len(owned) > KEPT_PER_OWNER
        here.put(connection, Rank.USER if many else rank)
        return True

    def release(self, network: str, connection: OpenConnection) -> None:
        here = self._open[network]
        self._disown(connection)
        del here.ranks[connection.rank][connection]
        self.open -= 1
        if not here:
            del self._open[network]
        if not self._open:
            self._emptied.set()
        if self.open < self._roomy:
            text = "%s has room again: %d connections are open"
            self._full.recovered(text, self._name, self.open)

    async def handshake(self, network: str) -> None:
        """Wait for the turn of a handshake; TimeoutError."""
        here = self._open.get(network)
        if here is not None:
            await self._starts.enter(here.handshakes)
            self._starts.leave(here.handshakes)

    def log_refusal(self, network: str, refusal: str) -> None:
        """`refusal` names the client certificate and says why it was refused. Whoever makes up
        certificates silences its own network only.
        """
        text = "%s refuses the client certificate %s (from %s)"
        self._refusals.failed(text, self._name, refusal, network, subject=network)

    async def close(self, within_s: float) -> None:
        """Wait until clients have seen the end of their connections, then cut the rest."""
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._emptied.wait()
        for network in [*self._open.values()]:
            for rank in network.ranks:
                for connection in [*rank]:
                    connection.drop()
        await asyncio.sleep(0)  # transports close in the next turn

    def _disown(self, connection: OpenConnection) -> None:
        owned = self._owned.get(connection.owner, {})
        owned.pop(connection, None)
        if not owned:
            self._owned.pop(connection.owner, None)
        connection.owner = None

    def _has_room(self, network: str) -> bool:
        here = self._open.get(network)
        if here is not None and len(here) >= self._limit_per_address:
            return self._make_room(here, network)
        if self.open >= self._limit:
            crowded = max(self._open.values(), key=lambda one: [len(rank) for rank in one.ranks])
            return self._make_room(crowded, network)
        return True

    def _make_room(self, crowded: _Network, network: str) -> bool:
        idle = next(filter(None, map(_oldest_idle, crowded.ranks)), None)
        if idle is None:
            return False
        self._log_full("cuts connections without a request to make room", network)
        self.shed += 1
        idle.drop()
        return True

    def _log_full(self, action: str, network: str) -> None:
        self._full.failed(
            "%s %s: %d are open, %d of them from %s",
            self._name, action, self.open, len(self._open.get(network, ())), network, cause="full",
        )  # fmt: skip


def _oldest_idle(connections: Connections) -> OpenConnection | None:
    """Only a few are looked at; those which are busy come last the next time."""
    for connection in tuple(islice(connections, _MAX_SCANNED)):
        if connection.is_idle:
            return connection
        del connections[connection]
        connections[connection] = None
    return None


def network_of(address: str) -> str:
    """An IPv4 address as it is, an IPv6 address without the half that its host chooses."""
    if ":" not in address:
        return address
    full = ipaddress.IPv6Address(address.partition("%")[0])
    return str(full.ipv4_mapped or ipaddress.IPv6Address(int(full) >> 64 << 64))


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
        network = network_of(str(peer[0])) if isinstance(peer, tuple) else ""
        connection = self._make_connection()
        if not self._limit.admit(network, connection):
            transport.abort()
            return
        connection.network = network
        connection.on_end = partial(self._limit.release, network, connection)
        connection.on_claim = partial(self._limit.claim, network, connection)
        connection.socket = transport
        accepted = transport.get_extra_info("socket")
        tcp.notice_dead_peer(accepted)
        tcp.limit_unsent(accepted)
        if self._context is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
        else:
            # The ClientHello is for TLS to read. Not paused at once: asyncio of Python 3.11.2
            # begins to read after this call, paused or not, and the hello would be lost.
            asyncio.get_running_loop().call_soon(transport.pause_reading)
            handshake = loops.spawn(
                self._secure(transport, connection, self._context), name=f"handshake {network}"
            )
            self._limit.handshakes.add(handshake)
            handshake.add_done_callback(self._limit.handshakes.discard)
            handshake.add_done_callback(partial(_end_unbegun, transport, connection))

    async def _secure(
        self, transport: asyncio.Transport, connection: Connection, context: ssl.SSLContext
    ) -> None:
        secured: asyncio.Transport | None = None
        attempt = certificates.Handshake()
        certificates.handshake.set(attempt)
        try:
            await self._limit.handshake(connection.network)
            if connection.ended:
                return
            paced = PacedSocket(
                transport,
                lambda: connection.payer,
                connection.intake_for,
                opening_bytes=HANDSHAKE_BYTES,
            )
            secured = await asyncio.get_running_loop().start_tls(
                paced,  # type: ignore[arg-type]  # is one to TLS
                connection,
                context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
            paced.open()
        except OSError as error:
            if attempt.refusal:
                self._limit.log_refusal(connection.network, attempt.refusal)
            log.debug("no TLS with %s: %s", transport.get_extra_info("peername"), error)
            error.__traceback__ = None  # frames of asyncio that hold the error: all would stay
        finally:
            if secured is None:
                transport.abort()
                connection.end()
        if secured is not None and not connection.ended:
            connection.connection_made(secured)


def _end_unbegun(
    transport: asyncio.Transport, connection: Connection, handshake: asyncio.Task[None]
) -> None:
    """What a handshake does at its end, also for one that was cancelled before it began."""
    if handshake.cancelled():
        transport.abort()
        connection.end()
