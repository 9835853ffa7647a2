"""Port-forward as clients speak it inside a WebSocket: messages that hold the bytes of SPDY.

What they say is between the client and the runtime's server: the bytes pass as they are, if they
are frames of SPDY within the bounds. The client's sub-protocol is that of SPDY with a prefix, as in
the reference's tunnel.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from aiohttp import WSCloseCode, web

from orch.component.process import loops
from orch.component.streams import websocket
from orch.component.streams.spdy import FrameGuard, SpdyError
from orch.component.streams.spdy_connection import FLUSH_S, ByteReader, ByteWriter
from orch.component.streams.websocket import ClientSocket

log = logging.getLogger(__name__)

PREFIX = "SPDY/3.1+"
UPSTREAM_PROTOCOL = "portforward.k8s.io"  # what the runtime's server is asked for
PROTOCOLS = (PREFIX + UPSTREAM_PROTOCOL,)
_READ_BYTES = 64 * 1024
_CHECKED_BYTES = 512  # in one turn: they may be 20 frames with 80 KiB of headers


class End(NamedTuple):
    """Why a tunnel ended, as the client's WebSocket is closed."""

    code: int = WSCloseCode.OK
    reason: str = ""


def is_tunnel(request: web.BaseRequest) -> bool:
    """Whether the client wants SPDY inside its WebSocket; `websocket.accept` may still refuse."""
    return any(name.startswith(PREFIX) for name in websocket.offered(request))


async def tunnel(
    socket: ClientSocket, upstream: tuple[ByteReader, ByteWriter], *, idle_timeout_s: float
) -> None:
    """Carry bytes until one side ends; closes both. `upstream` has answered 101 to a request for
    UPSTREAM_PROTOCOL over SPDY/3.1, and the `socket` speaks one of PROTOCOLS.
    """
    reader, writer = upstream
    try:
        end = await loops.first(
            _to_client(reader, socket),
            _to_upstream(socket, writer),
            _idle(socket, idle_timeout_s),
            name="tunnel",
        )
        await socket.close(end.code, end.reason)
    except ConnectionError as error:
        log.debug("the client of a tunnel is gone: %s", error)
    finally:
        writer.close()
        asyncio.get_running_loop().call_later(FLUSH_S, writer.transport.abort)


async def _to_client(reader: ByteReader, socket: ClientSocket) -> End:
    while True:
        try:
            data = await reader.read(_READ_BYTES)
        except OSError as error:
            return End(WSCloseCode.INTERNAL_ERROR, f"reading from the runtime failed: {error}")
        if not data:
            return End()
        await socket.send(data)


async def _to_upstream(socket: ClientSocket, writer: ByteWriter) -> End:
    guard = FrameGuard()
    while (message := await socket.receive()) is not None:
        if message.is_text:
            return End(WSCloseCode.UNSUPPORTED_DATA, "a tunnel takes binary messages, not text")
        try:
            start = 0
            while start < len(message.data):
                end = start + max(_CHECKED_BYTES, min(guard.data_left(), _READ_BYTES))
                writer.write(guard.admit(message.data[start:end]))
                start = end
                await writer.drain()
                await socket.take_turn(websocket.MESSAGES_PER_TURN)
        except SpdyError as error:
            return End(WSCloseCode.PROTOCOL_ERROR, str(error))
        except OSError as error:
            return End(WSCloseCode.INTERNAL_ERROR, f"writing to the runtime failed: {error}")
    return End()


async def _idle(socket: ClientSocket, timeout_s: float) -> End:
    await socket.wait_idle(timeout_s)
    return End(WSCloseCode.GOING_AWAY, f"the tunnel was idle for {timeout_s:g} s")
