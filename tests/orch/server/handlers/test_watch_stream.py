"""Watches over HTTP: what comes, in which order, and how a stream ends."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson
import pytest

from orch.component.http import httpd
from orch.component.http.connection import Connection
from orch.component.process import clock
from orch.server.handlers import render, watch_stream
from tests.orch.server.harness import LEASES, MERGE, NODES, PODS, Api, lease, node, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Stream:
    """The lines of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            line = await self.response.content.readline()
        assert line, "the stream ended"
        event: dict[str, Any] = orjson.loads(line)
        return event

    async def chunk(self) -> bytes:
        """The next chunk as it was sent."""
        data, is_whole = b"", False
        while not is_whole:
            part, is_whole = await self.response.content.readchunk()
            data += part
        return data

    async def take(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(e["type"], e["object"]["metadata"]["name"]) for e in events]

    async def ended(self) -> bool:
        async with asyncio.timeout(30):
            return await self.response.content.readline() == b""


@asynccontextmanager
async def watching(
    api: Api, path: str, *, user: str = "admin", accept: str = "application/json"
) -> AsyncIterator[Stream]:
    joint = "&" if "?" in path else "?"
    async with api.session(user).get(
        api.url(f"{path}{joint}watch=1"), headers={"Accept": accept}
    ) as response:
        assert response.status == 200, await response.text()
        yield Stream(response)


async def version(api: Api, path: str = PODS) -> str:
    listed = (await api.call("GET", path)).json
    return str(listed["metadata"]["resourceVersion"])


async def test_changes_after_a_version_come_in_order(api: Api) -> None:
    await api.call("POST", PODS, pod("before"))
    async with watching(api, f"{PODS}?resourceVersion={await version(api)}") as stream:
        created = (await api.call("POST", PODS, pod("a"))).json
        await api.call(
            "PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, content_type=MERGE
        )
        await api.call("POST", NODES, node("other-kind"))
        await api.call("DELETE", f"{PODS}/a")
        added, modified, deleted = [await stream.next() for _ in range(3)]
        assert [e["type"] for e in (added, modified, deleted)] == ["ADDED", "MODIFIED", "DELETED"]
        assert added["object"] == created
        assert deleted["object"]["metadata"]["labels"] == {"x": "y"}
        versions = [
            int(e["object"]["metadata"]["resourceVersion"]) for e in (added, modified, deleted)
        ]
        assert versions == sorted(set(versions))


async def test_the_past_is_replayed_from_a_version(api: Api) -> None:
    start = await version(api)
    for name in ("a", "b"):
        await api.call("POST", PODS, pod(name))
    await api.call("DELETE", f"{PODS}/a")
    async with watching(api, f"{PODS}?resourceVersion={start}") as stream:
        assert await stream.take(3) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


@pytest.mark.parametrize("query", ["", "?resourceVersion=0"])
async def test_without_a_version_what_is_there_comes_first(api: Api, query: str) -> None:
    for name in ("b", "a"):
        await api.call("POST", PODS, pod(name))
    async with watching(api, PODS + query) as stream:
        assert await stream.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        await api.call("DELETE", f"{PODS}/b")
        assert await stream.take(1) == [("DELETED", "b")]


async def test_objects_enter_and_leave_a_selector(api: Api) -> None:
    await api.call("POST", PODS, pod("a"))
    async with watching(api, f"{PODS}?labelSelector=mine&resourceVersion=0") as stream:
        for labels in ({"mine": "1"}, {"mine": "2"}, {"mine": None}):
            await api.call(
                "PATCH", f"{PODS}/a", {"metadata": {"labels": labels}}, content_type=MERGE
            )
        await api.call("DELETE", f"{PODS}/a")
        added, modified, left = [await stream.next() for _ in range(3)]
        assert [e["type"] for e in (added, modified, left)] == ["ADDED", "MODIFIED", "DELETED"]
        assert left["object"]["metadata"]["labels"] == {"mine": "2"}  # as it last matched
        assert int(left["object"]["metadata"]["resourceVersion"]) > int(
            modified["object"]["metadata"]["resourceVersion"]
        )


async def test_a_node_sees_pods_when_they_are_bound_to_it(api: Api) -> None:
    own = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"
    async with watching(api, own, user="n1") as stream:
        await api.call("POST", PODS, pod("a"))
        await api.call("POST", PODS, pod("b", node="n2"))
        await api.call("POST", f"{PODS}/a/binding", {"target": {"kind": "Node", "name": "n1"}})
        assert await stream.take(1) == [("ADDED", "a")]


async def test_one_object_is_watched_by_name(api: Api) -> None:
    async with watching(api, f"{LEASES}?fieldSelector=metadata.name%3Dn1") as stream:
        await api.call("POST", LEASES, lease("n2"))
        await api.call("POST", LEASES, lease("n1"))
        assert await stream.take(1) == [("ADDED", "n1")]


async def test_a_forgotten_version_is_an_error_event(api: Api) -> None:
    start = await version(api)
    for name in ("a", "b", "c"):
        await api.call("POST", PODS, pod(name))
    api.server.storage.compact(1)
    async with watching(api, f"{PODS}?resourceVersion={start}") as stream:
        event = await stream.next()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert await stream.ended()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The server's ends of all connections, if this comes before `api`."""
    made: list[Connection] = []

    class Remembered(Connection):
        def __init__(self, *given: Any, **settings: Any) -> None:
            super().__init__(*given, **settings)
            made.append(self)

    monkeypatch.setattr(httpd, "Connection", Remembered)
    return made


async def test_a_slow_client_gets_what_it_missed(connections, api: Api) -> None:
    async with watching(api, PODS) as stream:
        (connection,) = [one for one in connections if not one.is_idle]
        connection.pause_writing()  # as the transport does while its buffer is full
        for name in ("a", "b"):
            await api.call("POST", PODS, pod(name))
        assert connection.transport.get_write_buffer_size() == 0
        connection.resume_writing()
        assert await stream.take(2) == [("ADDED", "a"), ("ADDED", "b")]


async def test_more_events_than_go_into_a_write_come_in_several(api: Api, monkeypatch) -> None:
    monkeypatch.setattr(watch_stream, "EVENTS_PER_WRITE", 2)
    async with watching(api, PODS) as stream:
        await asyncio.gather(*(api.call("POST", PODS, pod(f"p{n}")) for n in range(7)))
        assert sorted(name for _, name in await stream.take(7)) == [f"p{n}" for n in range(7)]


async def test_watchers_of_all_and_of_one_namespace_are_told_each_their_own(api: Api) -> None:
    elsewhere = "/api/v1/namespaces/orch-system/pods"
    async with watching(api, "/api/v1/pods") as everywhere, watching(api, PODS) as here:
        await asyncio.gather(
            *(api.call("POST", path, pod(f"p{n}")) for path in (PODS, elsewhere) for n in range(3))
        )
        seen = [(await everywhere.next())["object"]["metadata"]["namespace"] for _ in range(6)]
        assert sorted(seen) == ["default"] * 3 + ["orch-system"] * 3
        assert sorted(await here.take(3)) == [("ADDED", f"p{n}") for n in range(3)]


async def test_what_fails_while_events_are_written_ends_the_stream(api: Api, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with watching(api, PODS) as stream:
        monkeypatch.setattr(watch_stream.list_watch, "events_of", fail)
        await api.call("POST", PODS, pod("a"))
        with pytest.raises(aiohttp.ClientError):
            await stream.next()


@pytest.mark.looptime
async def test_writes_of_busy_watches_are_done_together_and_in_time() -> None:
    shared, loop, written_s = watch_stream.Shared(), asyncio.get_running_loop(), []
    began_s = loop.time()

    def write() -> None:
        written_s.append(loop.time() - began_s)
        if len(written_s) == 2:
            shared.write_later(write)

    shared.write_later(write)
    await asyncio.sleep(watch_stream.COALESCE_S / 2)
    shared.write_later(write)
    assert written_s == []
    await asyncio.sleep(4 * watch_stream.COALESCE_S)
    assert written_s == pytest.approx([watch_stream.COALESCE_S * turn for turn in (1, 1, 2)])


async def test_events_of_a_busy_watch_come_in_one_chunk(api: Api, monkeypatch) -> None:
    later: list[watch_stream.Write] = []
    monkeypatch.setattr(watch_stream.Shared, "write_later", lambda _, write: later.append(write))
    async with watching(api, PODS) as stream, asyncio.timeout(30):
        monkeypatch.setattr(watch_stream, "BUSY_S", -1.0)
        await api.call("POST", PODS, pod("a"))
        assert (await stream.chunk()).count(b"\n") == 1
        monkeypatch.setattr(watch_stream, "BUSY_S", math.inf)
        for name in "bcd":
            await api.call("POST", PODS, pod(name))
        (write,) = later
        write()
        assert (await stream.chunk()).count(b"\n") == 3


async def test_a_client_that_falls_behind_is_told_so(connections, api: Api) -> None:
    await api.call("POST", PODS, pod("a"))
    async with watching(api, PODS) as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        (connection,) = [one for one in connections if not one.is_idle]
        connection.pause_writing()
        for name in ("b", "c", "d"):
            await api.call("POST", PODS, pod(name))
        api.server.storage.compact(1)
        connection.resume_writing()
        event = await stream.next()
        assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")
        assert await stream.ended()


async def test_a_version_yet_to_come_is_refused(api: Api) -> None:
    answer = await api.call("GET", f"{PODS}?watch=1&resourceVersion=999999")
    assert answer.status == 504
    assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def raw_answer(api: Api, request: str) -> tuple[bytes, bytes]:
    """Headers and what follows them, as they are sent, until the server closes."""
    context = ssl.create_default_context(cafile=api.pki.ca_file)
    pair = api.pki.users["admin"]
    context.load_cert_chain(pair.cert_file, pair.key_file)
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port, ssl=context)
    writer.write(f"{request}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(30):
        headers, _, rest = (await reader.read(-1)).partition(b"\r\n\r\n")
    writer.close()
    return headers, rest


async def test_head_of_a_watch_is_answered_by_headers_alone(api: Api) -> None:
    await api.call("POST", PODS, pod("a"))
    headers, rest = await raw_answer(api, f"HEAD {PODS}?watch=1 HTTP/1.1")
    assert headers.startswith(b"HTTP/1.1 200 OK")
    assert b"Content-Type: application/json" in headers
    assert rest == b""


async def test_a_watch_without_chunks_is_refused(api: Api) -> None:
    headers, rest = await raw_answer(api, f"GET {PODS}?watch=1 HTTP/1.0")
    assert headers.startswith(b"HTTP/1.0 400 Bad Request")
    assert b"a watch needs HTTP/1.1" in rest


async def test_a_stream_ends_cleanly_when_its_time_is_up(api: Api) -> None:
    async with watching(api, f"{PODS}?timeoutSeconds=1") as stream:
        assert await stream.ended()


async def test_bookmarks_say_how_far_the_watch_has_come(api: Api, monkeypatch) -> None:
    monkeypatch.setattr(watch_stream, "BOOKMARK_S", 0.05)
    async with watching(api, f"{PODS}?allowWatchBookmarks=true") as stream:
        await api.call("POST", NODES, node())  # of another kind, but it moves the version
        newest = await version(api)
        event = await stream.next()
        while event["object"]["metadata"]["resourceVersion"] != newest:
            event = await stream.next()
        assert event["type"] == "BOOKMARK"
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("Pod", "v1")


async def test_the_last_line_before_the_time_is_up_is_a_bookmark(api: Api) -> None:
    async with watching(api, f"{PODS}?allowWatchBookmarks=true&timeoutSeconds=1") as stream:
        assert (await stream.next())["type"] == "BOOKMARK"
        assert await stream.ended()


async def test_the_end_of_the_initial_events_is_marked_when_asked_for(api: Api) -> None:
    await api.call("POST", PODS, pod("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with watching(api, f"{PODS}?{query}") as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        mark = await stream.next()
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert mark["object"]["metadata"]["resourceVersion"] == await version(api)


async def test_only_the_first_table_of_a_stream_names_the_columns(api: Api) -> None:
    await api.call("POST", PODS, pod("a"))
    async with watching(api, PODS, accept=TABLE) as stream:
        assert stream.response.headers["Content-Type"].startswith("application/json;as=Table")
        first = await stream.next()
        await api.call("POST", PODS, pod("b"))
        second = await stream.next()
        assert first["object"]["kind"] == "Table"
        assert first["object"]["columnDefinitions"]
        assert second["object"]["columnDefinitions"] == []
        assert second["object"]["rows"][0]["cells"][0] == "b"


@pytest.mark.slow
async def test_many_events_come_whole_and_once(api: Api) -> None:
    async with watching(api, LEASES) as stream:
        await asyncio.gather(*(api.call("POST", LEASES, lease(f"l{n}")) for n in range(300)))
        seen = await stream.take(300)
        assert sorted(name for _, name in seen) == sorted(f"l{n}" for n in range(300))


async def test_every_watcher_gets_every_event(api: Api) -> None:
    async with watching(api, NODES) as one, watching(api, NODES) as other:
        await api.call("POST", NODES, node("a"))
        assert await one.take(1) == await other.take(1) == [("ADDED", "a")]


async def test_streams_end_when_the_server_stops(api: Api) -> None:
    async with watching(api, PODS) as stream:
        await api.server.wind_down()
        assert await stream.ended()


async def test_a_client_that_left_is_noticed(api: Api, monkeypatch) -> None:
    monkeypatch.setattr(watch_stream, "GONE_CHECK_S", 0.02)
    async with watching(api, PODS) as stream:
        stream.response.close()
    gauge = 'apiserver_longrunning_requests{component="apiserver",group="",resource="pods"'
    async with asyncio.timeout(30):
        while True:
            page = (await api.call("GET", "/metrics")).text
            lines = [line for line in page.splitlines() if line.startswith(gauge)]
            if lines and lines[0].endswith(" 0.0"):
                break


async def test_what_is_parsed_for_a_table_is_parsed_once_for_all_who_watch(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with a selector of its own; of a large object, too."""
    rendered: list[str] = []
    render_event = render.render_event

    def counted(*event: Any, first: bool) -> bytes:
        rendered.append("")
        return render_event(*event, first=first)

    monkeypatch.setattr(render, "render_event", counted)
    monkeypatch.setattr(clock, "utc_now", lambda: datetime(2026, 1, 31, tzinfo=UTC))
    async with AsyncExitStack() as stack:
        path = f"{PODS}?resourceVersion={await version(api)}&labelSelector=n!%3D"
        streams = [
            await stack.enter_async_context(watching(api, f"{path}{number}", accept=TABLE))
            for number in range(10)
        ]
        await api.call("POST", PODS, pod("p1"))
        large = {"metadata": {"annotations": {"a": "x" * 2 * watch_stream.COSTLY_BYTES}}}
        await api.call("PATCH", f"{PODS}/p1", large, content_type=MERGE)
        for kind in ("ADDED", "MODIFIED"):
            events = [await stream.next() for stream in streams]
            assert {event["type"] for event in events} == {kind}
            assert len({orjson.dumps(event) for event in events}) == 1
    assert len(rendered) == 2
