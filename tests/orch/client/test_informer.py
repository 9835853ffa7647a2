"""Against a small server on loopback that lists, watches and breaks."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from orch.client import informer as informer_module
from orch.client.informer import Informer, InformerMetrics
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient, ListResult
from orch.client.transport import Transport, TransportError
from orch.component.diagnostics.health import CheckFailed
from orch.component.diagnostics.metrics import Registry
from orch.component.process import loops
from orch.component.process.loops import Backoff
from orch.wire.errors import ApiError
from orch.wire.records.core import Node


def node(name: str, revision: int, label: str = "") -> dict[str, Any]:
    metadata = {
        "name": name,
        "uid": f"u-{name}",
        "resourceVersion": str(revision),
        "labels": {"l": label},
    }
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata}


class Server:
    """Nodes and their history; `refuse` answers everything with an error.
    `refuse_watches` does so with watches only.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.revision = 10
        self.refuse: ApiError | None = None
        self.refuse_watches: ApiError | None = None
        self.lie: object = None  # instead of a list
        self.lists = 0
        self.watched_from: list[str] = []
        self.fields: list[str] = []
        self.end_watches = False
        self.streams: list[tuple[web.Request, web.StreamResponse]] = []
        self.ended = asyncio.Event()

    def put(self, name: str, label: str = "") -> dict[str, Any]:
        self.revision += 1
        self.objects[name] = node(name, self.revision, label)
        return self.objects[name]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.fields.append(request.query.get("fieldSelector", ""))
        if int(request.query.get("resourceVersion", 0)) > self.revision:
            ahead = ApiError(504, "Timeout", f"Too large resource version, not {self.revision}")
            return web.json_response(ahead.to_status(), status=504)
        refused = self.refuse or ("watch" in request.query and self.refuse_watches)
        if refused:
            return web.json_response(refused.to_status(), status=refused.code)
        if "watch" in request.query:
            return await self.watch(request)
        self.lists += 1
        if self.lie is not None:
            return web.json_response(self.lie)
        return web.json_response(
            {
                "kind": "NodeList",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": str(self.revision)},
                "items": list(self.objects.values()),
            }
        )

    async def one(self, request: web.Request) -> web.Response:
        if found := self.objects.get(request.match_info["name"]):
            return web.json_response(found)
        refused = ApiError(403, "Forbidden", "a node reads its own pods only")
        return web.json_response(refused.to_status(), status=403)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.watched_from.append(request.query["resourceVersion"])
        if self.end_watches:
            return response
        self.streams.append((request, response))
        await self.ended.wait()
        return response

    async def send(self, kind: str, obj: object) -> None:
        _, response = self.streams[-1]
        await response.write(orjson.dumps({"type": kind, "object": obj}) + b"\n")

    def break_off(self) -> None:
        for request, _ in self.streams:
            if request.transport:
                request.transport.abort()
        self.streams.clear()
        self.ended.set()
        self.ended = asyncio.Event()


class Watcher:
    """An informer under test, and a way to wait for what it should do."""

    def __init__(self, client: ApiClient, silence_s: float) -> None:
        self.changes = 0
        self.changed = asyncio.Event()
        self.client = client
        self.informer = Informer(
            client,
            Node,
            field_selector="metadata.name!=x",
            on_change=self.on_change,
            silence_s=silence_s,
        )

    def on_change(self) -> None:
        self.changes += 1
        self.changed.set()

    def known(self) -> dict[str, str]:
        return {key: obj.metadata.label("l") for key, obj in self.informer.objects().items()}

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.001)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def watcher(
    server: Server,
    aiohttp_server: Callable[[web.Application], Awaitable[TestServer]],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Watcher]:
    """Its watches may be silent for 120 s, or for the parameter of the test."""
    monkeypatch.setattr(informer_module, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(informer_module, "MAX_DELAY_S", 0.01)
    app = web.Application()
    app.router.add_get("/api/v1/nodes", server.handle)
    app.router.add_get("/api/v1/nodes/{name}", server.one)
    listening = await aiohttp_server(app)
    transport = Transport(ClientConfig(server=str(listening.make_url("/"))[:-1]), timeout_s=2)
    watcher = Watcher(ApiClient(transport), getattr(request, "param", 120.0))
    task = loops.spawn(watcher.informer.run(), name="informer")
    yield watcher
    await loops.cancel(task)
    server.break_off()
    await transport.close()


async def test_it_lists_and_then_follows_every_change(server: Server, watcher: Watcher) -> None:
    assert not watcher.informer.synced
    assert watcher.informer.last_contact_s is None
    server.put("a", "1")
    await watcher.informer.wait_synced()
    assert (watcher.informer.synced, watcher.known(), watcher.changes) == (True, {"a": "1"}, 1)
    await watcher.until(lambda: server.streams)
    await server.send("ADDED", server.put("b", "2"))
    await server.send("MODIFIED", server.put("a", "3"))
    await watcher.until(lambda: watcher.changes == 3)
    assert watcher.known() == {"a": "3", "b": "2"}
    await server.send("DELETED", server.put("b"))
    await watcher.until(lambda: watcher.changes == 4)
    assert watcher.known() == {"a": "3"}
    assert (server.lists, server.watched_from) == (1, ["11"])
    assert set(server.fields) == {"metadata.name!=x"}


async def test_the_view_cannot_be_written(server: Server, watcher: Watcher) -> None:
    await watcher.informer.wait_synced()
    with pytest.raises(TypeError):
        watcher.informer.objects()["x"] = Node()  # type: ignore[index]


async def test_it_resumes_after_a_disconnect_from_the_last_event(
    server: Server, watcher: Watcher
) -> None:
    await watcher.until(lambda: server.streams)
    await server.send("ADDED", server.put("a"))
    await watcher.until(lambda: "a" in watcher.known())
    server.break_off()
    await watcher.until(lambda: server.streams)
    assert (server.lists, server.watched_from) == (1, ["10", "11"])


async def test_a_bookmark_moves_the_revision_and_is_contact_but_no_change(
    server: Server, watcher: Watcher
) -> None:
    await watcher.until(lambda: server.streams)
    before = watcher.informer.last_contact_s
    assert before is not None
    await asyncio.sleep(0.002)
    server.revision = 77
    await server.send(
        "BOOKMARK", {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "77"}}
    )
    await watcher.until(lambda: (watcher.informer.last_contact_s or 0) > before)
    server.break_off()
    await watcher.until(lambda: server.streams)
    assert (server.watched_from[-1], watcher.changes) == ("77", 1)


NODES = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "99"}}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"},
        {"kind": "Status", "apiVersion": "v1", "items": []},
        NODES,
        {**NODES, "kind": "PodList", "items": []},
        {**NODES, "metadata": {}, "items": []},
        {**NODES, "items": [{}]},
        {**NODES, "items": [{**node("a", 5), "metadata": {"name": "a"}}]},
        {**NODES, "items": []},  # contradicted by what can be read
    ],
)
async def test_what_is_known_outlives_an_answer_that_is_no_list_of_it(
    wrong: object, server: Server, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    server.put("a")
    server.put("b")
    await watcher.until(lambda: server.streams)
    server.lie = wrong
    expired = ApiError(410, "Expired", "too old resource version").to_status()
    await server.send("ERROR", expired)
    await watcher.until(lambda: server.lists >= 4)
    assert set(watcher.known()) == {"a", "b"}
    assert "cannot watch nodes, retrying" in caplog.text
    server.lie = None
    del server.objects["a"]
    await watcher.until(lambda: set(watcher.known()) == {"b"})


@pytest.mark.parametrize("how", ["event", "status"])
async def test_a_revision_no_longer_held_makes_it_list_again(
    how: str, server: Server, watcher: Watcher
) -> None:
    server.put("a")
    await watcher.until(lambda: server.streams)
    del server.objects["a"]
    server.put("b")
    expired = ApiError(410, "Expired", "too old resource version")
    if how == "event":
        await server.send("ERROR", expired.to_status())
    else:
        server.refuse = expired
        server.break_off()
        await watcher.until(lambda: len(server.fields) > 3)
        server.refuse = None
    await watcher.until(lambda: watcher.known() == {"b": ""})
    assert server.lists == 2


async def test_an_older_store_that_was_restored_is_listed_anew_and_said_once(
    server: Server, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orch.client.informer")
    server.put("kept")
    await watcher.until(lambda: server.streams)
    await server.send("ADDED", server.put("lost"))
    await watcher.until(lambda: "lost" in watcher.known())
    del server.objects["lost"]
    server.revision -= 1
    server.break_off()
    await watcher.until(lambda: watcher.known() == {"kept": ""})
    await watcher.until(lambda: server.streams)
    await server.send("ADDED", server.put("new"))
    await watcher.until(lambda: "new" in watcher.known())
    told = [text for text in caplog.messages if "cannot go on where it was" in text]
    assert len(told) == 1
    assert server.watched_from == ["11", "11"]


async def test_a_revision_that_went_back_makes_it_list_again(
    server: Server, watcher: Watcher
) -> None:
    await watcher.until(lambda: server.streams)
    server.put("lost")
    await server.send("ADDED", server.objects.pop("lost"))
    await watcher.until(lambda: "lost" in watcher.known())
    older = {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "3"}}
    await server.send("BOOKMARK", older)
    await watcher.until(lambda: not watcher.known())
    assert server.lists == 2


async def test_a_watch_that_can_never_go_on_is_said_once_and_asked_for_ever_less_often(
    watcher: Watcher,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "orch.client.informer")
    resets = []
    await watcher.until(lambda: server.streams)
    monkeypatch.setattr(Backoff, "reset", lambda _self: resets.append(1))
    server.refuse_watches = ApiError(504, "Timeout", "Too large resource version")
    server.break_off()
    await watcher.until(lambda: server.lists > 5)
    assert len([text for text in caplog.messages if "cannot go on where it was" in text]) == 1
    assert not resets


async def test_known_objects_stay_readable_during_an_outage_logged_once(
    server: Server, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orch.client.informer")
    server.put("a")
    await watcher.until(lambda: server.streams)
    server.refuse = ApiError(503, "ServiceUnavailable", "starting")
    server.break_off()
    asked = len(server.fields)
    await watcher.until(lambda: len(server.fields) > asked + 5)
    assert watcher.known() == {"a": ""}
    assert caplog.messages.count("cannot watch nodes, retrying: starting") == 1
    server.refuse = None
    await watcher.until(lambda: server.streams)
    await server.send("ADDED", server.put("b"))
    await watcher.until(lambda: "b" in watcher.known())
    assert caplog.messages[-1].startswith("watching nodes again: 1 known (after ")
    assert len(caplog.messages) <= 3


async def test_it_starts_when_the_server_does(server: Server, watcher: Watcher) -> None:
    server.refuse = ApiError(503, "ServiceUnavailable", "starting")
    await watcher.until(lambda: len(server.fields) > 3)
    assert not watcher.informer.synced
    server.refuse = None
    await watcher.informer.wait_synced()


async def test_watches_that_end_at_once_are_not_repeated_without_a_pause(
    server: Server, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = []
    monkeypatch.setattr(Backoff, "next", lambda _self: delays.append(1) or 0.001)
    server.end_watches = True
    await watcher.until(lambda: len(server.watched_from) > 4)
    assert len(delays) >= len(server.watched_from) - 1


@pytest.mark.looptime
async def test_the_delays_grow_from_200_ms_to_7_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    listed_s = []

    class Unreachable:
        async def list(self, *_args: object, **_options: object) -> None:
            listed_s.append(asyncio.get_running_loop().time())
            raise TransportError("unreachable")

    informer = Informer(Unreachable(), Node, on_change=lambda: None)  # type: ignore[arg-type]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(21):
            await informer.run()
    delays_s = [round(later - before, 3) for before, later in itertools.pairwise(listed_s)]
    assert delays_s == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0]


async def test_a_reset_of_the_connections_makes_it_dial_anew_at_once_and_say_so(
    server: Server, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    await watcher.until(lambda: len(server.streams) == 1)
    await watcher.client.transport.reset()
    await watcher.until(lambda: len(server.streams) == 2)
    await server.send("ADDED", server.put("a"))
    await watcher.until(lambda: "a" in watcher.known())
    assert (server.lists, server.watched_from) == (1, ["10", "10"])
    assert "its connections are dialled anew" in caplog.text


@pytest.mark.parametrize("watcher", [0.5], indirect=True)
async def test_a_watch_that_says_nothing_for_too_long_is_dialled_anew(
    server: Server, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    await watcher.until(lambda: len(server.streams) == 2)
    assert "the server did not answer within 0.5 s" in caplog.text
    await server.send("ADDED", server.put("a"))
    await watcher.until(lambda: "a" in watcher.known())


@pytest.mark.looptime
async def test_health_and_a_metric_tell_of_silence() -> None:
    class Hanging:
        async def list(self, *_args: object, **_options: object) -> ListResult[Node]:
            return ListResult((), "1")

        async def watch(self, *_args: object, **options: Any) -> AsyncIterator[None]:
            assert options["silence_s"] == 120
            await asyncio.Event().wait()
            yield

    informer = Informer(Hanging(), Node)  # type: ignore[arg-type]
    registry = Registry(None)
    registry.register(InformerMetrics(lambda: [informer]))
    informer.require_contact()  # it does not run yet
    task = loops.spawn(informer.run(), name="informer")
    await asyncio.sleep(149)
    informer.require_contact()
    await asyncio.sleep(2)
    text = "the API server has not been heard about nodes for 151 s: changes since then are not"
    with pytest.raises(CheckFailed, match=text):
        informer.require_contact()
    page, _ = registry.render("")
    assert b'orch_informer_silence_seconds{resource="nodes"} 151.0' in page
    await loops.cancel(task)


@pytest.mark.looptime
async def test_a_server_that_was_never_heard_is_silent_from_the_start() -> None:
    class Unreachable:
        async def list(self, *_args: object, **_options: object) -> None:
            raise TransportError("unreachable")

    informer = Informer(Unreachable(), Node)  # type: ignore[arg-type]
    task = loops.spawn(informer.run(), name="informer")
    await asyncio.sleep(200)
    with pytest.raises(CheckFailed, match="for 200 s"):
        informer.require_contact()
    await loops.cancel(task)
