"""A client's connection of SPDY/3.1, over a pair of streams whose server has answered 101.

Opens streams, writes to them and gives what comes. Writing waits while the other side does not
read, and nothing is read ahead of whoever takes the events, so that a slow side stops the fast one.
Knows nothing of what the streams carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from orch.component.streams import spdy
from orch.component.streams.spdy import Data, Frame, GoAway, HeaderPairs, Ping, RstStream, SpdyError

OPEN_TIMEOUT_S = 30.0  # for the server to take new streams, as in the reference
FLUSH_S = 10.0  # for what was written before the end
WRITE_BYTES = 32 * 1024  # of one data frame, so that streams take turns
_READ_BYTES = 16 * 1024  # in one turn of the event loop: of the smallest frames it holds thousands
_MAX_WAITING_BYTES = 64 * 1024  # for the other side to read, before its pings go unanswered


class ByteReader(Protocol):
    """What an `asyncio.StreamReader` does."""

    async def read(self, size: int, /) -> bytes: ...


class ByteTransport(Protocol):
    """What lies below a `ByteWriter`."""

    def get_write_buffer_size(self) -> int: ...
    def abort(self) -> None: ...


class ByteWriter(Protocol):
    """What an `asyncio.StreamWriter` does."""

    @property
    def transport(self) -> ByteTransport: ...
    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class Received(NamedTuple):
    """Bytes of a stream; `is_end`: nothing more comes on it."""

    stream_id: int
    data: bytes
    is_end: bool


class SpdyConnection:
    """`open` first, then `receive` to the end, and `write` meanwhile; `close` at last.

    All but `close` raise SpdyError once the connection is broken.
    """

    def __init__(self, reader: ByteReader, writer: ByteWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._encoder = spdy.FrameWriter()
        self._decoder = spdy.FrameReader()
        self._decoded: Iterator[Frame] = iter(())
        self._next_id = 1
        self._finished: set[int] = set()  # to which nothing more may be written

    async def open(
        self, *streams: HeaderPairs, timeout_s: float = OPEN_TIMEOUT_S
    ) -> tuple[int, ...]:
        """Open streams with these headers; their ids once the other side has taken them all.

        SpdyError when it refuses one, takes longer than `timeout_s`, or ends.
        """
        opened = tuple(range(self._next_id, self._next_id + 2 * len(streams), 2))
        self._next_id += 2 * len(streams)
        frames = [spdy.SynStream(*pair) for pair in zip(opened, streams, strict=True)]
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(*frames)
                await self._wait_taken(set(opened))
        except TimeoutError:
            text = f"the other side took no new streams within {timeout_s:g} s"
            raise SpdyError(text) from None
        return opened

    async def _wait_taken(self, waiting: set[int]) -> None:
        while waiting:
            match await self._next_frame():
                case spdy.SynReply(stream_id):
                    waiting.discard(stream_id)
                case RstStream(stream_id, status) if stream_id in waiting:
                    raise SpdyError(f"the other side refused a stream (status {status})")
                case Data():
                    raise SpdyError("the other side sent data before it took all streams")
                case GoAway() | None:
                    raise SpdyError("the other side ended before it took the streams")

    async def receive(self) -> Received | None:
        """What comes next on any stream; None at the end of the connection."""
        while True:
            match await self._next_frame():
                case Data(stream_id, data, is_fin):
                    return Received(stream_id, data, is_fin)
                case RstStream(stream_id):
                    self._finished.add(stream_id)
                    return Received(stream_id, b"", is_end=True)
                case spdy.SynReply(stream_id, _, True) | spdy.Headers(stream_id, _, True):
                    return Received(stream_id, b"", is_end=True)
                case GoAway() | None:
                    return None

    async def write(self, stream_id: int, data: bytes) -> None:
        """Wait until the other side takes the data; what it no longer wants is dropped."""
        for start in range(0, len(data), WRITE_BYTES):
            if stream_id in self._finished:
                return
            await self._send(Data(stream_id, data[start : start + WRITE_BYTES]))

    async def finish(self, stream_id: int) -> None:
        """Nothing more is written to the stream; what comes on it still comes."""
        if stream_id not in self._finished:
            self._finished.add(stream_id)
            await self._send(Data(stream_id, b"", is_fin=True))

    def close(self) -> None:
        """End all streams and the connection; what was written has FLUSH_S to be sent."""
        self._writer.write(self._encoder.write(GoAway(0)))
        self._writer.close()
        asyncio.get_running_loop().call_later(FLUSH_S, self._writer.transport.abort)

    async def _send(self, *frames: Frame) -> None:
        self._writer.write(b"".join(map(self._encoder.write, frames)))
        try:
            await self._writer.drain()
        except OSError as error:
            raise SpdyError(f"writing failed: {error}") from error

    async def _next_frame(self) -> Frame | None:
        """None at the end."""
        while (frame := next(self._decoded, None)) is None:
            await asyncio.sleep(0)  # reading what is there already does not wait
            try:
                data = await self._reader.read(_READ_BYTES)
            except OSError as error:
                raise SpdyError(f"reading failed: {error}") from error
            if not data:
                return None
            self._decoded = self._answered(self._decoder.feed(data))
        return frame

    def _answered(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """Those frames that are not about the connection itself, and the end of it."""
        for frame in frames:
            match frame:
                case Ping(ping_id) if ping_id % 2 == 0:
                    if self._writer.transport.get_write_buffer_size() < _MAX_WAITING_BYTES:
                        self._writer.write(self._encoder.write(frame))
                case spdy.SynStream():
                    raise SpdyError("the other side opened a stream, which a client does not take")
                case Ping() | spdy.Settings() | spdy.WindowUpdate():
                    pass
                case _:
                    yield frame
