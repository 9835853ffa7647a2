"""Both ends of a stream for tests: a listener whose handler joins a WebSocket to an upstream."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
from aiohttp import ClientWebSocketResponse, web

from orch.component.http.httpd import HttpServer, api_errors

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    """The URL of a listener as the programs have them, on which `handler` answers all."""
    app = web.Application(middlewares=[api_errors])
    app.router.add_route("*", "/{tail:.*}", handler)
    server = HttpServer(app, host="127.0.0.1", port=0, name="test")
    port = await server.start()
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        await server.stop(0.1)


@contextlib.asynccontextmanager
async def connected(
    url: str, *protocols: str, autoping: bool = True
) -> AsyncIterator[ClientWebSocketResponse]:
    """A client's WebSocket that asks for these sub-protocols; without `autoping` pongs are seen."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=protocols, max_msg_size=0, autoping=autoping) as socket,
    ):
        yield socket


def wire_of(socket: ClientWebSocketResponse) -> asyncio.Transport:
    """What lies below a client's WebSocket."""
    connection = socket._response.connection
    assert connection is not None and isinstance(connection.transport, asyncio.Transport)
    return connection.transport


async def upgraded(url: str, protocol: str) -> tuple[StreamReader, StreamWriter]:
    """The streams of a runtime's server at `url` once it speaks SPDY."""
    host, _, path = url.removeprefix("http://").partition("/")
    address, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    writer.write(
        f"POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        f"X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101"), head
    return reader, writer


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[tuple[StreamReader, StreamWriter, StreamReader, StreamWriter]]:
    """Two ends of one TCP connection: here, there."""
    accepted: asyncio.Future[tuple[StreamReader, StreamWriter]] = asyncio.Future()

    def accept(reader: StreamReader, writer: StreamWriter) -> None:
        accepted.set_result((reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    there_reader, there_writer = await accepted
    try:
        yield reader, writer, there_reader, there_writer
    finally:
        writer.close()
        there_writer.close()
        server.close()
        await server.wait_closed()
