"""A server connection: aiohttp's protocol, without its version banner and its verbose errors.

Malformed requests get a short 400 and one debug line. Caches the identity of the TLS client
certificate, so that it is read once per connection.
"""

from __future__ import annotations

import asyncio.constants
import asyncio.sslproto
import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from aiohttp import web
from aiohttp.web_request import BaseRequest

from orch.wire.records.authentication import Identity

log = logging.getLogger(__name__)

_READS = ("GET", "HEAD")
_TLS_BUFFER_BYTES = 16_384  # a whole record
_TLS_UNREAD_KIB = 64  # must be more than a record
_LATE_BYTES = 64 * 1024  # of a body, read after its answer so that the client gets to see that


def limit_tls_buffers() -> None:
    """Reduces an idle TLS connection to 57 KiB, from 299 with asyncio's buffer of 256 KiB, and one
    that sends what nobody reads by another 192.
    """
    asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
    asyncio.constants.FLOW_CONTROL_HIGH_WATER_SSL_READ = _TLS_UNREAD_KIB  # type: ignore[misc]


class Rank(IntEnum):
    """Whose connection it is: the lower ones are cut first to make room."""

    STRANGER = 0  # or that of nobody yet
    USER = 1
    KEPT = 2
    PRIVILEGED = 3  # and not bounded


class BareResponse(web.Response):
    """A response without a Server header."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.pop("Server", None)


class Connection(web.RequestHandler):
    """An accepted connection; `peer` caches the client certificate's identity and its expiry
    (seconds since the epoch), None until it is read. `owner` is whoever sent the latest request.
    """

    def __init__(self, manager: web.Server, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self.peer: tuple[Identity | None, float] | None = None
        self.on_end: Callable[[], None] | None = None
        self.network = ""  # it comes from: an IPv4 address or 64 bits of an IPv6 address
        self.owner: object = None
        self.rank = Rank.STRANGER
        self.on_claim: Callable[[object, Rank], bool] | None = None
        self.cut: Callable[[], None] | None = None  # closes the socket at once, TLS or not
        self.ended = False
        self._late_bytes = 0
        self.only_for_client = False  # cancel the handler when the client disconnects

    @property
    def is_idle(self) -> bool:
        """No request is in flight or queued."""
        return self._current_request is None and not self._messages

    def drop(self) -> None:
        """Cut the connection without a response."""
        if self.cut is not None:
            self.cut()
        self.end()

    def data_received(self, data: bytes) -> None:
        """Accept data even while the server stops, if it belongs to a body still arriving.

        Of a body that was refused little is read: whoever sends on is cut in `lingering_time`.
        """
        if self._current_request is None and self._waiter is None:
            self._late_bytes += len(data)
            if self._late_bytes > _LATE_BYTES:
                self._pause_transport_reading()
                self.close()
        else:
            self._late_bytes = 0
        if not (self._close or self._force_close):
            super().data_received(data)
            return
        request = self._current_request
        if request is None or request.content.is_eof():
            return
        stopping = self._close, self._force_close
        self._close = self._force_close = False  # otherwise aiohttp drops the data
        super().data_received(data)
        self._close, self._force_close = stopping

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel a read or a watch, which only the client wanted; a write is completed."""
        request, task = self._current_request, self._task_handler
        super().connection_lost(exc)
        wanted = request is not None and request.method not in _READS and not self.only_for_client
        if task is not None and not wanted:
            task.cancel()
        self.end()

    def claim(self, owner: object, rank: Rank) -> bool:
        """Count it as the owner's; False if all that the owner may have are busy."""
        return self.on_claim is None or self.on_claim(owner, rank)

    def retire(self) -> None:
        """Close the connection, after the response to a request in flight."""
        if self._current_request is None:
            self.force_close()
        else:
            self.close()

    def end(self) -> None:
        """Call `on_end`, once."""
        if not self.ended and self.on_end is not None:
            self.on_end()
        self.ended = True

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer broke off")
        if isinstance(exc, ConnectionError):
            log.debug("%s disconnected before its request was complete", request.remote)
        elif status >= 500:
            log.error("answering %s failed: %s", request.remote, exc, exc_info=exc)
        else:
            log.debug("refused a malformed request from %s: %s", request.remote, exc)
        text = f"{status} Internal Server Error\n" if status == 500 else f"{status} Bad Request\n"
        response = BareResponse(status=status, text=text)
        response.force_close()
        return response
