"""Request IDs: in the response, in every log line, and unique to each request."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from orch.component.http.httpd import HttpServer
from orch.component.process import log


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.StreamResponse:
        logging.getLogger("x").warning("handled %s", request.path)
        if request.path == "/stream":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"a")
            return response
        await asyncio.sleep(0)
        return web.Response(text=log.request_id.get())

    app = web.Application()
    app.router.add_get("/{tail:.*}", handle)
    server = HttpServer(app, host="127.0.0.1", port=0, name="test")
    port = await server.start()
    yield f"http://127.0.0.1:{port}"
    await server.stop(1.0)


async def id_of(session: aiohttp.ClientSession, url: str, **headers: str) -> str:
    async with session.get(url, headers=headers) as response:
        name = response.headers["X-Request-Id"]
        text = await response.text()
        assert text in (name, "a")
        return name


async def test_each_request_has_its_own_id_even_on_one_connection(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        names = [await id_of(session, url) for _ in range(5)]
        names += await asyncio.gather(*(id_of(session, url) for _ in range(5)))
        names.append(await id_of(session, f"{url}/stream"))
    assert len(set(names)) == 11
    assert log.request_id.get() == ""


async def test_the_callers_id_is_kept_where_it_is_a_plain_word(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        assert await id_of(session, url, **{"X-Request-Id": "trace-1.2_3"}) == "trace-1.2_3"
        for odd in ("a b", "a\tb", "<x>", "x" * 65, ""):
            assert await id_of(session, url, **{"X-Request-Id": odd}) != odd


async def test_every_log_line_of_a_request_has_its_id(url: str) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        log.configure(format="json", stream=stream)
        async with aiohttp.ClientSession() as session:
            name = await id_of(session, f"{url}/a")
        log.configure(format="text", stream=stream)
        async with aiohttp.ClientSession() as session:
            other = await id_of(session, f"{url}/b")
        logging.getLogger("x").warning("elsewhere")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    as_json, as_text, outside = stream.getvalue().splitlines()
    assert json.loads(as_json)["request"] == name
    assert as_text.endswith(f"x: handled /b (request {other})")
    assert outside.endswith("x: elsewhere")
