"""A WebSocket as the side that serves it has it: whole messages, both ways, all of it bounded.

Framing, pings and the closing handshake are aiohttp's. Messages are bounded, as a client may leave
each half sent for as long as it likes; sending waits while the client does not read, and nothing is
received ahead of whoever takes it. Knows when it was last used, and nothing of what messages mean.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import NamedTuple

from aiohttp import WSCloseCode, WSMsgType, web, web_ws

from orch.component.http.connection import BareWebSocket, Connection, allow_pauses
from orch.wire.errors import ApiError, bad_request

MAX_MESSAGE_BYTES = 4 * 1024 * 1024  # a client that sends a file in one message is not unheard of
LITTLE_BYTES = 16 * 1024  # where messages of clients mean nothing
MESSAGES_PER_TURN = 8  # of the event loop; passing one on takes 30 µs
CLOSE_TIMEOUT_S = 5.0  # for the client to answer that it has seen the end
PONG_INTERVAL_S = 15.0  # clients give up after a minute
_MAX_REASON_BYTES = 123  # what a closing frame has room for
# Half of what aiohttp lets wait for whoever receives, of a quarter of a mebibyte: 4,096 messages of
# nothing on each connection. Garbage collection took 150 ms for those of sixty.
web_ws.DEFAULT_CHUNK_SIZE = 8 * 1024  # type: ignore[attr-defined]


class Message(NamedTuple):
    """Text is UTF-8."""

    data: bytes
    is_text: bool


class ClientSocket:
    """An open WebSocket; `protocol` is the sub-protocol agreed upon, "" for none.

    One task at a time receives, one sends.
    """

    def __init__(
        self, socket: web.WebSocketResponse, protocol: str, connection: object = None
    ) -> None:
        self.protocol = protocol
        self._connection = connection
        self._passed = 0  # messages since its latest turn
        self.response = socket  # for the handler to return
        self._socket = socket
        self._receives = False
        self._used_s = asyncio.get_running_loop().time()

    async def receive(self) -> Message | None:
        """The next message; None once the client has closed, is gone, or sent what is no message.

        Who sends more in one than is accepted is told so by the closing code 1009.
        """
        while True:
            await self.take_turn()
            self._receives = True
            try:
                received = await self._socket.receive()
            finally:
                self._receives = False
            self._used_s = asyncio.get_running_loop().time()
            if received.type is WSMsgType.PING:
                await self._socket.pong(received.data)
            elif received.type is not WSMsgType.PONG:
                break
        if received.type in (WSMsgType.BINARY, WSMsgType.TEXT):
            return Message(received.data, received.type is WSMsgType.TEXT)
        return None

    async def take_turn(self, weight: int = 1) -> None:
        """What has arrived is passed on without waiting, thousands of messages on end: after a few,
        or so much other work, it is the turn of everything else.
        """
        self._passed += weight
        if self._passed <= MESSAGES_PER_TURN:
            return
        self._passed = weight
        connection = self._connection
        if isinstance(connection, Connection) and connection.turns is not None:
            await connection.turns.take(connection.owner)
        else:
            await asyncio.sleep(0)

    async def send(self, data: bytes, *, is_text: bool = False) -> None:
        """Wait until the client takes it; ConnectionError once it is gone."""
        await self.take_turn()
        await self._socket.send_frame(data, WSMsgType.TEXT if is_text else WSMsgType.BINARY)
        self._used_s = asyncio.get_running_loop().time()

    async def wait_idle(self, timeout_s: float) -> None:
        """Return when no message has passed for so long.

        While nothing is received, the client's pings are not seen: it is told unasked that this
        side is there, or it would give up because its own messages have to wait.
        """
        loop = asyncio.get_running_loop()
        while (left_s := self._used_s + timeout_s - loop.time()) > 0:
            await asyncio.sleep(min(left_s, PONG_INTERVAL_S))
            if not self._receives:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(1):
                        await self._socket.pong()

    async def close(self, code: int = WSCloseCode.OK, reason: str = "") -> None:
        """Say the end, with a reason for people, and wait a moment for the client's answer."""
        message = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
                await self._socket.close(code=code, message=message)


def offered(request: web.BaseRequest) -> tuple[str, ...]:
    """The sub-protocols that the client speaks, the best first; ("",) if it names none."""
    names = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    return tuple(name.strip() for name in names)


async def accept(
    request: web.BaseRequest, protocols: Collection[str], *, most_bytes: int = MAX_MESSAGE_BYTES
) -> ClientSocket:
    """Answer 101, with the first sub-protocol of the client's that is among `protocols`.

    A message of the client's may have `most_bytes`. ApiError 400 if no sub-protocol is, or if the
    request opens no WebSocket.
    """
    names = offered(request)
    protocol = next((name for name in names if name in protocols), None)
    if protocol is None:
        raise bad_request(
            f"Sec-WebSocket-Protocol: the client speaks {_listed(names)}; "
            f"supported: {_listed(sorted(protocols))}"
        )
    socket = BareWebSocket(
        timeout=CLOSE_TIMEOUT_S,
        protocols=[protocol] if protocol else (),
        compress=False,
        max_msg_size=most_bytes,
        decode_text=False,
        autoping=False,
    )
    allow_pauses(request)
    try:
        await socket.prepare(request)
    except web.HTTPException as error:
        raise _refusal(error) from error
    return ClientSocket(socket, protocol, request.protocol)


def _listed(names: Collection[str]) -> str:
    return ", ".join(name or "none" for name in names)


def _refusal(error: web.HTTPException) -> ApiError:
    return bad_request(f"the request opens no WebSocket: {(error.text or error.reason).strip()}")
