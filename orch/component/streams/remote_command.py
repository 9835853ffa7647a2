"""Exec and attach: a client's WebSocket translated to the SPDY of a runtime's streaming server.

The client's messages begin with the number of a channel, the streams of the runtime have a type. A
closed standard input is passed on as such, and the end is the Status that the runtime gives on its
error stream, or one that says how the connection broke. As the reference's stream translator does,
but also for clients older than sub-protocol v5.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
from enum import IntEnum
from typing import NamedTuple

import orjson

from orch.component.process import loops
from orch.component.streams.spdy import HeaderPairs, SpdyError
from orch.component.streams.spdy_connection import ByteReader, ByteWriter, SpdyConnection
from orch.component.streams.websocket import ClientSocket
from orch.wire.errors import ApiError

log = logging.getLogger(__name__)

UPSTREAM_PROTOCOL = "v4.channel.k8s.io"  # what the runtime's server is asked for
END_S = 10.0  # for a client to take the Status: one that does not read would delay a shutdown
MAX_STATUS_BYTES = 64 * 1024
_CLOSE = 255  # a channel's number in v5: the next byte is that of a channel that ends


class Dialect(NamedTuple):
    """How a sub-protocol writes channels: as text, with ends of channels, errors as a Status."""

    is_base64: bool = False
    has_close: bool = False
    has_status: bool = True


PROTOCOLS = {
    "v5.channel.k8s.io": Dialect(has_close=True),
    "v4.channel.k8s.io": Dialect(),
    "v4.base64.channel.k8s.io": Dialect(is_base64=True),
    "channel.k8s.io": Dialect(has_status=False),
    "base64.channel.k8s.io": Dialect(is_base64=True, has_status=False),
    "": Dialect(has_status=False),
}


class Channel(IntEnum):
    """The first byte of a message."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


class Wanted(NamedTuple):
    """The streams that the request asks for; a terminal has no standard error of its own."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def channels(self) -> tuple[Channel, ...]:
        """Those to open at the runtime, in the reference's order."""
        wanted = (
            (Channel.ERROR, True),
            (Channel.STDIN, self.stdin),
            (Channel.STDOUT, self.stdout),
            (Channel.STDERR, self.stderr and not self.tty),
            (Channel.RESIZE, self.tty),
        )
        return tuple(channel for channel, is_wanted in wanted if is_wanted)


async def translate(
    socket: ClientSocket,
    upstream: tuple[ByteReader, ByteWriter],
    wanted: Wanted,
    *,
    idle_timeout_s: float,
) -> None:
    """Carry a session to its end; closes both sides. `upstream` has answered 101 to a request for
    UPSTREAM_PROTOCOL, and the `socket` speaks one of PROTOCOLS.
    """
    connection = SpdyConnection(*upstream)
    session = _Session(socket, connection, wanted)
    try:
        status = await session.run(idle_timeout_s)
        if status is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await session.end(status)
        await socket.close()
    except ConnectionError as error:
        log.debug("the client of a stream is gone: %s", error)
    finally:
        connection.close()


class _Session:
    """One command and its client."""

    def __init__(self, socket: ClientSocket, connection: SpdyConnection, wanted: Wanted) -> None:
        self._socket = socket
        self._connection = connection
        self._channels = wanted.channels()
        self._dialect = PROTOCOLS[socket.protocol]
        self._streams: dict[Channel, int] = {}
        self._opened = asyncio.Event()

    async def run(self, idle_timeout_s: float) -> bytes | None:
        """The Status of the end, as JSON; None if the client has gone before."""
        outputs = (Channel.STDOUT, Channel.STDERR, Channel.ERROR)
        first = next(channel for channel in outputs if channel in self._channels)
        await self._send(first, b"")  # tells the client that it is connected
        return await loops.first(
            self._output(), self._input(), self._idle(idle_timeout_s), name="translate a stream"
        )

    async def end(self, status: bytes) -> None:
        """Tell the Status as this sub-protocol has it: the old ones have a text, for errors."""
        if not self._dialect.has_status:
            status = _error_text(status)
        if status:
            await self._send(Channel.ERROR, status)

    async def _idle(self, timeout_s: float) -> bytes:
        await self._socket.wait_idle(timeout_s)
        return _failure(f"the stream was idle for {timeout_s:g} s", 504, "Timeout")

    async def _output(self) -> bytes:
        """Pass on what the runtime writes, to the end of all its streams."""
        try:
            headers = [_headers(channel) for channel in self._channels]
            opened = await self._connection.open(*headers)
            self._streams.update(zip(self._channels, opened, strict=True))
            self._opened.set()
            return await self._pass_output()
        except SpdyError as error:
            return _failure(f"the streams of the runtime broke: {error}")

    async def _pass_output(self) -> bytes:
        channels = {stream_id: channel for channel, stream_id in self._streams.items()}
        left = {self._streams[channel] for channel in self._channels if channel in _OUTPUTS}
        status = bytearray()
        while left and (event := await self._connection.receive()) is not None:
            channel = channels.get(event.stream_id)
            if channel is Channel.ERROR:
                status += event.data
                if len(status) > MAX_STATUS_BYTES:
                    raise SpdyError(f"the status has over {MAX_STATUS_BYTES} bytes")
            elif channel in _OUTPUTS and event.data:
                await self._send(channel, event.data)
            if event.is_end:
                left.discard(event.stream_id)
        return bytes(status) or _failure(
            "the runtime ended the streams and did not say how it went"
        )

    async def _input(self) -> None:
        """Pass on what the client sends, until it has gone."""
        await self._opened.wait()
        is_taken = True  # until the runtime takes no more; how it ended comes as output
        while (message := await self._socket.receive()) is not None:
            try:
                if is_taken:
                    await self._pass_input(message.data)
            except SpdyError:
                is_taken = False

    async def _pass_input(self, message: bytes) -> None:
        """What is for no channel of the client's is dropped, as in the reference."""
        if not message:
            return
        number, data = message[0], message[1:]
        if self._dialect.has_close and number == _CLOSE:
            if len(data) == 1 and (stream_id := self._input_stream(data[0])):
                await self._connection.finish(stream_id)
            return
        if self._dialect.is_base64:
            number, data = number - ord("0"), _decoded(data)
        if stream_id := self._input_stream(number):
            await self._connection.write(stream_id, data)

    def _input_stream(self, number: int) -> int | None:
        return self._streams.get(Channel(number)) if number in _INPUTS else None

    async def _send(self, channel: Channel, data: bytes) -> None:
        if self._dialect.is_base64:
            await self._socket.send(b"%d" % channel + base64.b64encode(data), is_text=True)
        else:
            await self._socket.send(bytes((channel,)) + data)


_INPUTS = (Channel.STDIN, Channel.RESIZE)
_OUTPUTS = (Channel.STDOUT, Channel.STDERR, Channel.ERROR)


def _headers(channel: Channel) -> HeaderPairs:
    return (("streamtype", channel.name.lower()),)


def _decoded(data: bytes) -> bytes:
    """Nothing for what is not base64, as in the reference."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        return b""


def _failure(message: str, code: int = 500, reason: str = "InternalError") -> bytes:
    return orjson.dumps(ApiError(code, reason, message).to_status())


def _error_text(status: bytes) -> bytes:
    """What clients that know no Status are told; nothing of a success."""
    try:
        record = orjson.loads(status)
    except orjson.JSONDecodeError:
        return status
    if not isinstance(record, dict) or record.get("status") == "Success":
        return b""
    return str(record.get("message") or "the command failed").encode()
