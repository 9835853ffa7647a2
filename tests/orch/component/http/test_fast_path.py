import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from orch.component.http import httpd
from orch.component.http.fast_path import SHORTCUT, Deadlines, Shortcut
from orch.component.http.httpd import HttpServer

Routed = list[str]
LONG_S = 600.0


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


async def test_work_that_never_waits_is_done_however_short_its_time() -> None:
    async def work() -> str:
        return "done"

    assert await Deadlines(0.0).hold(work()) == "done"


async def test_what_work_raises_is_passed_on_before_and_after_it_waited() -> None:
    async def work(*, waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("no")

    for waits in (False, True):
        with pytest.raises(ValueError, match="no"):
            await Deadlines(LONG_S).hold(work(waits=waits))


async def test_work_beyond_its_time_is_cancelled_and_may_clean_up() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(TimeoutError):
        await Deadlines(0.001).hold(work())
    assert cleaned == [True]
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


@pytest.mark.looptime
async def test_each_piece_of_work_has_its_own_time() -> None:
    """The second begins while the first runs, and is late after it."""
    deadlines, ended = Deadlines(0.02), []

    async def work(name: str) -> None:
        try:
            await deadlines.hold(asyncio.Event().wait())
        except TimeoutError:
            ended.append(name)

    first = asyncio.ensure_future(work("first"))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(work("second"))
    await first
    assert ended == ["first"]
    await second
    assert ended == ["first", "second"]


async def test_work_that_ended_in_time_is_left_alone_when_the_next_is_late() -> None:
    deadlines = Deadlines(0.01)
    assert await deadlines.hold(asyncio.sleep(0, "in time")) == "in time"
    with pytest.raises(TimeoutError):
        await deadlines.hold(asyncio.Event().wait())
    assert await deadlines.hold(asyncio.sleep(0, "again")) == "again"


async def test_a_cancelled_task_cancels_its_work_and_is_no_timeout() -> None:
    cancelled = []
    waiting = asyncio.Event()

    async def work() -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    task = asyncio.ensure_future(Deadlines(LONG_S).hold(work()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [True]


async def test_a_deadline_of_the_work_itself_still_holds() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "its own"
        return "none"

    assert await Deadlines(LONG_S).hold(work()) == "its own"
