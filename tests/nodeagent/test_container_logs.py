"""The container log endpoint over HTTP, on logs as a runtime writes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from nodeagent.container_logs import FOLLOW_INTERVAL_S, ContainerLogs, follow_interval_s
from nodeagent.pods.logs.reader import LogFilter
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.runtime.base import ContainerState
from orch.component.http import slow_clients
from orch.component.http.httpd import HttpServer, text_errors
from tests.fakes.pods import exited, instance, logged, pod, sandbox, seen

Client = TestClient[web.Request, web.Application]
LINES = b"".join(b"2026-01-31T12:00:0%dZ stdout F line %d\n" % (n, n) for n in range(5))


class Logged:
    def __init__(self, directory: Path) -> None:
        settings = PodSettings("node1", str(directory), str(directory))
        self.registry = PodRegistry(settings)
        self.registry.set_desired([pod()])
        self.current = directory / "1.log"
        self.current.write_bytes(LINES)
        self.coming = directory / "2.log"
        self.former = directory / "0.log"
        self.former.write_bytes(b"2026-01-31T11:00:00Z stderr F it broke\n")
        self.set_running(True)

    def set_running(self, running: bool) -> None:
        now = instance(attempt=1) if running else exited(attempt=1)
        before = exited(attempt=0)
        self.registry.set_view(
            seen(sandbox(), logged(now, self.current), logged(before, self.former))
        )


@pytest.fixture
def logs(tmp_path: Path) -> Logged:
    return Logged(tmp_path)


@pytest_asyncio.fixture
async def client(logs: Logged) -> AsyncIterator[Client]:
    app = web.Application(middlewares=[text_errors])
    now = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)
    ContainerLogs(logs.registry, now=lambda: now).add_to(app)
    client = TestClient(TestServer(app))
    await client.start_server()
    yield client
    await client.close()


ANSWERS = [
    ("", "line 0\nline 1\nline 2\nline 3\nline 4\n"),
    ("?tailLines=2", "line 3\nline 4\n"),
    ("?tail=1&timestamps=true", "2026-01-31T12:00:04Z line 4\n"),
    ("?sinceSeconds=2", "line 3\nline 4\n"),
    ("?limitBytes=9", "line 0\nli"),
    ("?previous=true", "it broke\n"),
    ("?stream=Stderr", ""),
]


@pytest.mark.parametrize(("query", "expected"), ANSWERS)
async def test_a_log_is_shown_by_its_options(client: Client, query: str, expected: str) -> None:
    response = await client.get(f"/containerLogs/default/web/app{query}")
    assert response.status == 200
    assert response.content_type == "text/plain"
    assert await response.text() == expected


REFUSALS = [
    ("default/none/app", 404, 'pod "none" does not exist'),
    ("other/web/app", 404, 'pod "web" does not exist'),
    ("default/web/none", 404, 'container "none" not found in pod "web"'),
    ("default/web/app?tailLines=-1", 422, "tailLines"),
    ("default/web/app?follow=perhaps", 400, "unable to decode query"),
]


@pytest.mark.parametrize(("path", "status", "text"), REFUSALS)
async def test_a_log_that_cannot_be_shown_is_refused(
    client: Client, path: str, status: int, text: str
) -> None:
    response = await client.get(f"/containerLogs/{path}")
    assert response.status == status
    assert text in await response.text()


async def test_a_container_without_a_log_is_waiting(client: Client, logs: Logged) -> None:
    logs.registry.set_view(seen(sandbox()))
    response = await client.get("/containerLogs/default/web/app")
    assert response.status == 400
    expected = 'container "app" in pod "web" is waiting to start: ContainerCreating'
    assert expected in await response.text()
    response = await client.get("/containerLogs/default/web/app?previous=true")
    assert response.status == 400
    assert "previous terminated container" in await response.text()


@pytest.mark.parametrize(("followers", "interval_s"), [(1, 0.25), (100, 0.25), (1000, 2.5)])
def test_many_followers_together_look_as_often_as_few(followers: int, interval_s: float) -> None:
    assert follow_interval_s(followers) == interval_s


@pytest.mark.may_block
async def test_many_readers_have_half_of_the_loops_time_together(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sixty had read was filtered in one turn: it stalled the agent for 320 ms, again and
    again, and a neighbour's pod started after twelve seconds.
    """
    now, spans, feed = asyncio.get_running_loop().time, list[tuple[float, float]](), LogFilter.feed

    def take_long(shown: LogFilter, data: bytes) -> bytes:
        began_s = now()
        time.sleep(0.005)
        spans.append((began_s, now()))
        return feed(shown, data)

    monkeypatch.setattr(LogFilter, "feed", take_long)
    answers = [client.get("/containerLogs/default/web/app") for _ in range(20)]
    assert {await one.text() for one in await asyncio.gather(*answers)} == {ANSWERS[0][1]}
    for (began_s, ended_s), (next_s, _) in pairwise(spans):
        assert next_s - ended_s > 0.9 * (ended_s - began_s), spans


@pytest.mark.slow
async def test_a_reader_may_pause_in_a_log(logs: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server pauses when its own client does."""
    monkeypatch.setattr(slow_clients, "STALL_S", 0.1)
    monkeypatch.setattr(slow_clients, "GRACE_S", 0.1)
    logs.current.write_bytes(LINES * 50_000)
    app = web.Application()
    ContainerLogs(logs.registry).add_to(app)
    listener = HttpServer(app, host="127.0.0.1", port=0, name="test")
    url = f"http://127.0.0.1:{await listener.start()}/containerLogs/default/web/app"
    async with aiohttp.ClientSession() as session, session.get(url, read_bufsize=1000) as answer:
        assert await answer.content.readline() == b"line 0\n"
        await asyncio.sleep(1.0)
        assert (await answer.content.read()).count(b"\n") == 5 * 50_000 - 1
    await listener.stop()


async def test_a_followed_log_grows_and_ends_with_its_container(
    client: Client, logs: Logged
) -> None:
    response = await client.get("/containerLogs/default/web/app?follow=true&tailLines=1")
    assert await response.content.readline() == b"line 4\n"
    with logs.current.open("ab") as stream:
        stream.write(b"2026-01-31T12:00:09Z stdout F more\n")
    async with asyncio.timeout(30):
        assert await response.content.readline() == b"more\n"
        logs.set_running(False)
        assert await response.content.read() == b""


@pytest.mark.parametrize("is_made", [True, False])
async def test_following_a_container_that_is_created_waits_for_its_start(
    client: Client, logs: Logged, is_made: bool
) -> None:
    created = logged(instance(attempt=2, state=ContainerState.CREATED), logs.coming)
    logs.registry.set_view(seen(sandbox(), created))
    if is_made:
        logs.coming.touch()

    async def follow() -> str:
        response = await client.get("/containerLogs/default/web/app?follow=true&tailLines=100")
        return await response.text()

    ended = asyncio.ensure_future(follow())
    await asyncio.sleep(2 * FOLLOW_INTERVAL_S)
    assert not ended.done()
    logs.coming.write_bytes(LINES)
    logs.registry.set_view(seen(sandbox(), logged(instance(attempt=2), logs.coming)))
    await asyncio.sleep(2 * FOLLOW_INTERVAL_S)
    assert not ended.done()
    logs.registry.set_view(seen(sandbox(), logged(exited(attempt=2), logs.coming)))
    assert await ended == "line 0\nline 1\nline 2\nline 3\nline 4\n"


async def test_a_client_that_disconnects_ends_the_stream(client: Client, logs: Logged) -> None:
    def streams() -> bool:
        return any("handle" in repr(task.get_coro()) for task in asyncio.all_tasks())

    response = await client.get("/containerLogs/default/web/app?follow=true&tailLines=0")
    assert streams()
    response.close()
    async with asyncio.timeout(30):
        while streams():
            await asyncio.sleep(0.05)


async def test_a_missing_log_is_reported(client: Client, logs: Logged) -> None:
    logs.current.unlink()
    response = await client.get("/containerLogs/default/web/app")
    assert response.status == 400
    assert "cannot open the log" in await response.text()
