from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.test_utils import TestClient

from orch.component.slicedresponse import SLICE_BYTES, Sliced, body_of, respond, size_of

Client = TestClient[web.Request, web.Application]
MakeClient = Callable[[web.Application], Awaitable[Client]]


def test_only_large_bodies_are_sliced_and_each_can_be_had_whole() -> None:
    small, large = b"x" * SLICE_BYTES, b"x" * (SLICE_BYTES + 1)
    assert isinstance(respond(200, small, {}).body, bytes)
    assert isinstance(respond(200, large, {}).body, Sliced)
    for body in (b"", small, large, bytearray(small), bytearray(large)):
        assert body_of(respond(201, body, {"X": "y"})) is body
        assert size_of(respond(201, body, {"X": "y"})) == len(body)
    for without in (web.StreamResponse(), web.Response(), None):
        assert body_of(without) is None
        assert size_of(without) is None


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
