"""The node proxy against a real agent's listener, over TLS on both sides."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from orch.component.http.httpd import HttpServer, current_peer, server_context
from orch.component.process import clock
from orch.server.nodes import proxy
from tests.orch.server.harness import NODES, Api, Pki, make_pki, node

PROXY = f"{NODES}/n1/proxy"


@dataclass
class Agent:
    """What the agent saw, and the gates of its slow answers."""

    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, request: web.Request) -> web.Response:
        identity = current_peer(request)
        self.requests.append(
            {
                "method": request.method,
                "path": request.rel_url.raw_path_qs,
                "headers": dict(request.headers),
                "body": await request.read(),
                "user": identity.name if identity else None,
            }
        )
        return web.Response(
            body=b"echo", status=int(request.query.get("status", 200)), headers={"X-Agent": "yes"}
        )

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await self.more.wait()
        if "break" in request.query and request.transport is not None:
            request.transport.abort()
        await response.write(b"second\n")
        return response

    async def wait(self, request: web.Request) -> web.Response:
        """An answer that never begins."""
        await request.read()
        self.waiting.set()
        try:
            while not self.more.is_set() and request.transport is not None:
                await asyncio.sleep(0.01)
        finally:  # a read is cancelled when its client leaves, a write goes on
            self.left.set()
        return web.Response(text="late")

    async def redirect(self, request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query["to"]})

    def app(self) -> web.Application:
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", "/stream", self.stream)
        app.router.add_route("*", "/wait", self.wait)
        app.router.add_route("*", "/redirect", self.redirect)
        app.router.add_route("*", "/{path:.*}", self.echo)
        return app


@pytest.fixture
async def agent(server_pki: Pki) -> AsyncIterator[Agent]:
    agent = Agent()
    context = server_context(
        server_pki.server.cert_file, server_pki.server.key_file, client_ca_file=server_pki.ca_file
    )
    server = HttpServer(agent.app(), host="127.0.0.1", port=0, ssl_context=context, name="agent")
    agent.port = await server.start()
    yield agent
    agent.more.set()
    await server.stop(grace_s=0.5)


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path) -> AsyncIterator[Api]:
    api = await Api.start(server_pki, tmp_path / "data", *arguments(server_pki))
    yield api
    await api.stop()


def arguments(pki: Pki, *more: str) -> tuple[str, ...]:
    return (
        "--nodeagent-certificate-authority", pki.ca_file,
        "--nodeagent-client-certificate", pki.users["admin"].cert_file,
        "--nodeagent-client-key", pki.users["admin"].key_file,
        "--node-proxy-allow-loopback",
        *more,
    )  # fmt: skip


def reported(name: str, port: int, address: str = "127.0.0.1") -> dict[str, Any]:
    return node(name) | {
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"nodeagentEndpoint": {"Port": port}},
        }
    }


async def test_a_request_reaches_the_agent_as_the_server_and_without_credentials(
    api: Api, agent: Agent
) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    answer = await api.call(
        "POST",
        f"{PROXY}/checkpoint/ns/a%2Fb/c?timeout=3&x=%20y",
        b"payload",
        headers={
            "Authorization": "Bearer secret",
            "Connection": "keep-alive, X-Private",
            "X-Private": "1",
            "X-Public": "2",
            "Impersonate-User": "root",
            "Impersonate-Group": "system:masters",
            "X-Remote-User": "root",
            "X-Forwarded-For": "1.2.3.4",
        },
    )
    assert (answer.status, answer.body, answer.headers["X-Agent"]) == (200, b"echo", "yes")
    seen = agent.requests[0]
    assert seen["method"] == "POST"
    assert seen["path"] == "/checkpoint/ns/a/b/c?timeout=3&x=%20y"
    assert seen["body"] == b"payload"
    assert seen["user"] == "admin"  # the certificate the server was given for agents
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert headers["x-public"] == "2"
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert headers["x-forwarded-uri"] == f"{PROXY}/checkpoint/ns/a%2Fb/c"
    refused = {"authorization", "x-private", "x-remote-user"}
    refused |= {"impersonate-user", "impersonate-group"}
    assert not refused & headers.keys()


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_every_method_is_handed_on(api: Api, agent: Agent, method: str) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    answer = await api.call(method, f"{PROXY}/x")
    assert answer.status == 200
    assert [seen["method"] for seen in agent.requests] == [method]


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_the_agents_own_codes_are_handed_back(api: Api, agent: Agent, status: int) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    answer = await api.call("GET", f"{PROXY}/x?status={status}")
    assert (answer.status, answer.body) == (status, b"echo")


async def test_the_answer_is_streamed(api: Api, agent: Agent) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    async with api.session("admin").get(api.url(f"{PROXY}/stream")) as response:
        assert await response.content.readline() == b"first\n"
        agent.more.set()
        assert await response.content.read() == b"second\n"


async def test_an_answer_that_breaks_off_is_not_passed_off_as_whole(api: Api, agent: Agent) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    async with api.session("admin").get(api.url(f"{PROXY}/stream?break=1")) as response:
        assert await response.content.readline() == b"first\n"
        agent.more.set()
        with pytest.raises(Exception, match=r"payload|closed|reset|disconnect"):
            await response.content.read()


async def test_an_agent_that_never_answers_is_given_up(api: Api, agent: Agent, monkeypatch) -> None:
    monkeypatch.setattr(proxy, "HEADERS_TIMEOUT_S", 0.3)
    await api.call("POST", NODES, reported("n1", agent.port))
    answer = await api.call("POST", f"{PROXY}/wait", {})
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
    assert "did not begin to answer within 0.3 s" in answer.json["message"]


@pytest.mark.slow
async def test_an_answer_that_began_may_take_its_time(api: Api, agent: Agent, monkeypatch) -> None:
    monkeypatch.setattr(proxy, "HEADERS_TIMEOUT_S", 5.0)
    await api.call("POST", NODES, reported("n1", agent.port))
    async with api.session("admin").get(api.url(f"{PROXY}/stream")) as response:
        assert await response.content.readline() == b"first\n"
        await asyncio.sleep(5.2)
        agent.more.set()
        assert await response.content.read() == b"second\n"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_client_that_leaves_takes_its_request_along(
    api: Api, agent: Agent, server_pki: Pki, method: str
) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    context = ssl.create_default_context(cafile=server_pki.ca_file)
    admin = server_pki.users["admin"]
    context.load_cert_chain(admin.cert_file, admin.key_file)
    _, writer = await asyncio.open_connection("127.0.0.1", api.port, ssl=context)
    head = f"{method} {PROXY}/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(20):
        await agent.waiting.wait()
        writer.transport.abort()
        await agent.left.wait()


async def test_a_server_that_stops_breaks_off_what_it_hands_on(api: Api, agent: Agent) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    waiting = asyncio.ensure_future(api.call("POST", f"{PROXY}/wait", {}))
    async with asyncio.timeout(20):
        await agent.waiting.wait()
        await api.server.wind_down()
        assert (await waiting).status == 503
    late = await api.call("POST", f"{PROXY}/wait", {})
    assert (late.status, late.json["reason"]) == (503, "ServiceUnavailable")
    assert "stopping" in late.json["message"]


async def test_the_body_is_streamed_beyond_the_limit_for_objects(api: Api, agent: Agent) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    body = b"x" * (4 * 1024 * 1024)
    answer = await api.call("POST", f"{PROXY}/x", body, headers={"Content-Type": "text/plain"})
    assert answer.status == 200
    assert agent.requests[0]["body"] == body
    assert agent.requests[0]["headers"]["Content-Length"] == str(len(body))


async def test_redirects_are_handed_back_and_point_through_the_proxy(
    api: Api, agent: Agent
) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    inner = await api.call("GET", f"{PROXY}/redirect?to=/logs/")
    assert (inner.status, inner.headers["Location"]) == (302, f"{PROXY}/logs/")
    outer = await api.call("GET", f"{PROXY}/redirect?to=https://elsewhere/")
    assert outer.headers["Location"] == "https://elsewhere/"
    assert agent.requests == []


async def test_the_bare_path_is_redirected_to_its_slash(api: Api, agent: Agent) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    answer = await api.call("GET", f"{PROXY}?a=b")
    assert (answer.status, answer.headers["Location"]) == (301, f"{PROXY}/?a=b")
    await api.call("GET", f"{PROXY}/")
    assert [seen["path"] for seen in agent.requests] == ["/"]


async def test_an_agent_that_cannot_prove_its_name_is_not_spoken_to(api: Api, agent: Agent) -> None:
    await api.call("POST", NODES, reported("n2", agent.port))  # its certificate says n1
    answer = await api.call("GET", f"{NODES}/n2/proxy/x")
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
    text = f'error trying to reach service: node "n2": cannot reach 127.0.0.1:{agent.port}: cert'
    assert answer.json["message"].startswith(text)
    assert agent.requests == []


async def test_an_agent_of_another_authority_is_not_spoken_to(
    server_pki: Pki, tmp_path: Path, agent: Agent
) -> None:
    foreign = await asyncio.to_thread(make_pki, tmp_path / "foreign", clock.utc_now())
    api = await Api.start(server_pki, tmp_path / "data", *arguments(foreign))
    await api.call("POST", NODES, reported("n1", agent.port))
    assert (await api.call("GET", f"{PROXY}/x")).status == 503
    assert agent.requests == []
    await api.stop()


async def test_without_a_ca_no_agent_is_spoken_to(
    server_pki: Pki, tmp_path: Path, agent: Agent
) -> None:
    api = await Api.start(server_pki, tmp_path / "data", "--node-proxy-allow-loopback")
    await api.call("POST", NODES, reported("n1", agent.port))
    answer = await api.call("GET", f"{PROXY}/x")
    assert answer.status == 503
    assert "--nodeagent-certificate-authority" in answer.json["message"]
    await api.stop()


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "localhost"])
async def test_local_addresses_are_refused_unless_allowed(
    server_pki: Pki, tmp_path: Path, agent: Agent, address: str
) -> None:
    proxy_only = [a for a in arguments(server_pki) if a != "--node-proxy-allow-loopback"]
    api = await Api.start(server_pki, tmp_path / "data", *proxy_only)
    await api.call("POST", NODES, reported("n1", agent.port, address))
    answer = await api.call("GET", f"{PROXY}/x")
    assert answer.status == 400
    assert "address not allowed" in answer.json["message"]
    assert agent.requests == []
    await api.stop()


@pytest.mark.slow
async def test_a_resolver_that_hangs_stops_nothing_else(
    api: Api, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    names = [f"named-{n}" for n in range(40)]
    for name in names:
        await api.call("POST", NODES, reported(name, agent.port, f"{name}.example"))
    released, resolve, hanging = threading.Event(), socket.getaddrinfo, set()

    def hang(host: str, *arguments: Any, **options: Any) -> Any:
        if host.endswith(".example"):
            hanging.add(host)
            assert released.wait(60)
            host = "127.0.0.1"
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    waiting = [asyncio.ensure_future(api.call("GET", f"{NODES}/{n}/proxy/x")) for n in names]
    try:
        async with asyncio.timeout(30):
            while len(hanging) < len(names):
                await asyncio.sleep(0.01)
            assert (await api.call("GET", f"{PROXY}/x")).status == 200
            assert await asyncio.to_thread(lambda: "files are read") == "files are read"
    finally:
        released.set()
        await asyncio.gather(*waiting)


async def test_a_name_that_is_looked_up_for_too_long_is_given_up(
    api: Api, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "CONNECT_TIMEOUT_S", 0.05)
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(60) and [])
    await api.call("POST", NODES, reported("n1", agent.port, "n1.example"))
    answer = await api.call("GET", f"{PROXY}/x")
    released.set()
    assert answer.status == 503
    assert answer.json["message"].endswith("cannot resolve n1.example: no answer within 0.05 s")


async def test_an_agent_that_is_not_there_is_unavailable(api: Api, free_port) -> None:
    await api.call("POST", NODES, reported("n1", free_port()))
    answer = await api.call("GET", f"{PROXY}/x")
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{NODES}/nobody/proxy/x", 404),
        (f"{NODES}/n1:0/proxy/x", 400),
        (f"{NODES}/ftp:n1:1/proxy/x", 400),
        (f"{PROXY}/x?dryRun=All", 400),
        (f"{PROXY}/logs/..%2F..%2Fpods", 400),
        (f"{NODES}/silent/proxy/x", 503),
    ],
)
async def test_what_cannot_be_proxied_is_refused(
    api: Api, agent: Agent, path: str, status: int
) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    await api.call("POST", NODES, node("silent"))
    assert (await api.call("GET", path)).status == status
    assert agent.requests == []


@pytest.mark.parametrize("user", ["n1", "controller", "monitor", "stranger"])
async def test_only_who_may_do_everything_may_use_the_proxy(
    api: Api, agent: Agent, user: str
) -> None:
    await api.call("POST", NODES, reported("n1", agent.port))
    answer = await api.call("GET", f"{PROXY}/x", user=user)
    assert answer.status == 403
    assert 'resource "nodes/proxy"' in answer.json["message"]
    assert agent.requests == []
