import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from orch.component.http import httpd
from orch.component.http.httpd import SHORTCUT, HttpServer, Shortcut

Routed = list[str]


@pytest.fixture
async def port(routed: Routed) -> AsyncIterator[int]:
    """An application with a shortcut below /things; `routed` gets the paths the router saw."""

    @web.middleware
    async def marked(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = await handler(request)
        response.headers["Marked"] = "yes"
        return response

    async def answer(request: web.Request) -> web.Response:
        if "path" in request.match_info:
            routed.append(request.raw_path)
        assert request.app is app
        if request.raw_path.endswith("bad"):
            raise web.HTTPNotFound
        return web.Response(body=b"thing")

    async def other(request: web.Request) -> web.Response:
        return web.Response(body=b"other")

    app = web.Application(middlewares=[httpd.api_errors, marked])
    app.router.add_get("/things/", other)
    app[SHORTCUT] = Shortcut(("/things/",), app.router.add_route("*", "/things/{path:.+}", answer))
    server = HttpServer(app, host="127.0.0.1", port=0, name="test server")
    yield await server.start()
    await server.stop(0.1)


@pytest.fixture
def routed() -> Routed:
    return []


async def ask(port: int, path: str, *headers: str) -> tuple[str, str]:
    """The head and the body of the answer, after a 100 if there was one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = (f"GET {path} HTTP/1.1", "Host: h", "Connection: close", *headers, "", "")
    writer.write("\r\n".join(lines).encode())
    answered = (await reader.read()).decode()
    writer.close()
    head, _, body = answered.rpartition("\r\n\r\n")
    return head, body


async def test_a_plain_path_below_a_prefix_passes_the_router_by(port: int, routed: Routed) -> None:
    head, body = await ask(port, "/things/a/b?c=d")
    assert body == "thing"
    assert routed == []
    assert "Marked: yes" in head, "the middlewares ran"
    assert "X-Request-Id: " in head, "the application's signals ran"
    assert "Server:" not in head


@pytest.mark.parametrize("path", ["/things/a%2Fb", "/things/a/"])
async def test_what_needs_a_look_is_routed(port: int, routed: Routed, path: str) -> None:
    _, body = await ask(port, path)
    assert (body, routed) == ("thing", [path])


async def test_the_prefix_itself_and_other_paths_are_routed(port: int, routed: Routed) -> None:
    assert (await ask(port, "/things/"))[1] == "other"
    assert (await ask(port, "/thing"))[1] == "404 page not found\n"
    assert routed == []


async def test_a_client_that_waits_for_a_100_gets_it(port: int, routed: Routed) -> None:
    head, body = await ask(port, "/things/a", "Expect: 100-continue")
    assert head.startswith("HTTP/1.1 100 Continue")
    assert (body, routed) == ("thing", ["/things/a"])


async def test_errors_are_answered_as_by_the_router(port: int, routed: Routed) -> None:
    assert (await ask(port, "/things/bad"))[1] == "404 page not found\n"
    assert routed == []
