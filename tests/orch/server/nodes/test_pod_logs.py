"""Logs of pods, from an agent that answers as the real one does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from orch.component.http import slow_clients
from orch.component.http.connection import allow_pauses
from orch.component.http.httpd import HttpServer, server_context
from orch.server.nodes.pod_logs import container_of, log_query
from orch.wire.errors import ApiError
from tests.orch.server.harness import MERGE, NODES, PODS, Api, Pki, node, pod

NOT_TAKEN = ("insecureSkipTLSVerifyBackend", "container", "pretty")


LARGE = 16_000_000


class Agent:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.more = asyncio.Event()

    async def logs(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.rel_url.raw_path_qs)
        if request.match_info["container"] == "waiting":
            return web.Response(status=400, text='container "waiting" is waiting to start')
        if request.match_info["container"] == "broken":
            return web.Response(status=502, text="no runtime")
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        await response.write(b"one\n")
        if request.match_info["container"] == "much":
            allow_pauses(request)
            await response.write(bytes(LARGE))
        if "follow" in request.query:
            await self.more.wait()
            await response.write(b"two\n")
        return response


@pytest.fixture
async def agent(server_pki: Pki) -> AsyncIterator[tuple[Agent, int]]:
    agent = Agent()
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", agent.logs)
    pair = server_pki.server
    context = server_context(pair.cert_file, pair.key_file, client_ca_file=server_pki.ca_file)
    server = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="agent")
    yield agent, await server.start()
    await server.stop(grace_s=0.5)


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path, agent: tuple[Agent, int]) -> AsyncIterator[Api]:
    arguments = (f"--nodeagent-certificate-authority={server_pki.ca_file}",)
    api = await Api.start(server_pki, tmp_path / "data", "--node-proxy-allow-loopback", *arguments)
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"nodeagentEndpoint": {"Port": agent[1]}},
    }
    await api.call("POST", NODES, node())
    await api.call("PATCH", f"{NODES}/n1/status", {"status": status}, content_type=MERGE)
    yield api
    await api.stop()


async def made(api: Api, name: str, *containers: str, on: str | None = "n1") -> str:
    body = pod(name, on)
    body["spec"]["containers"] = [{"name": one, "image": "i"} for one in containers]
    assert (await api.call("POST", PODS, body)).status == 201
    return f"{PODS}/{name}/log"


async def test_a_log_comes_from_the_agent_of_the_node(api: Api, agent: tuple[Agent, int]) -> None:
    path = await made(api, "p1", "c")
    answer = await api.call("GET", f"{path}?tailLines=5&timestamps=true&previous=false")
    assert (answer.status, answer.text) == (200, "one\n")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert agent[0].asked == ["/containerLogs/default/p1/c?timestamps=true&tailLines=5"]


async def test_a_followed_log_is_passed_on_while_it_grows(
    api: Api, agent: tuple[Agent, int]
) -> None:
    path = await made(api, "p1", "c")
    async with api.session("admin").get(api.url(f"{path}?follow=true")) as response:
        assert await response.content.readline() == b"one\n"
        agent[0].more.set()
        assert await response.content.read() == b"two\n"


@pytest.mark.parametrize(
    ("protocols", "sent"),
    [
        ((), [b"one\n", b"two\n"]),
        (("binary.k8s.io",), [b"one\n", b"two\n"]),
        (("base64.binary.k8s.io",), ["b25lCg==", "dHdvCg=="]),
    ],
)
async def test_a_log_is_the_messages_of_a_websocket(
    api: Api, agent: tuple[Agent, int], protocols: tuple[str, ...], sent: list[bytes | str]
) -> None:
    url = api.url(f"{await made(api, 'p1', 'c')}?follow=true")
    async with api.session("admin").ws_connect(url, protocols=protocols) as socket:
        assert socket.protocol == (protocols[0] if protocols else None)
        received = [(await socket.receive()).data]
        agent[0].more.set()
        received.append((await socket.receive()).data)
        assert received == sent
        assert (await socket.receive()).data == WSCloseCode.OK


async def test_a_websocket_for_a_log_that_is_refused_is_not_opened(
    api: Api, agent: tuple[Agent, int]
) -> None:
    url = api.url(await made(api, "p1", "waiting"))
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await api.session("admin").ws_connect(url)
    assert refused.value.status == 400
    unknown = api.url(await made(api, "p2", "c"))
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await api.session("admin").ws_connect(unknown, protocols=("v9.log",))
    assert refused.value.status == 400


async def test_a_websocket_for_a_log_keeps_little_of_what_its_client_sends(
    api: Api, agent: tuple[Agent, int]
) -> None:
    """1,024 readers that left messages of 4 MiB half sent took 4 GiB."""
    url = api.url(f"{await made(api, 'p1', 'c')}?follow=true")
    async with api.session("admin").ws_connect(url) as socket:
        assert (await socket.receive()).data == b"one\n"
        await socket.send_bytes(bytes(64 * 1024))
        closed = await socket.receive(5)
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, WSCloseCode.MESSAGE_TOO_BIG)


async def test_a_client_that_leaves_its_websocket_ends_the_request(
    api: Api, agent: tuple[Agent, int]
) -> None:
    open_logs = re.compile(r'apiserver_longrunning_requests\{.*subresource="log".*\} 1')
    url = api.url(f"{await made(api, 'p1', 'c')}?follow=true")
    async with api.session("admin").ws_connect(url) as socket:
        assert (await socket.receive()).data == b"one\n"
        assert open_logs.search((await api.call("GET", "/metrics")).text)
    async with asyncio.timeout(5):
        while open_logs.search((await api.call("GET", "/metrics")).text):
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("allowed_s", [1000.0, 0.0])
async def test_a_reader_may_pause_in_a_log(
    api: Api, monkeypatch: pytest.MonkeyPatch, allowed_s: float
) -> None:
    """As a pager does."""
    monkeypatch.setattr(slow_clients, "STALL_S", 0.1)
    monkeypatch.setattr(slow_clients, "GRACE_S", 0.1)
    monkeypatch.setattr(slow_clients, "PATIENCE_S", allowed_s)
    url = api.url(f"{await made(api, 'p1', 'much')}")
    async with api.session("admin").get(url, read_bufsize=1000) as response:
        assert await response.content.readline() == b"one\n"
        await asyncio.sleep(1.0)
        if allowed_s:
            assert len(await response.content.read()) == LARGE
        else:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.content.read()


async def test_a_pod_without_a_node_has_said_nothing(api: Api) -> None:
    answer = await api.call("GET", await made(api, "p1", "c", on=None))
    assert (answer.status, answer.body) == (200, b"")


async def test_what_the_agent_refuses_is_a_status(api: Api) -> None:
    refused = await api.call("GET", await made(api, "p1", "waiting"))
    assert (refused.status, refused.json["reason"]) == (400, "BadRequest")
    assert refused.json["message"] == 'container "waiting" is waiting to start'
    failed = await api.call("GET", await made(api, "p2", "broken"))
    assert failed.status == 500
    assert failed.json["message"] == "the node's agent answered 502: no runtime"


async def test_names_and_methods_that_do_not_fit_are_refused(api: Api) -> None:
    path = await made(api, "p1", "a", "b")
    assert "choose one of: [a b]" in (await api.call("GET", path)).json["message"]
    assert (await api.call("GET", f"{path}?container=x")).status == 400
    assert (await api.call("GET", f"{path}?container=a&tailLines=x")).status == 422
    assert (await api.call("GET", f"{PODS}/gone/log")).status == 404
    assert (await api.call("POST", path, {})).status == 405


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ({"tailLines": "-1"}, ["tailLines"]),
        ({"tailLines": "9" * 40}, ["tailLines"]),
        ({"sinceSeconds": "0", "limitBytes": "0"}, ["sinceSeconds", "limitBytes"]),
        ({"sinceTime": "2026-01-01T00:00:00Z", "sinceSeconds": "1"}, ["sinceSeconds"]),
        ({"sinceTime": "yesterday"}, ["sinceTime"]),
    ],
)
def test_options_that_cannot_be(query: dict[str, str], fields: list[str]) -> None:
    with pytest.raises(ApiError) as caught:
        log_query("p", query)
    assert [cause.field for cause in caught.value.causes] == fields


def test_only_options_of_the_agent_reach_it() -> None:
    assert log_query("p", dict.fromkeys(NOT_TAKEN, "true")) == ""
    since = {"sinceTime": "2026-01-01T00:00:00Z", "follow": "1"}
    assert log_query("p", since) == "follow=true&sinceTime=2026-01-01T00%3A00%3A00Z"


def test_the_only_container_is_meant_when_none_is_named() -> None:
    document: Any = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}}
    assert container_of(document, "") == "a"
    document["spec"]["initContainers"] = [{"name": "i"}]
    assert container_of(document, "i") == "i"
    with pytest.raises(ApiError, match=r"\[a\] or one of the init containers: \[i\]"):
        container_of(document, "")
