"""The name of a request: in the answer, in every log line, and of its own for each request."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from orch.component.http import httpd
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
        return web.Response(text=httpd.current())

    app = web.Application()
    app.router.add_get("/{tail:.*}", handle)
    server = HttpServer(app, host="127.0.0.1", port=0, name="test")
    port = await server.start()
    yield f"http://127.0.0.1:{port}"
    await server.stop(1.0)


async def named(session: aiohttp.ClientSession, url: str, **headers: str) -> str:
    async with session.get(url, headers=headers) as response:
        name = response.headers["X-Request-Id"]
        text = await response.text()
        assert text in (name, "a")
        return name


async def test_each_request_has_a_name_of_its_own_also_on_one_connection(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        names = [await named(session, url) for _ in range(5)]
        names += await asyncio.gather(*(named(session, url) for _ in range(5)))
        names.append(await named(session, f"{url}/stream"))
    assert len(set(names)) == 11
    assert httpd.current() == ""


async def test_a_callers_own_name_is_kept_where_it_is_a_plain_word(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        assert await named(session, url, **{"X-Request-Id": "trace-1.2_3"}) == "trace-1.2_3"
        for odd in ("a b", "a\tb", "<x>", "x" * 65, ""):
            assert await named(session, url, **{"X-Request-Id": odd}) != odd


async def test_every_line_of_a_request_names_it(url: str) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        log.configure(format="json", stream=stream)
        async with aiohttp.ClientSession() as session:
            name = await named(session, f"{url}/a")
        log.configure(format="text", stream=stream)
        async with aiohttp.ClientSession() as session:
            other = await named(session, f"{url}/b")
        logging.getLogger("x").warning("elsewhere")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    as_json, as_text, outside = stream.getvalue().splitlines()
    assert json.loads(as_json)["request"] == name
    assert as_text.endswith(f"x: handled /b (request {other})")
    assert outside.endswith("x: elsewhere")
