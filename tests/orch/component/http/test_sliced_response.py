from __future__ import annotations

import asyncio
import gzip
import itertools
import time
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.test_utils import TestClient

from orch.component.http.connection import Connection
from orch.component.http.sliced_response import (
    BYTES_A_TURN,
    SLICE_BYTES,
    Gzipped,
    Sending,
    SlicedBody,
    body_of,
    respond,
    send,
    size_of,
)
from orch.component.process.daemon import LARGE_BYTES

Client = TestClient[web.Request, web.Application]
MakeClient = Callable[[web.Application], Awaitable[Client]]


def test_only_large_bodies_are_sliced_and_each_can_be_had_whole() -> None:
    small, large = b"x" * SLICE_BYTES, b"x" * (SLICE_BYTES + 1)
    assert isinstance(respond(200, small, {}).body, bytes)
    assert isinstance(respond(200, large, {}).body, SlicedBody)
    for body in (b"", small, large, bytearray(small), bytearray(large)):
        assert body_of(respond(201, body, {"X": "y"})) is body
        assert size_of(respond(201, body, {"X": "y"})) == len(body)
    for without in (web.StreamResponse(), web.Response(), None):
        assert body_of(without) is None
        assert size_of(without) is None


def test_a_slice_and_its_encrypted_form_are_no_blocks_that_are_given_back_at_once() -> None:
    assert SLICE_BYTES * 1.1 < LARGE_BYTES


async def test_a_large_body_arrives_whole_while_its_sender_waits_for_a_slow_client(
    aiohttp_client: MakeClient,
) -> None:
    body = bytes(range(256)) * 64 * 1024

    async def large(_request: web.Request) -> web.Response:
        return respond(200, body, {"Content-Type": "text/plain"})

    async def small(_request: web.Request) -> web.Response:
        return respond(200, b"ok", {})

    app = web.Application()
    app.router.add_get("/large", large)
    app.router.add_get("/small", small)
    client = await aiohttp_client(app)
    async with client.get("/large") as slow, asyncio.timeout(20):
        assert await (await client.get("/small")).read() == b"ok"
        assert slow.headers["Content-Length"] == str(len(body))
        assert await slow.read() == body


class _KeepsUp(AbstractStreamWriter):
    """A connection whose client takes everything at once: nothing is ever waited for."""

    def __init__(self) -> None:
        self.taken = bytearray()

    async def write(self, chunk: bytes | bytearray | memoryview[int]) -> None:
        assert len(chunk) <= SLICE_BYTES
        self.taken += chunk

    async def write_eof(self, chunk: bytes = b"") -> None: ...
    async def drain(self) -> None: ...
    def enable_compression(self, encoding: str = "", strategy: int | None = None) -> None: ...
    def enable_chunking(self) -> None: ...
    async def write_headers(self, status_line: str, headers: object) -> None: ...


async def test_others_have_their_turn_also_while_the_client_takes_all_at_once() -> None:
    body = bytes(range(251)) * 8192
    writer, seen = _KeepsUp(), [0]
    sending = asyncio.ensure_future(SlicedBody(body).write(writer))
    while not sending.done():
        await asyncio.sleep(0)
        seen.append(len(writer.taken))
    await sending
    assert bytes(writer.taken) == body
    turns = [after - before for before, after in itertools.pairwise(seen)]
    assert max(turns) <= BYTES_A_TURN < len(body)


async def test_a_compressed_body_gives_others_their_turn_however_small_it_becomes() -> None:
    body = bytes(64 * BYTES_A_TURN)
    compressed = SlicedBody(body)
    compressed.packed = True
    writer, turns = _KeepsUp(), 0
    sending = asyncio.ensure_future(compressed.write(writer))
    while not sending.done():
        await asyncio.sleep(0)
        turns += 1
    await sending
    assert gzip.decompress(writer.taken) == body
    assert turns >= 64
    assert len(writer.taken) < SLICE_BYTES


async def test_what_is_held_while_a_client_takes_a_compressed_body_counts() -> None:
    """Of an unread answer of 3 MB only the slice that waited was counted."""

    async def nothing(_request: object) -> web.StreamResponse:
        raise AssertionError

    connection = Connection(web.Server(nothing), loop=asyncio.get_running_loop())
    counted = []

    async def write(_slice: object) -> None:
        counted.append(connection.sending_bytes)

    body = bytes(8 * SLICE_BYTES)
    await send(Gzipped((body, memoryview(body))), connection, write)
    zlib_bytes = 256 * 1024
    assert min(counted[:8]) > len(body) + zlib_bytes
    assert len(body) > min(counted[8:]) > zlib_bytes  # others hold what a view is of


async def test_a_body_that_was_sent_is_no_longer_held() -> None:
    """An idle connection keeps its last response."""
    body = SlicedBody(bytes(2 * SLICE_BYTES))
    await body.write(_KeepsUp())
    assert size_of(web.Response(body=body)) == 0


async def test_who_waits_for_the_answers_under_way_goes_on_when_the_last_has_ended() -> None:
    sending, writers = Sending(), (_KeepsUp(), _KeepsUp())
    bodies = [bytes(BYTES_A_TURN * turns) for turns in (2, 4)]
    async with asyncio.timeout(20):
        await sending.wait_idle(within_s=3600)
        tasks = [
            asyncio.ensure_future(SlicedBody(body, sending).write(writer))
            for body, writer in zip(bodies, writers, strict=True)
        ]
        await asyncio.sleep(0)
        await sending.wait_idle(within_s=3600)
    assert [len(writer.taken) for writer in writers] == [len(body) for body in bodies]
    await asyncio.gather(*tasks)


async def test_an_answer_that_takes_long_is_not_waited_for_to_its_end() -> None:
    sending = Sending()
    with sending:
        waiting = asyncio.ensure_future(sending.wait_idle(within_s=0.01))
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.wait([waiting], timeout=20)
        assert waiting.done() and waiting.exception() is None


async def test_a_thread_gives_way_between_two_pieces_of_its_work() -> None:
    sending, done = Sending(), asyncio.Event()
    give_way = sending.thread_pause(3600)
    give_way()
    with sending:
        work = asyncio.ensure_future(asyncio.to_thread(give_way))
        work.add_done_callback(lambda _: done.set())
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not done.is_set()
    async with asyncio.timeout(20):
        await work


def test_a_thread_that_waited_in_vain_no_longer_waits() -> None:
    sending = Sending()
    with sending:
        give_way = sending.thread_pause(0.2)
        began_s = time.monotonic()
        for _ in range(100):
            give_way()
    assert 0.2 <= time.monotonic() - began_s < 10


async def test_an_answer_that_breaks_off_is_no_longer_under_way() -> None:
    class Broken(_KeepsUp):
        async def write(self, chunk: bytes | bytearray | memoryview[int]) -> None:
            raise ConnectionResetError

    sending = Sending()
    with pytest.raises(ConnectionResetError):
        await SlicedBody(bytes(BYTES_A_TURN), sending).write(Broken())
    async with asyncio.timeout(20):
        await sending.wait_idle(within_s=3600)
