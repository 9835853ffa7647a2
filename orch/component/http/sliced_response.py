"""A large answer that is sent slice by slice, as fast as its client takes it.

aiohttp hands a whole body to the connection at once. Over TLS one of 16 MB is then encrypted in one
go, while nothing else is served, and takes 1.5 to 1.8 times the CPU of slices that stay in the
processor's cache; one of 4 MB 1.2 to 1.3 times. A client that keeps up never makes the sender wait,
so it gives way to others by itself. `Sending` tells work that can wait when to begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping

from aiohttp import payload, web
from aiohttp.abc import AbstractStreamWriter

SLICE_BYTES = 128 * 1024  # also encrypted none of the blocks that `allocator` gives back at once
BYTES_A_TURN = 256 * 1024  # of the event loop: about half a millisecond

Data = bytes | bytearray


class Sending:
    """The large answers that are being sent at the moment."""

    def __init__(self) -> None:
        self._under_way = 0
        self._none = asyncio.Event()
        self._none_for_threads = threading.Event()
        self._none.set()
        self._none_for_threads.set()

    def __enter__(self) -> None:
        self._under_way += 1
        self._none.clear()
        self._none_for_threads.clear()

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._none.set()
            self._none_for_threads.set()

    async def ended(self, *, within_s: float) -> None:
        """Wait until none is under way, but no longer than that: clients may be slow."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._none.wait()

    def courtesy(self, within_s: float) -> Callable[[], None]:
        """What a thread calls between two pieces of its work: the same wait as `ended`.

        Once that was in vain, it no longer waits.
        """
        patient = True

        def give_way() -> None:
            nonlocal patient
            patient = patient and self._none_for_threads.wait(within_s)

        return give_way


class Sliced(payload.Payload):
    """A body; `data` is all of it."""

    def __init__(self, data: Data, sending: Sending | None = None) -> None:
        super().__init__(data)
        self.data = data
        self._size = len(data)
        self._sending = sending or Sending()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.data.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        view = memoryview(self.data)
        with self._sending:
            for start in range(0, len(view), SLICE_BYTES):
                if start and start % BYTES_A_TURN == 0:
                    await asyncio.sleep(0)
                await writer.write(view[start : start + SLICE_BYTES])  # waits for a slow client


def respond(
    status: int, body: Data, headers: Mapping[str, str], *, sending: Sending | None = None
) -> web.Response:
    """The cheaper way for the small bodies that most are; `sending` counts the large ones."""
    if len(body) <= SLICE_BYTES:
        return web.Response(status=status, body=body, headers=headers)
    return web.Response(status=status, body=Sliced(body, sending), headers=headers)


def size_of(response: web.StreamResponse | None) -> int | None:
    """Bytes of the whole body; None for an answer that is sent piece by piece, or has none."""
    body = body_of(response)
    return None if body is None else len(body)


def body_of(response: web.StreamResponse | None) -> Data | None:
    """The whole body, as it lies there; None for an answer sent piece by piece, or without one."""
    body = response.body if isinstance(response, web.Response) else None
    data = body.data if isinstance(body, Sliced) else body
    return data if isinstance(data, bytes | bytearray) else None
