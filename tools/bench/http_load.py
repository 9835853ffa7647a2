"""A load of HTTP requests over persistent connections, cheap enough to share the server's machine.

Each connection sends its next request after a response. Supports only the HTTP of the measured
servers' responses: a Content-Length, no chunks.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_LENGTH = b"\r\ncontent-length: "

# Given the last answer's body (b"" at first): the whole next request, as bytes.
NextRequest = Callable[[bytes], bytes]


@dataclass
class Figures:
    """Latencies in seconds, and the number of answers with another code than 200 or 201."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    elapsed_s: float = 0.0

    @property
    def per_second(self) -> float:
        return len(self.seconds) / self.elapsed_s

    def ms(self, share: float) -> float:
        """The latency that `share` of the requests stayed below, in milliseconds."""
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class Connection(asyncio.Protocol):
    """One client: requests one after the other, until `stop`, or at a pace."""

    def __init__(self, make: NextRequest, figures: Figures) -> None:
        self._make = make
        self._figures = figures
        self._received = bytearray()
        self._head_bytes = self._whole_bytes = 0  # of the answer; 0 until its head was read
        self._began_s = 0.0
        self.body = b""
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.Future[None] | None = None
        self.running = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def run(self) -> None:
        """Send requests until `running` is False."""
        self.running = True
        self._send()

    async def once(self) -> None:
        """Send one request and wait for its answer."""
        self._idle = asyncio.get_running_loop().create_future()
        self._send()
        await self._idle

    def close(self) -> None:
        self.running = False
        if self._transport is not None:
            self._transport.abort()

    def _send(self) -> None:
        assert self._transport is not None
        request = self._make(self.body)
        self._began_s = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._whole_bytes:
            self._read_head()
        if self._whole_bytes and len(self._received) >= self._whole_bytes:
            self._answered()

    def _read_head(self) -> None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        lowered = bytes(self._received[: end + 2]).lower()
        start = lowered.index(_LENGTH) + len(_LENGTH)
        length = int(lowered[start : lowered.index(b"\r\n", start)])
        self._head_bytes = end + 4
        self._whole_bytes = self._head_bytes + length

    def _answered(self) -> None:
        self._figures.seconds.append(time.perf_counter() - self._began_s)
        if bytes(self._received[9:12]) not in (b"200", b"201"):
            self._figures.refused += 1
        else:
            self.body = bytes(self._received[self._head_bytes : self._whole_bytes])
        self._received.clear()
        self._head_bytes = self._whole_bytes = 0
        if self.running:
            self._send()
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


async def connect(
    port: int, make: NextRequest, figures: Figures, context: ssl.SSLContext | None
) -> Connection:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: Connection(make, figures), "127.0.0.1", port, ssl=context
    )
    return protocol


async def closed_loop(
    port: int, makers: list[NextRequest], seconds: float, context: ssl.SSLContext | None = None
) -> tuple[Figures, int]:
    """One connection for each of `makers`, as fast as the server answers; the first second does
    not count. Also gives the number of requests with that second's.
    """
    figures = Figures()
    connections = [await connect(port, make, figures, context) for make in makers]
    for connection in connections:
        connection.run()
    await asyncio.sleep(1.0)
    before = len(figures.seconds)
    figures.seconds.clear()
    began_s = time.perf_counter()
    await asyncio.sleep(seconds)
    figures.elapsed_s = time.perf_counter() - began_s
    result = Figures(list(figures.seconds), figures.refused, figures.elapsed_s)
    for connection in connections:
        connection.close()
    return result, before + len(result.seconds)


def request(method: str, path: str, body: bytes = b"", content_type: str = "") -> bytes:
    """A whole HTTP/1.1 request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n"
    if content_type:
        head += f"Content-Type: {content_type}\r\n"
    return head.encode() + b"\r\n" + body
