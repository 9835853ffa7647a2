"""Probes against a real server on loopback, and commands in a runtime in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from nodeagent.pods.prober.probes import Outcome, Prober, ProbeTarget
from nodeagent.runtime.base import ExecResult, RuntimeCallError, RuntimeTimeout
from orch.client.resolver import MAX_CONCURRENT
from orch.component.pki import Authority, Subject
from orch.wire.records.handlers import Probe
from orch.wire.records.pods import Container
from tests.fakes import slow_group
from tests.fakes.pods import container_data
from tests.fakes.runtime import FakeRuntime


class ExecRuntime(FakeRuntime):
    """Runs no command, but answers as told."""

    def __init__(self, result: ExecResult | Exception) -> None:
        super().__init__()
        self.result = result

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_s: float
    ) -> ExecResult:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    """A server whose path says what it answers."""
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/slow":
                await over.wait()
            case "/away":
                raise web.HTTPFound("http://other.invalid/x")
            case "/round":
                raise web.HTTPFound("/round")
            case "/moved":
                raise web.HTTPFound("/ok")
            case "/header":
                assert request.headers["X-Probe"] == "yes"
                assert request.headers["User-Agent"].startswith("orch-probe/")
            case "/cookie":
                status = 400 if "Cookie" in request.headers else 200
                return web.Response(status=status, headers={"Set-Cookie": "a=b; Path=/"})
        return web.Response(status=int(request.query.get("status", "200")))

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    over.set()
    await runner.cleanup()


@pytest_asyncio.fixture
async def check() -> AsyncIterator[Callable[..., Any]]:
    probers: list[Prober] = []

    async def run(
        probe: dict[str, Any], runtime: FakeRuntime | None = None, **fields: Any
    ) -> Outcome:
        prober = Prober(runtime or FakeRuntime())
        probers.append(prober)
        container = Container.from_wire(container_data("app", **fields))
        target = ProbeTarget("id", container, "127.0.0.1")
        return await prober.check(target, Probe.from_wire(probe))

    yield run
    for prober in probers:
        await prober.close()


async def test_probes_keep_no_cookies_of_pods(port: int) -> None:
    prober = Prober(FakeRuntime())
    target = ProbeTarget("id", Container.from_wire(container_data("app")), "127.0.0.1")
    probe = Probe.from_wire({"httpGet": {"path": "/cookie", "port": port, "host": "localhost"}})
    assert [await prober.check(target, probe) for _ in range(2)] == [Outcome(True)] * 2
    await prober.close()


HTTP = [
    ("/ok", True, ""),
    ("ok", True, ""),
    ("/?status=399", True, "Probe terminated redirects, Response body: "),
    ("/?status=400", False, "HTTP probe failed with statuscode: 400"),
    ("/?status=500", False, "HTTP probe failed with statuscode: 500"),
    ("/moved", True, ""),
    ("/away", True, "Probe terminated redirects, Response body: 302: Found"),
    ("/round", False, "stopped after 10 redirects"),
    ("/slow", False, "no answer within 1 s"),
    ("/header", True, ""),
]


@pytest.mark.parametrize(("path", "good", "text"), HTTP)
async def test_an_http_probe(
    check: Callable[..., Any], port: int, path: str, good: bool, text: str
) -> None:
    headers = [{"name": "X-Probe", "value": "yes"}]
    probe = {"httpGet": {"path": path, "port": port, "httpHeaders": headers}}
    warns = good and bool(text)
    assert await check(probe) == Outcome(good, text, warns=warns)


async def test_a_port_can_be_named(check: Callable[..., Any], port: int) -> None:
    ports = [{"name": "web", "containerPort": port}]
    assert (await check({"httpGet": {"port": "web"}}, ports=ports)).good
    outcome = await check({"tcpSocket": {"port": "other"}}, ports=ports)
    assert outcome == Outcome(None, "container app has no port named 'other'")


async def test_nobody_listening_is_a_failure(
    check: Callable[..., Any], free_port: Callable[[], int]
) -> None:
    port = free_port()
    tcp, http = [await check({kind: {"port": port}}) for kind in ("tcpSocket", "httpGet")]
    assert tcp == Outcome(False, f"dial 127.0.0.1:{port}: connection refused")
    assert http == Outcome(False, f"Get http://127.0.0.1:{port}/: connection refused")


async def test_a_server_that_speaks_something_else_is_told_in_plain_words(
    check: Callable[..., Any], port: int
) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        other = server.sockets[0].getsockname()[1]
        mail = await check({"httpGet": {"port": other}})
        assert mail.good is False
        assert mail.text.startswith(f"Get http://127.0.0.1:{other}/: the answer is not HTTP: ")
        assert "\n" not in mail.text
    plain = await check({"httpGet": {"port": port, "scheme": "HTTPS"}})
    assert plain.good is False
    assert "[SSL: " in plain.text
    assert "ssl:" not in plain.text


async def test_no_pod_chooses_a_key_exchange_that_takes_long(
    check: Callable[..., Any], tmp_path: Path
) -> None:
    """One in a group of 10,000 bits stalled the agent for 0.8 s."""
    tls, _ = slow_group.server(tmp_path)
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        outcome = await check({"httpGet": {"port": port, "scheme": "HTTPS"}, "timeoutSeconds": 10})
    told = f"Get https://127.0.0.1:{port}/: the connection ended"
    assert outcome == Outcome(False, told)


@pytest.mark.parametrize("scheme", ["HTTP", "HTTPS"])
async def test_an_answer_that_never_comes_to_its_point_is_not_read_on(
    check: Callable[..., Any], tmp_path: Path, scheme: str
) -> None:
    """However long the probe may take: each piece of it takes the agent's time."""
    ended = asyncio.Event()

    async def say_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(100 * b"HTTP/1.1 103 Early Hints\r\n\r\n")
                await writer.drain()
        ended.set()

    authority = Authority(tmp_path, now=datetime.now(UTC))
    pair = authority.issue(Subject("server", "server", (), ("127.0.0.1",)))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    tls = context if scheme == "HTTPS" else None
    async with await asyncio.start_server(say_more, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        action = {"port": port, "scheme": scheme}
        outcome = await check({"httpGet": action, "timeoutSeconds": 10})
        await ended.wait()
    assert outcome.good is False
    assert outcome.text.startswith(f"Get {scheme.lower()}://127.0.0.1:{port}/: the answer does not")


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
async def test_a_resolver_that_never_answers_takes_no_thread_from_others(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A tenant names the host: six such probes had all of the loop's threads."""
    over, asked = threading.Event(), list[object]()

    def look_up(host: object, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        over.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    prober = Prober(FakeRuntime())
    target = ProbeTarget("c", Container.from_wire(container_data("app")), OWN)
    hosts = ({"port": 1, "host": f"h{number}.invalid"} for number in range(MAX_CONCURRENT + 1))
    probes = [Probe.from_wire({kind: host}) for host in hosts]
    try:
        outcomes = await asyncio.gather(*(prober.check(target, probe) for probe in probes))
        async with asyncio.timeout(10):
            await asyncio.to_thread(lambda: None)
    finally:
        over.set()
        await prober.close()
    assert len(asked) == MAX_CONCURRENT
    assert sum(outcome.good is False for outcome in outcomes) == MAX_CONCURRENT
    [other] = [outcome for outcome in outcomes if outcome.good is None]  # no fault of its container
    assert "resource temporarily unavailable" in other.text


async def test_a_name_is_enough_for_a_tcp_probe(check: Callable[..., Any], port: int) -> None:
    """It stands for ::1, too, where nobody listens."""
    assert await check({"tcpSocket": {"port": port, "host": "localhost"}}) == Outcome(True)


async def test_a_connection_is_enough_for_a_tcp_probe(check: Callable[..., Any], port: int) -> None:
    assert await check({"tcpSocket": {"port": port}}) == Outcome(True)


EXECS: list[tuple[ExecResult | Exception, Outcome]] = [
    (ExecResult(0, b"fine\n", b""), Outcome(True, "fine")),
    (ExecResult(1, b"", b"broken\n"), Outcome(False, "broken")),
    (ExecResult(2, b"", b""), Outcome(False, "exit code 2")),
    (RuntimeTimeout("exec_sync", "x"), Outcome(False, "the command did not end within 1 s")),
    (RuntimeCallError("exec_sync", "no such container"), Outcome(None, "no such container")),
    (
        RuntimeCallError("exec_sync", f'failed to start exec "{"0f" * 32}": no "x" in $PATH'),
        Outcome(None, 'failed to start exec: no "x" in $PATH'),
    ),
]


@pytest.mark.parametrize(("result", "expected"), EXECS)
async def test_a_command_probe(
    check: Callable[..., Any], result: ExecResult | Exception, expected: Outcome
) -> None:
    assert await check({"exec": {"command": ["x"]}}, ExecRuntime(result)) == expected


async def test_a_probe_the_agent_does_not_know_is_no_result(check: Callable[..., Any]) -> None:
    outcome = await check({"udpSocket": {"port": 1}, "periodSeconds": 5})
    assert outcome.good is None
    assert "the probe udpSocket is not supported" in outcome.text


OWN = "127.0.0.1"
POLICY: list[tuple[dict[str, Any], bool, str]] = [
    ({"tcpSocket": {"port": 1}}, False, ""),
    ({"tcpSocket": {"port": 1, "host": OWN}}, False, ""),
    ({"tcpSocket": {"port": 1, "host": "127.0.0.2"}}, False, "host '127.0.0.2' is not the pod's"),
    ({"httpGet": {"port": 1}}, True, ""),
    ({"httpGet": {"port": 1, "host": "localhost"}}, False, "host 'localhost' is not the pod's"),
    ({"httpGet": {"port": 1, "host": "u@127.0.0.1"}}, False, "is not the pod's address 127.0.0.1"),
    ({"httpGet": {"port": 1, "httpHeaders": [{"name": "Host", "value": "x"}]}}, False, ""),
    (
        {"httpGet": {"port": 1, "httpHeaders": [{"name": "hOST ", "value": "x"}]}},
        True,
        "a pod in the host's network may not choose the Host header",
    ),
]


@pytest.mark.parametrize(("probe", "on_host", "refused"), POLICY)
async def test_a_probe_stays_within_its_pod_where_the_node_says_so(
    probe: dict[str, Any], on_host: bool, refused: str
) -> None:
    target = ProbeTarget("c1", Container.from_wire(container_data("app")), OWN, on_host)
    strict, prober = Prober(FakeRuntime(), any_host=False), Prober(FakeRuntime())
    try:
        outcome = await strict.check(target, Probe.from_wire(probe))
        assert (outcome.good is None) == bool(refused)
        assert refused in outcome.text
        assert (await prober.check(target, Probe.from_wire(probe))).good is not True
    finally:
        await strict.close()
        await prober.close()
