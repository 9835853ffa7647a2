"""A streaming server such as a runtime has, and a client that leaves HTTP as `kubectl` does."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from nodeagent.runtime.endpoint import StreamAddress

AGREED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
ASK = ("Connection: Upgrade", "Upgrade: SPDY/3.1")

_CLOSING_TURNS = 20  # of the loop, in which both ends of a connection that was cut notice

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the client has sent its last."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


class StreamingServer:
    """Answers every request with `answer`, then does `talk`, then closes."""

    def __init__(self) -> None:
        self.answer = AGREED
        self.talk: Talk = echo
        self.heads: list[bytes] = []
        self.accepted = 0  # connections, used or not
        self.open = 0
        self.host, self.port = "127.0.0.1", 0
        self.context: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._unused: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> StreamAddress:
        return StreamAddress(self.host, self.port, "/exec/token?x=1")

    async def start(
        self, context: ssl.SSLContext | None = None, *, bound: socket.socket | None = None
    ) -> None:
        """On the loopback, if no socket is given."""
        self.context = context
        bound = bound or socket.create_server((self.host, 0))
        self._server = await asyncio.start_server(self._serve, sock=bound, ssl=context)
        self.host, self.port = bound.getsockname()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._unused:
            writer.transport.abort()
        for _ in range(_CLOSING_TURNS):
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._unused.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()
            return
        finally:
            self._unused.discard(writer)
        self.heads.append(head)
        self.open += 1
        try:
            writer.write(self.answer)
            await self.talk(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def streaming(bound: socket.socket | None = None) -> AsyncIterator[StreamingServer]:
    server = StreamingServer()
    await server.start(bound=bound)
    try:
        yield server
    finally:
        await server.stop()


class Upgraded:
    """A client's connection: `status` and `head` of the answer, then raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = ""
        self.status = 0

    async def ask(self, first: str, *headers: str, more: bytes = b"") -> None:
        lines = [f"{first} HTTP/1.1", "Host: h", *headers]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + more)
        self.head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.status = int(self.head.split(" ", 2)[1])

    async def body(self) -> str:
        """Of an answer that is not 101."""
        lines = self.head.lower().split("\r\n")
        length = next(line for line in lines if line.startswith("content-length:"))
        return (await self.reader.readexactly(int(length.partition(":")[2]))).decode()

    async def say(self, data: bytes) -> bytes:
        """What an echo answers."""
        self.writer.write(data)
        return await self.reader.readexactly(len(data))


@asynccontextmanager
async def upgraded(
    port: int,
    first: str,
    headers: Sequence[str] = ASK,
    *,
    tls: ssl.SSLContext | None = None,
    more: bytes = b"",
) -> AsyncIterator[Upgraded]:
    """Ask for an upgrade, whatever the answer; `first` is method and target."""
    name = "localhost" if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    client = Upgraded(reader, writer)
    try:
        async with asyncio.timeout(20):
            await client.ask(first, *headers, more=more)
        yield client
    finally:
        writer.close()
