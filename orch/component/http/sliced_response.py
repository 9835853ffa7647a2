"""Large response bodies, sent in slices at the pace of the client.

aiohttp writes a whole body to the connection at once. Over TLS, 16 MB are then encrypted in one go,
while nothing else is served, at 1.5 to 1.8 times the CPU of slices that stay in the processor's
cache; 4 MB at 1.2 to 1.3 times. A fast client never makes the sender wait, so the sender yields to
the loop explicitly. `Sending` lets deferrable work wait until no large body is being sent. A
`LazyBody` is made piece by piece at that pace, so that a client which does not read costs a piece.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from aiohttp import HttpVersion11, payload, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_writer import StreamWriter

from orch.component.http import negotiation
from orch.component.http.connection import Connection

SLICE_BYTES = 128 * 1024  # encrypted, it is still below `daemon.LARGE_BYTES`
BYTES_A_TURN = 256 * 1024  # of the event loop: about half a millisecond
_GZIP_LEVEL = 1
_GZIP_FORMAT = 31  # zlib's window bits for the largest window in a gzip file
_PACKER_BYTES = 264 * 1024  # of zlib, for each
_SLICES_A_TURN = BYTES_A_TURN // SLICE_BYTES

Data = bytes | bytearray
Piece = Data | memoryview


class Sending:
    """Counts the large bodies that are being sent."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle_for_threads = threading.Event()
        self._idle.set()
        self._idle_for_threads.set()

    def __enter__(self) -> None:
        self._count += 1
        self._idle.clear()
        self._idle_for_threads.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._idle.set()
            self._idle_for_threads.set()

    async def wait_idle(self, *, within_s: float) -> None:
        """Wait until nothing is being sent, at most `within_s`: clients may be slow."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._idle.wait()

    def thread_pause(self, within_s: float) -> Callable[[], None]:
        """`wait_idle` for a thread to call between pieces of its work; no-op after a timeout."""
        in_time = True

        def pause() -> None:
            nonlocal in_time
            in_time = in_time and self._idle_for_threads.wait(within_s)

        return pause


class _LargeBody(payload.Payload):
    """`packed` is set for one that is sent compressed."""

    packed = False
    held_bytes = 0

    def _send(
        self, pieces: Iterable[Piece], writer: AbstractStreamWriter, *, costly: bool = False
    ) -> Awaitable[None]:
        protocol = writer.protocol if isinstance(writer, StreamWriter) else None
        if self.packed:
            pieces, costly = Gzipped(pieces), True
        return send(pieces, protocol, writer.write, costly=costly, held_bytes=self.held_bytes)


class SlicedBody(_LargeBody):
    """A body; `data` is the whole of it until it has been sent, `original` what an audit log keeps.

    An idle connection keeps its last response, and would keep tens of megabytes with it.
    """

    def __init__(
        self, data: Data, sending: Sending | None = None, *, original: Data | None = None
    ) -> None:
        super().__init__(None)
        self.data = data
        self._original = original
        self._size = len(data)
        self._sending = sending or Sending()

    @property
    def original(self) -> Data:
        return self.data if self._original is None else self._original

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.data.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        data, self.data, self._original = self.data, b"", None
        with self._sending:
            await self._send((data,), writer)


class LazyBody(_LargeBody):
    """A body whose `pieces` are made while it is sent; a memoryview is of bytes that others hold.

    `size` None: not known before. `hold` announces the sending to whoever holds the contents, takes
    what ends it early, and returns what announces its end. `costly`: making a piece takes long.
    `held_bytes` are kept beside the pieces until the last one is sent.
    """

    def __init__(
        self,
        pieces: Callable[[], Iterable[Piece]],
        size: int | None,
        hold: Callable[[Callable[[], None]], Callable[[], None]],
        *,
        costly: bool = False,
        held_bytes: int = 0,
    ) -> None:
        super().__init__(None)
        self._costly = costly
        self.held_bytes = held_bytes
        self.pieces = pieces
        self._size = size
        self._hold = hold

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self.pieces()).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        transport = writer.transport if isinstance(writer, StreamWriter) else None
        release = self._hold(transport.abort if transport else _nothing)
        try:
            await self._send(self.pieces(), writer, costly=self._costly)
        finally:
            release()


def _nothing() -> None: ...


class Gzipped:
    """The pieces, compressed a slice at a time: that takes half a millisecond, two at worst.

    `held_bytes`: what that takes in memory, with the piece whose slices are being sent.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.held_bytes = _PACKER_BYTES
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)
        for piece in self._pieces:
            self.held_bytes = _PACKER_BYTES + _own_bytes(piece)
            view = memoryview(piece)
            for start in range(0, len(view), SLICE_BYTES):
                packed = packer.compress(view[start : start + SLICE_BYTES])
                # Flushed, so that no slice is without output: then the sender would not yield.
                yield packed + packer.flush(zlib.Z_SYNC_FLUSH)
        yield packer.flush()


def _own_bytes(piece: Piece) -> int:
    return 0 if isinstance(piece, memoryview) else len(piece)


async def send(
    pieces: Iterable[Piece],
    protocol: object,
    write: Callable[[Piece], Awaitable[None]],
    *,
    costly: bool = False,
    held_bytes: int = 0,
) -> None:
    """Write the pieces in slices, each of which waits for a slow client of the connection.

    Making `costly` pieces takes turns with all other connections of the listener. `held_bytes` is
    what is kept for them meanwhile.
    """
    connection = protocol if isinstance(protocol, Connection) else None
    making, slices = iter(pieces), 0
    while True:
        if costly and connection is not None:
            await connection.take_turn()
        piece = next(making, None)
        if piece is None:
            return
        if connection is not None:
            packing = pieces.held_bytes if isinstance(pieces, Gzipped) else 0
            connection.sending_bytes = held_bytes + packing + _own_bytes(piece)
        view = memoryview(piece)
        for start in range(0, len(view), SLICE_BYTES):
            if slices and slices % _SLICES_A_TURN == 0:
                await asyncio.sleep(0)
            slices += 1
            await write(view[start : start + SLICE_BYTES])


def respond(
    status: int, body: Data, headers: Mapping[str, str], *, sending: Sending | None = None
) -> web.Response:
    """A plain response for a small body, which is cheaper; `sending` counts the large ones."""
    if len(body) <= SLICE_BYTES:
        return web.Response(status=status, body=body, headers=headers)
    return web.Response(status=status, body=SlicedBody(body, sending), headers=headers)


def compress(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Send a large body compressed, to a client that takes that; as the reference does, whose
    bound and level these are.
    """
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, _LargeBody):
        return
    if body.size is not None and body.size <= SLICE_BYTES:
        return
    encodings = request.headers.get("Accept-Encoding", "")
    if request.version >= HttpVersion11 and negotiation.wants_gzip(encodings):
        body.packed = True
        response.headers["Content-Encoding"] = "gzip"
        response.headers.add("Vary", "Accept-Encoding")
        response.enable_chunked_encoding()


def size_of(response: web.StreamResponse | None) -> int | None:
    """Bytes of the whole body; None for a streamed response, or one without a body."""
    body = response.body if isinstance(response, web.Response) else None
    if isinstance(body, LazyBody):
        return body.size
    whole = body_of(response)
    return None if whole is None else len(whole)


def body_of(response: web.StreamResponse | None) -> Data | None:
    """The whole body; None without one, and where it is made while it is sent."""
    body = response.body if isinstance(response, web.Response) else None
    data = body.original if isinstance(body, SlicedBody) else body
    return data if isinstance(data, bytes | bytearray) else None


def framed(data: bytes) -> bytes:
    """`data`, which is not empty, as a chunk of a chunked response; an empty chunk would end it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def write_chunk(request: web.Request, chunk: bytes) -> None:
    """Write a framed chunk to the connection's buffer from a callback: aiohttp's own `write` must
    be awaited, and waking the handler of a watch for that makes an event 2.3 to 3.9 times as
    expensive.
    """
    if request.transport is not None:
        request.transport.write(chunk)


def takes_more(request: web.Request) -> bool:
    """Whether the client keeps up: its connection's buffer is not full."""
    return not request.protocol.writing_paused
