"""TCP settings of both ends: a peer that vanishes is detected within about a minute.

The kernel's defaults keep such a connection for two hours when it is idle, a quarter of an hour
when it is written to; and they buffer megabytes for a peer that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import struct
import time
from asyncio.trsock import TransportSocket
from typing import Any

from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

IDLE_S = 30
INTERVAL_S = 10
PROBES = 3
_TCP = (socket.AF_INET, socket.AF_INET6)
UNACKNOWLEDGED_MS = 60_000
UNSENT_BYTES = 128 * 1024
CLOSED, CLOSE_WAIT = 7, 8  # of the kernel's states: it is gone, or the peer has sent its last
QUIET_S = 10.0  # without a refusal, before descriptors are said to suffice again
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.005  # of the event loop, where not even refusing works: it would spin


def make_socket(address: Any) -> socket.socket:
    """The `socket_factory` of a client; `address` is an entry of getaddrinfo."""
    connection = socket.socket(*address[:3])
    connection.setblocking(False)
    notice_dead_peer(connection)
    return connection


class ShortSocket(socket.socket):
    """Of a client that asks somebody who may mean harm once: it gives little at a time, and ends
    after `MOST_BYTES`. There may be interim answers, or chunks of a byte, for as long as it reads.
    """

    MOST_BYTES = 64 * 1024
    _AT_ONCE_BYTES = 8 * 1024  # which are parsed within 3 ms
    _left = MOST_BYTES

    @classmethod
    def of(cls, address: Any) -> ShortSocket:
        """As `make_socket`."""
        made = cls(*address[:3])
        made.setblocking(False)
        return made

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(min(size, self._AT_ONCE_BYTES, self._left), flags)
        self._left -= len(data)
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """As TLS reads."""
        data = self.recv(nbytes or len(buffer), flags)
        buffer[: len(data)] = data
        return len(data)


def abort(transport: asyncio.WriteTransport | None) -> None:
    """Cut the connection, if there is one. TLS that was closed twice is only left to end within its
    30 s by asyncio before Python 3.11.4, which raises AttributeError then.
    """
    if transport is not None:
        with contextlib.suppress(AttributeError):
            transport.abort()


def reset(transport: asyncio.WriteTransport | None) -> None:
    """Cut it so that the peer hears of it though it reads nothing; what waits is dropped."""
    made: Any = transport
    with contextlib.suppress(OSError, AttributeError):  # it was closed meanwhile, or is none
        connection = made.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    abort(transport)


def state_of(connection: TransportSocket) -> int:
    """The kernel's, which changes though nothing is read; 0 for Unix sockets."""
    if connection.family not in _TCP:
        return 0
    with contextlib.suppress(OSError):
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return CLOSED


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
        with contextlib.suppress(OSError):  # it was closed meanwhile
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)


class PatientLimit:
    """The limit for unacknowledged data of a peer that may leave its window closed for as long as
    it answers probes. The kernel counts such a pause, so `renew`, every few seconds, keeps the
    limit half a minute ahead of it. A probe is sent by then, where it would take up to two minutes;
    and half a minute after the last answer the limit stays, at which the kernel cuts.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._connection: TransportSocket = transport.get_extra_info("socket")
        self._backoff = 0  # grows by one with each probe, until the peer takes something
        self._paused_s = self._answered_s = time.monotonic()

    def renew(self) -> None:
        now_s, ahead_s = time.monotonic(), UNACKNOWLEDGED_MS / 2000
        with contextlib.suppress(OSError):  # it was closed meanwhile, or is no TCP
            info = self._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 5)
            retransmits, probes, backoff = info[2:]  # without an answer, the first two
            if not backoff or backoff < self._backoff:
                self._paused_s = now_s
            self._backoff = backoff
            if not (retransmits or probes):
                self._answered_s = now_s
            if now_s < self._answered_s + ahead_s:
                limit_ms = round((now_s - self._paused_s + ahead_s) * 1000)
                self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)


class ListeningSocket(socket.socket):
    """Where no descriptor is left for a connection, it is refused: waiting for one would let the
    event loop ask for it without a pause, or log each failure.

    A spare descriptor is given up for the moment of a refusal.
    """

    def __init__(self, name: str, *, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self._name = name
        self._shortage = OnceLog(log)
        self._refused_s = 0.0
        self._is_stopped = False
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def stop_accepting(self) -> None:
        """To be called some turns of the loop before `close`, at which asyncio loses what it has
        accepted just then.
        """
        self._is_stopped = True

    def accept(self) -> tuple[socket.socket, Any]:
        if self._is_stopped:
            raise BlockingIOError
        try:
            accepted = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._refuse(error)
            raise BlockingIOError from error
        if self._refused_s and time.monotonic() > self._refused_s + QUIET_S:
            self._refused_s = 0.0
            self._shortage.recovered("%s accepts connections again", self._name)
        return accepted

    def close(self) -> None:
        super().close()
        self._give_up_spare()

    def _refuse(self, error: OSError) -> None:
        text = "%s refuses connections: %s; raise the limit of open files"
        self._shortage.failed(text, self._name, error.strerror, cause="refused")
        self._refused_s = time.monotonic()
        self._give_up_spare()
        try:
            super().accept()[0].close()
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except BlockingIOError:
            pass  # it has gone away by itself
        except OSError:
            time.sleep(_PAUSE_S)

    def _give_up_spare(self) -> None:
        spare, self._spare = self._spare, -1
        with contextlib.suppress(OSError):
            os.close(spare)
