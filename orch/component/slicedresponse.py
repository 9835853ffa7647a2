"""A large answer that is sent slice by slice, as fast as its client takes it.

aiohttp hands a whole body to the connection at once: over TLS one of 16 MB is then encrypted in one
go, while nothing else is served, and lies in memory several times over, which takes three times as
long as slices that stay in the cache of the processor. A client that keeps up makes nobody wait, so
the sender gives way to others by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import payload, web
from aiohttp.abc import AbstractStreamWriter

SLICE_BYTES = 128 * 1024  # also encrypted none of the blocks that `allocator` gives back at once
BYTES_A_TURN = 256 * 1024  # of the event loop: about half a millisecond

Data = bytes | bytearray


class Sliced(payload.Payload):
    """A body; `data` is all of it."""

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self.data = data
        self._size = len(data)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.data.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        view = memoryview(self.data)
        for start in range(0, len(view), SLICE_BYTES):
            if start and start % BYTES_A_TURN == 0:
                await asyncio.sleep(0)
            await writer.write(view[start : start + SLICE_BYTES])  # waits for a slow client


def respond(status: int, body: Data, headers: Mapping[str, str]) -> web.Response:
    """The cheaper way for the small bodies that most are."""
    if len(body) <= SLICE_BYTES:
        return web.Response(status=status, body=body, headers=headers)
    return web.Response(status=status, body=Sliced(body), headers=headers)


def size_of(response: web.StreamResponse | None) -> int | None:
    """Bytes of the whole body; None for an answer that is sent piece by piece, or has none."""
    body = body_of(response)
    return None if body is None else len(body)


def body_of(response: web.StreamResponse | None) -> Data | None:
    """The whole body, as it lies there; None for an answer sent piece by piece, or without one."""
    body = response.body if isinstance(response, web.Response) else None
    data = body.data if isinstance(body, Sliced) else body
    return data if isinstance(data, bytes | bytearray) else None
