"""TCP settings of both ends: a peer that vanishes is detected within about a minute.

The kernel's defaults keep such a connection for two hours when it is idle, a quarter of an hour
when it is written to; and they buffer megabytes for a peer that does not read.
"""

from __future__ import annotations

import socket
from asyncio.trsock import TransportSocket
from typing import Any

IDLE_S = 30
INTERVAL_S = 10
PROBES = 3
_TCP = (socket.AF_INET, socket.AF_INET6)
UNACKNOWLEDGED_MS = 60_000
UNSENT_BYTES = 128 * 1024


def make_socket(address: Any) -> socket.socket:
    """The `socket_factory` of a client; `address` is an entry of getaddrinfo."""
    connection = socket.socket(*address[:3])
    connection.setblocking(False)
    notice_dead_peer(connection)
    return connection


def limit_unsent(connection: TransportSocket) -> None:
    """Let the kernel take only what it can send soon: what is under way is not limited, so a fast
    peer does not notice; no-op for Unix sockets.
    """
    if connection.family in _TCP:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def notice_dead_peer(connection: socket.socket | TransportSocket) -> None:
    """Set keep-alive probes and the limit for unacknowledged data; no-op for Unix sockets."""
    if connection.family not in _TCP:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, IDLE_S),
        (socket.TCP_KEEPINTVL, INTERVAL_S),
        (socket.TCP_KEEPCNT, PROBES),
        (socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def limit_unacknowledged(connection: TransportSocket, *, limited: bool) -> None:
    """Without the limit a peer may leave its window closed for as long as it answers probes; one
    that vanishes is then noticed by the kernel's own count, after a quarter of an hour.
    """
    if connection.family in _TCP:
        timeout_ms = UNACKNOWLEDGED_MS if limited else 0
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
