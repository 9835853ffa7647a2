"""Answers that come to their point, and such as do not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from orch.component.http.short_heads import HEAD_BYTES, ShortHeads

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n"
BODY = bytes(200_000)


@asynccontextmanager
async def answering(start: bytes, *, endlessly: bytes = b"") -> AsyncIterator[str]:
    """The address of a server that begins each answer so; it goes on until it is cut off."""
    sent = asyncio.Queue[int]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(start)
                await writer.drain()
                while endlessly:
                    writer.write(endlessly)
                    await writer.drain()
        writer.close()
        sent.put_nowait(1)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await sent.get()


async def read(address: str, times: int = 1) -> list[bytes]:
    """Over one connection."""
    async with aiohttp.ClientSession(connector=ShortHeads(limit=1)) as session:
        answers = []
        for _ in range(times):
            async with session.get(address) as answer:
                answers.append(await answer.read())
        return answers


@pytest.mark.parametrize("interim", [b"", HINTS, 3 * HINTS])
async def test_a_body_may_be_long_and_a_few_answers_come_before_it(interim: bytes) -> None:
    async with answering(interim + OK + BODY) as address:
        assert await read(address, times=5) == [BODY] * 5


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"", HINTS),
        (b"", 500 * HINTS),
        (b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 8000 + b"\r\n"),
    ],
)
async def test_an_answer_that_does_not_begin_is_cut_off(start: bytes, piece: bytes) -> None:
    async with answering(start, endlessly=piece) as address:
        async with asyncio.timeout(10):
            with pytest.raises(aiohttp.ServerDisconnectedError, match="does not begin"):
                await read(address)


async def test_a_head_may_be_as_long_as_that() -> None:
    lines = (HEAD_BYTES // 2000 - 1) * (b"X: " + b"x" * 1900 + b"\r\n")
    async with answering(b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 0\r\n\r\n") as address:
        assert await read(address) == [b""]
