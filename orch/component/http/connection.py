"""A server connection: aiohttp's protocol, without its version banner and its verbose errors.

Malformed requests get a short 400 and one debug line. Caches the identity of the TLS client
certificate, so that it is read once per connection. Bounds what is buffered for its client, and
keeps nothing of an answer that was sent.
"""

from __future__ import annotations

import asyncio
import asyncio.constants
import asyncio.sslproto
import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.web_request import BaseRequest

from orch.component.http import tcp
from orch.component.http.fair_queue import Turns
from orch.component.http.intake import Intake
from orch.component.http.slow_clients import STALL_S, SlowClients
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024  # request line and headers
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_READS = ("GET", "HEAD")
_TLS_BUFFER_BYTES = 16_384  # a whole record
_TLS_BUFFER_KIB = 64  # at which reading or writing waits, beside the socket's own buffer
_LATE_BYTES = 64 * 1024  # of a body, read after its answer so that the client gets to see that
_FRAMING_BYTES = 16 * 1024  # of a body's chunks, beside a quarter of what is in them
_SLICE_BYTES = 2048  # parsed in one go: up to a millisecond, in chunks of a byte
_JUDGED_BYTES = 512  # the same of what is handed over: 20 frames of SPDY with 80 KiB of headers


def limit_tls_buffers() -> None:
    """Reduces an idle TLS connection to 57 KiB, from 299 with asyncio's buffer of 256 KiB, and what
    waits for a slow reader to 64 KiB, from 256 and 512.
    """
    asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
    constants: Any = asyncio.constants
    constants.FLOW_CONTROL_HIGH_WATER_SSL_READ = _TLS_BUFFER_KIB
    constants.FLOW_CONTROL_HIGH_WATER_SSL_WRITE = _TLS_BUFFER_KIB


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


class BareWebSocket(web.WebSocketResponse):
    """A WebSocket without a Server header in the answer that opens it."""

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
        self.socket: asyncio.Transport | None = None  # below TLS, if any
        self.slow_clients: SlowClients | None = None
        self.turns: Turns | None = None  # of all connections of the listener, for costly answers
        self.sending_bytes = 0  # what is held for the answer, beside the buffers
        self.is_patient = False
        self._heard_s = 0.0  # when it last was seen, or something received of it
        self._head_bytes = 0  # received of a head that is not complete
        self._body_bytes = 0  # received of the latest body, with its framing
        self._body: StreamReader | None = None  # of the latest request
        self._answered: StreamReader | None = None  # the body of the latest that was answered
        self.ended = False
        self._late_bytes = 0
        self.only_for_client = False  # cancel the handler when the client disconnects
        self._heir: asyncio.Protocol | None = None  # what is received is no longer HTTP
        self._easy_bytes: Callable[[], int] | None = None  # of the heir
        self.intakes: tuple[Intake, Intake] | None = None  # for USER and below, and for KEPT
        self._unparsed = b""
        self._is_taken = False  # by an intake, which parses
        self._is_read = True  # the transport is not paused
        self._may_read = True  # apart from what the intake says

    @property
    def is_idle(self) -> bool:
        """No request is in flight or queued."""
        return self._current_request is None and not self._messages

    @property
    def waiting_bytes(self) -> int:
        """What is kept in memory until the client takes it."""
        layers = {one for one in (self.transport, self.socket) if one is not None}
        return self.sending_bytes + sum(one.get_write_buffer_size() for one in layers)

    def set_patient(self, *, patient: bool) -> None:
        """Whether the client may pause while it takes this answer."""
        self.is_patient = patient
        if self.socket is not None:
            tcp.limit_unacknowledged(self.socket.get_extra_info("socket"), limited=not patient)

    @property
    def is_quiet(self) -> bool:
        """The client is there, and has sent nothing beyond the request."""
        more = self._message_tail or self._messages or self._head_bytes or self._unparsed
        return not more and self.transport is not None and not self.transport.is_closing()

    def has_left(self) -> bool:
        """Whether the client is gone, which nothing else tells while nothing is read. What it sent
        before a clean end has STALL_S after it is seen, and whenever something of it was taken.
        """
        if self.socket is None or self.transport is None:
            return False
        state = tcp.state_of(self.socket.get_extra_info("socket"))
        if state != tcp.CLOSE_WAIT or self.transport.is_reading():
            self._heard_s = self._loop.time()
        return state == tcp.CLOSED or self._loop.time() > self._heard_s + STALL_S

    def hand_over(
        self, heir: asyncio.Protocol, *, easy_bytes: Callable[[], int] | None = None
    ) -> None:
        """From now on the heir gets what the client sends, and hears of full buffers and the end,
        which no longer cancels the handler. If what it does with the bytes takes as long as
        parsing, `easy_bytes` tells of how many of the next it does not: it has the intake's time.
        """
        self._heir = heir
        self._easy_bytes = easy_bytes
        self._upgraded = True
        self._buffer_paused = self._reading_paused = False
        self._resume_transport_reading()

    def drop(self) -> None:
        """Cut the connection without a response; what the client has sent is for nobody."""
        if self._heir is not None:
            self._heir.connection_lost(ConnectionResetError())
        tcp.abort(self.socket)
        self.end()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.slow_clients is not None:
            self.slow_clients.stalled(self)
        if self._heir is not None:
            self._heir.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.slow_clients is not None:
            self.slow_clients.resumed(self)
        if self._heir is not None:
            self._heir.resume_writing()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        if self._heir is None or self._is_taken:  # the heir hears of it after what is left
            return None
        return self._heir.eof_received()

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Say if the answer is the connection's last, or the client's next request would be lost.

        Drop both bodies: aiohttp keeps the last request and response of an idle connection.
        """
        if self._close and isinstance(resp, web.StreamResponse):
            resp.force_close()
        finished = await super().finish_response(request, resp, start_time)
        self._answered = request.content
        self.sending_bytes = 0
        if self.is_patient:
            self.set_patient(patient=False)
        request._read_bytes = None
        request._state.clear()
        if isinstance(resp, web.Response):
            resp._body = None
        return finished

    def data_received(self, data: bytes) -> None:
        """Parse it, with what is left of earlier data; or later, when the intake has time."""
        self._heard_s = self._loop.time()
        is_free = not self._is_sliced or self.intake_for(len(data)) is None
        if is_free and not self._unparsed:
            self._receive(data)
            return
        self._unparsed += data
        if not self._is_taken:
            self._take()

    def intake_for(self, size: int) -> Intake | None:
        """Whose time it takes to decrypt so many bytes; None for as much as it needs."""
        is_small = self.rank >= Rank.KEPT and size <= _SLICE_BYTES  # a renewal, mostly
        if self.intakes is None or self.rank is Rank.PRIVILEGED or is_small:
            return None
        return self.intakes[self.rank >= Rank.KEPT]

    def _take(self) -> None:
        if self.intakes is not None:
            self._is_taken = True
            self.intakes[self.rank >= Rank.KEPT].take(self)

    @property
    def payer(self) -> object:
        """Of the time for parsing, and of turns: who asked last, or an address."""
        return self.network if self.owner is None else self.owner

    async def take_turn(self) -> None:
        """Wait for the payer's turn at something that takes long."""
        if self.turns is not None:
            await self.turns.take(self.payer)

    @property
    def _is_sliced(self) -> bool:
        return self._easy_bytes is not None or not self._upgraded

    def parse_slice(self) -> bool:
        """Parse the next bytes; whether there are more that may be parsed now."""
        size = _SLICE_BYTES if self._is_sliced else len(self._unparsed)
        if self._easy_bytes is not None:
            size = max(_JUDGED_BYTES, self._easy_bytes())
        data, self._unparsed = self._unparsed[:size], self._unparsed[size:]
        self._receive(data)
        return bool(self._unparsed) and not (self._reading_paused or self._buffer_paused)

    def hold(self) -> None:
        """Receive no more: the intake has no time for it yet."""
        self._is_read = False
        super()._pause_transport_reading()

    def release(self) -> None:
        """The intake has parsed what it may."""
        self._is_taken = False
        if self._heir is not None and self.transport is None:
            self._heir.connection_lost(None)
        elif self._may_read and not self._is_read:
            self._resume_transport_reading()

    def _pause_transport_reading(self) -> None:
        self._may_read = self._is_read = False
        super()._pause_transport_reading()

    def _resume_transport_reading(self) -> None:
        """Not while the intake has it in hand; and first parse what is there."""
        self._may_read = True
        if self._is_taken:
            return
        if self._unparsed:
            self._take()
        else:
            self._is_read = True
            super()._resume_transport_reading()

    def _receive(self, data: bytes) -> None:
        """Accept data even while the server stops, if it belongs to a body still arriving.

        Of a body that was refused little is read: whoever sends on is cut in `lingering_time`.
        """
        if self._heir is not None:
            self._heir.data_received(data)
            return
        in_body = self._body is not None and not self._body.is_eof()
        if in_body and self._body is self._answered:
            self._late_bytes += len(data)
            if self._late_bytes > _LATE_BYTES:
                self._pause_transport_reading()
                self.close()
        else:
            self._late_bytes = 0
        if not (self._close or self._force_close):
            queued = len(self._messages)
            super().data_received(data)
            if len(self._messages) > queued:
                self._body = self._messages[-1][1]
                self._head_bytes = self._body_bytes = 0
            elif in_body:
                self._receive_body(len(data))
            elif self._payload_parser is None:  # no WebSocket's
                self._receive_head(len(data))
            return
        request = self._current_request
        if request is None or request.content.is_eof() or request.content.exception():
            return
        stopping = self._close, self._force_close
        self._close = self._force_close = False  # otherwise aiohttp drops the data
        super().data_received(data)
        self._close, self._force_close = stopping

    def _receive_head(self, size: int) -> None:
        """The parser holds a head until it is complete, and bounds only its lines."""
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES and self.transport is not None:
            log.debug("refused a request: its head has over %d bytes", MAX_HEAD_BYTES)
            if self.is_idle:
                self.transport.write(_HEAD_TOO_LARGE)
            self.force_close()

    def _receive_body(self, size: int) -> None:
        """A body in tiny chunks, or with endless extensions of them, is refused: its framing costs
        more than its bytes. What the parser puts aside while nobody reads is not judged yet, and
        what comes after the answer is bounded as such.
        """
        self._body_bytes += size
        body = self._body
        if body is None or body is self._answered or self._reading_paused:
            return
        if self._body_bytes > body.total_bytes * 5 // 4 + _FRAMING_BYTES:
            text = "the chunks of the body are too small: send larger ones, or its length"
            body.set_exception(ApiError(413, "RequestEntityTooLarge", text))
            self._lingering_time = 0.0  # nothing more of it is read
            self._pause_transport_reading()
            self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel a read or a watch, which only the client wanted; a write is completed."""
        request, task = self._current_request, self._task_handler
        super().connection_lost(exc)
        if self.slow_clients is not None:
            self.slow_clients.resumed(self)
        self._body = self._answered = None
        wanted = request is not None and request.method not in _READS and not self.only_for_client
        if self._heir is None:
            self._unparsed = b""
            if task is not None and not wanted:
                task.cancel()
        elif exc is not None or not self._is_taken:
            self._heir.connection_lost(ConnectionResetError() if exc else None)
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
        self.on_end = self.on_claim = None  # both hold this: it would stay as garbage

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer broke off")
        if isinstance(exc, UnicodeEncodeError):
            status = 400  # aiohttp quotes an `Expect` that is no text
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


def allow_pauses(request: BaseRequest) -> None:
    """Let the client pause while it takes this answer, as long as little waits."""
    if isinstance(request.protocol, Connection):
        request.protocol.set_patient(patient=True)
