"""The server behind a stream: dialled, asked for an upgrade, believed only if it agrees.

Its answer is bounded in bytes and time, and read no further than its head: what follows belongs to
whoever takes the connection. Only 101 to the protocol asked for is an agreement.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from typing import Any, NamedTuple

from multidict import CIMultiDict

from orch.component.http import tcp
from orch.component.http.intake import Intake
from orch.component.http.paced_socket import begin_tls

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0  # the runtime looks at the container first
MAX_HEAD_BYTES = 16 * 1024
MAX_REFUSAL_BYTES = 64 * 1024
_REFUSAL_TIMEOUT_S = 10.0
_READ_BYTES = 32 * 1024  # waiting; twice that at most
_ANSWERED = (
    "Upgrade", "X-Stream-Protocol-Version", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol",
)  # fmt: skip
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5]\d\d)(?: [^\r\n]*)?")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")

Headers = CIMultiDict[str]


class Destination(NamedTuple):
    """Where to dial; `name` is what the certificate must be for."""

    host: str  # an address
    port: int
    tls: ssl.SSLContext | None = None
    name: str | None = None


class Unreachable(Exception):
    """The server behind cannot be reached, or does not answer as one of HTTP."""


class Refused(Exception):
    """The server behind answered, but not 101; the text is the beginning of its answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Upstream(asyncio.Protocol):
    """A connection to the server behind, up to the end of its answer's head."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = bytearray()
        self.head_end = -1  # in `received`; negative until the head is complete
        self._changed = asyncio.Event()
        self._most = MAX_HEAD_BYTES
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a TCP connection
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.head_end < 0:
            self.head_end = self.received.find(b"\r\n\r\n")
        if (self.head_end >= 0 or len(self.received) > self._most) and self.transport:
            self.transport.pause_reading()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._changed.set()

    def eof_received(self) -> None:
        self._ended = True
        self._changed.set()

    async def read_head(self) -> tuple[int, Headers]:
        """Status and headers of the answer; Unreachable."""
        while self.head_end < 0 and not self._ended and len(self.received) <= MAX_HEAD_BYTES:
            self._changed.clear()
            await self._changed.wait()
        if self.head_end < 0:
            raise Unreachable(
                "it closed the connection without an answer" if self._ended
                else f"the head of its answer has over {MAX_HEAD_BYTES} bytes"
            )  # fmt: skip
        return parse_head(bytes(self.received[: self.head_end]))

    async def read_refusal(self) -> str:
        """The beginning of the body, as text."""
        self._most = self.head_end + 4 + MAX_REFUSAL_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(_REFUSAL_TIMEOUT_S):
                await self._read_body()
        body = bytes(self.received[self.head_end + 4 : self._most])
        return body.decode(errors="replace").strip()

    async def _read_body(self) -> None:
        _, headers = parse_head(bytes(self.received[: self.head_end]))
        length = headers.get("Content-Length", "")
        if length.isdecimal() and len(length) < 9:
            self._most = min(self._most, self.head_end + 4 + int(length))
        while len(self.received) < self._most and not self._ended:
            self._changed.clear()
            if self.transport:
                self.transport.resume_reading()
            await self._changed.wait()


def parse_head(head: bytes) -> tuple[int, Headers]:
    """Status and headers; Unreachable for what is not HTTP/1.1."""
    first, *lines = head.split(b"\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise Unreachable(f"its answer is not HTTP/1.1: {first[:80]!r}")
    headers: Headers = CIMultiDict()
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Unreachable(f"its answer has a malformed header: {line[:80]!r}")
        headers.add(name.decode("ascii"), value.strip(b" \t").decode("latin-1"))
    return int(status[1]), headers


class Agreement(NamedTuple):
    """The server behind speaks the protocol from now on."""

    transport: asyncio.Transport
    early: bytes  # that came with its answer
    headers: Headers  # of its answer, that the client needs


async def dial(
    to: Destination, method: str, target: str, headers: Headers, *, over: Upstream | None = None
) -> Agreement:
    """Ask for the upgrade; Unreachable, Refused. Whoever gets the agreement closes the transport.

    `target` is the path with its query, as it is sent; `over` a connection to the destination on
    which nothing was sent yet.
    """
    upstream = over or await connect(to)
    transport = upstream.transport
    assert transport is not None  # noqa: S101 - it is connected
    try:
        transport.write(_request(to, method, target, headers))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            status, answered = await upstream.read_head()
        if status != 101:
            raise Refused(status, await upstream.read_refusal())
        _require_agreement(headers, answered)
    except BaseException as error:
        tcp.abort(transport)
        if isinstance(error, TimeoutError):
            text = f"it did not answer within {ANSWER_TIMEOUT_S:g} s"
            raise Unreachable(text) from error
        raise
    kept: Headers = CIMultiDict()
    for name in _ANSWERED:
        for value in answered.getall(name, ()):
            kept.add(name, value)
    kept["Connection"] = "Upgrade"
    return Agreement(transport, bytes(upstream.received[upstream.head_end + 4 :]), kept)


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def streams_of(agreement: Agreement) -> Ends:
    """What the server behind sends from now on, and what it is sent."""
    loop, transport = asyncio.get_running_loop(), agreement.transport
    reader = asyncio.StreamReader(limit=_READ_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    protocol.connection_made(transport)
    reader.feed_data(agreement.early)
    if transport.is_closing():
        reader.feed_eof()
    else:
        transport.set_protocol(protocol)
        transport.resume_reading()
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def connect(to: Destination, intake: Intake | None = None) -> Upstream:
    """An open connection, handshake included; Unreachable. Over TLS, what comes is decrypted in
    the intake's time, which servers share by their addresses.
    """
    loop, upstream = asyncio.get_running_loop(), Upstream()
    transport: Any = None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            transport, _ = await loop.create_connection(lambda: upstream, to.host, to.port)
            transport.max_size = _READ_BYTES  # asyncio would map 256 KiB anew for each reading
            if to.tls is not None:
                name = to.name or to.host
                await begin_tls(
                    transport, upstream, to.tls, server=name, address=to.host, intake=intake
                )
    except TimeoutError as error:
        tcp.abort(transport)
        raise Unreachable(f"no connection within {CONNECT_TIMEOUT_S:g} s") from error
    except OSError as error:
        tcp.abort(transport)
        raise Unreachable(error.strerror or str(error)) from error
    tcp.notice_dead_peer(transport.get_extra_info("socket"))
    return upstream


def _request(to: Destination, method: str, target: str, headers: Headers) -> bytes:
    host = f"[{to.host}]" if ":" in to.host else to.host
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}:{to.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if method == "POST":
        lines.append("Content-Length: 0")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _require_agreement(asked: Headers, answered: Headers) -> None:
    named = answered.get("Upgrade", "").lower()
    if named != asked["Upgrade"].lower():
        raise Unreachable(f"it upgraded to {named[:80]!r}, not to {asked['Upgrade']!r}")
