"""One server connection: aiohttp's protocol, without its version banner and its verbose errors.

What a client sends that is not HTTP is the client's business: it gets a short 400 and one debug
line. Keeps the identity of the TLS client certificate, so that it is read once per connection.
"""

from __future__ import annotations

import asyncio.sslproto
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.web_request import BaseRequest

from orch.wire.records.authentication import Identity

log = logging.getLogger(__name__)

_READS = ("GET", "HEAD")
_TLS_BUFFER_BYTES = 16_384  # a whole record


def limit_tls_buffers() -> None:
    """An idle TLS connection takes 57 KiB then, and 299 with asyncio's own buffer of 256 KiB."""
    asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES


class BareResponse(web.Response):
    """A response without a Server header."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.pop("Server", None)


class Connection(web.RequestHandler):
    """One accepted connection; `peer` is None until asked for, then the cached answer: who the
    client certificate names, and when its time is over (seconds since the epoch).
    """

    def __init__(self, manager: web.Server, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self.peer: tuple[Identity | None, float] | None = None
        self.on_end: Callable[[], None] | None = None
        self.cut: Callable[[], None] | None = None  # closes the socket at once, TLS or not
        self.ended = False
        self.only_for_client = False  # what is being done ends when nobody waits for its answer

    @property
    def is_idle(self) -> bool:
        """Nothing was asked that is not answered."""
        return self._current_request is None and not self._messages

    def drop(self) -> None:
        """Cut the connection without another word."""
        if self.cut is not None:
            self.cut()
        self.end()

    def data_received(self, data: bytes) -> None:
        """Also while the server stops, for a request whose body is still on its way."""
        if not (self._close or self._force_close):
            super().data_received(data)
            return
        request = self._current_request
        if request is None or request.content.is_eof():
            return
        stopping = self._close, self._force_close
        self._close = self._force_close = False  # else aiohttp drops what comes
        super().data_received(data)
        self._close, self._force_close = stopping

    def connection_lost(self, exc: BaseException | None) -> None:
        """End what only the client wanted: a read or a watch stops, a write is carried through."""
        request, task = self._current_request, self._task_handler
        super().connection_lost(exc)
        wanted = request is not None and request.method not in _READS and not self.only_for_client
        if task is not None and not wanted:
            task.cancel()
        self.end()

    def retire(self) -> None:
        """End the connection, after the answer to a request that is under way."""
        if self._current_request is None:
            self.force_close()
        else:
            self.close()

    def end(self) -> None:
        """Tell whoever set `on_end`, once, that this connection is no more."""
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
            log.debug("%s went away before it had said everything", request.remote)
        elif status >= 500:
            log.error("answering %s failed: %s", request.remote, exc, exc_info=exc)
        else:
            log.debug("refused a malformed request from %s: %s", request.remote, exc)
        text = f"{status} Internal Server Error\n" if status == 500 else f"{status} Bad Request\n"
        response = BareResponse(status=status, text=text)
        response.force_close()
        return response
