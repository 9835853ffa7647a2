"""`/exec`, `/attach`, `/portForward` and `/run` of an agent before a fake runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from nodeagent.container_streams import parse_ports
from nodeagent.pods.observed import observed_pod
from nodeagent.runtime import base
from nodeagent.runtime.base import ExecResult
from nodeagent.runtime.endpoint import StreamAddress, StreamOptions
from orch.component.streams import upstream
from orch.wire.errors import ApiError
from tests.conftest import Pki
from tests.fakes import pods
from tests.fakes.agent import ADMIN, MONITORING, Agent, served
from tests.fakes.streamed_agent import EXEC, WEBSOCKET, framed
from tests.fakes.streamed_agent import reached as reached
from tests.fakes.streamed_agent import runtime as runtime
from tests.fakes.streaming import ASK, StreamingServer, upgraded


def asked(agent: Agent) -> list[tuple[str, tuple[object, ...], StreamOptions]]:
    return [(kind, words, options) for kind, _, words, options in agent.runtime.streams]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (EXEC, ("exec", ("sh", "-c"), StreamOptions(stdout=True, stderr=True))),
        (
            f"/exec/default/web/{pods.UID}/app?command=a%20b&input=1&output=1&error=1&tty=1",
            ("exec", ("a b",), StreamOptions(stdin=True, stdout=True, tty=True)),
        ),
        ("/attach/default/web/app?output=1&tty=1", ("attach", (), StreamOptions(stdout=True))),
        (
            "/attach/default/web/term?output=1&error=1",
            ("attach", (), StreamOptions(stdout=True, tty=True)),
        ),
        ("/portForward/default/web?port=80&port=81,82",
         ("portforward", (80, 81, 82), StreamOptions())),
        (f"/portForward/default/web/{pods.UID}", ("portforward", (), StreamOptions())),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_bytes_are_carried_both_ways(
    reached: Agent, runtime: StreamingServer, method: str, path: str, wanted: Any
) -> None:
    headers = (*ASK, "X-Stream-Protocol-Version: v4.channel.k8s.io", "Authorization: Bearer no",
               "X-Stream-Protocol-Version: channel.k8s.io", "Cookie: a=b")  # fmt: skip
    tls = reached.context(ADMIN)
    async with upgraded(reached.port, f"{method} {path}", headers, tls=tls) as client:
        assert client.status == 101
        assert "Upgrade: SPDY/3.1\r\n" in client.head
        for frame in (framed(b"one"), framed(bytes(300_000))):
            assert await client.say(frame) == frame
    assert asked(reached) == [wanted]
    (head,) = runtime.heads
    lines = head.decode().split("\r\n")
    assert lines[0] == f"{method} /exec/token?x=1 HTTP/1.1"
    assert lines.count("X-Stream-Protocol-Version: v4.channel.k8s.io") == 1
    assert lines.count("X-Stream-Protocol-Version: channel.k8s.io") == 1
    assert not any(line.lower().startswith(("authorization", "cookie")) for line in lines)


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("/exec/default/gone/app?command=a&output=1", 404, 'pod "gone" does not exist'),
        ("/exec/default/web/u-2/app?command=a&output=1", 404, 'pod "web" does not exist'),
        ("/exec/default/web/no?command=a&output=1", 404, 'container "no" not found in pod "web"'),
        ("/exec/default/web/app?command=a", 400, "at least 1 of stdin, stdout, stderr"),
        ("/exec/default/web/app?output=1", 400, "a command is required"),
        ("/exec/default/web/app?output=1&command=", 400, "a command is required"),
        ("/attach/default/web/app", 400, "at least 1 of stdin, stdout, stderr"),
        ("/attach/default/web/waiting?output=1", 400,
         'container "waiting" in pod "web" is not running: it is waiting to start: Crash'),
        ("/attach/default/web/ended?output=1", 400, "it has ended with exit code 3"),
        ("/attach/default/web/new?output=1", 400, "it is waiting to start: ContainerCreating"),
        ("/portForward/default/web?port=0", 400, "port '0' is not a number from 1 to 65535"),
        ("/portForward/default/gone", 404, 'pod "gone" does not exist'),
    ],
)  # fmt: skip
async def test_a_refusal_says_why(reached: Agent, path: str, code: int, text: str) -> None:
    tls = reached.context(ADMIN)
    async with upgraded(reached.port, f"POST {path}", tls=tls) as client:
        assert client.status == code
        assert text in await client.body()


async def test_what_is_no_frame_never_reaches_the_runtime(
    reached: Agent, runtime: StreamingServer
) -> None:
    """Twelve bytes, for which containerd asked for 24 GiB of memory, and ended."""
    settings = bytes.fromhex("80030004 00000004 80000000")
    got = bytearray()

    async def keep(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            got.extend(data)

    runtime.talk = keep
    async with upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client:
        client.writer.write(framed(b"one") + settings[:11])
        async with asyncio.timeout(10):
            while not got:
                await asyncio.sleep(0.01)
            client.writer.write(settings[11:] + framed(b"two"))
            assert await client.reader.read() == b""
    assert got == framed(b"one")


async def test_a_stopped_pod_has_no_ports(reached: Agent) -> None:
    view = reached.services.registry.view(pods.UID)
    stopped = replace(view.sandboxes[0].sandbox, state=base.SandboxState.NOT_READY)
    ended = replace(view.sandboxes[0], sandbox=stopped)
    reached.services.registry.set_view(observed_pod(pods.UID, [ended]))
    answer = await reached.ask("GET", "/portForward/default/web", headers=dict(
        line.split(": ") for line in ASK))  # fmt: skip
    assert (answer.status, answer.text) == (400, 'pod "web" is not running')


async def test_without_an_upgrade_nothing_runs(reached: Agent) -> None:
    for method in ("GET", "POST"):
        answer = await reached.ask(method, EXEC)
        assert (answer.status, answer.text[:22]) == (400, "an upgrade is required")
    assert reached.runtime.streams == []


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (base.RuntimeNotFound("Exec", "no such container"), 404),
        (base.RuntimeUnavailable("Exec", "it is away"), 503),
        (base.RuntimeTimeout("Exec", "too late"), 504),
        (base.RuntimeCallError("Exec", "not today"), 500),
    ],
)
async def test_what_the_runtime_refuses_is_told(
    reached: Agent, failure: base.RuntimeCallError, code: int
) -> None:
    reached.runtime.fail("open_exec", failure)
    async with upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client:
        assert client.status == code
        assert await client.body() == f"the container runtime refused: {failure}"


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 503, "server answered 200: ok"),
        (b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n", 503, "server answered 404"),
        (b"HTTP/1.1 302 F\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", 503, "302"),
        (b"HTTP/1.1 403 F\r\nContent-Length: 8\r\n\r\nno proto", 400, "answered 403: no proto"),
        (b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\n\r\n", 503, "it upgraded to 'h2c'"),
        (b"nonsense\r\n\r\n", 503, "its answer is not HTTP/1.1"),
        (b"", 503, "it closed the connection without an answer"),
    ],
)
async def test_a_streaming_server_that_does_not_agree_is_told_of(
    reached: Agent, runtime: StreamingServer, answer: bytes, code: int, text: str
) -> None:
    async def nothing(_: Any, __: Any) -> None:
        return None

    runtime.answer, runtime.talk = answer, nothing
    async with upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client:
        assert client.status == code
        assert text in await client.body()


async def test_a_streaming_server_that_never_answers_is_given_up(
    reached: Agent, runtime: StreamingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "ANSWER_TIMEOUT_S", 0.2)
    runtime.answer = b"HTTP/1.1 101 Swi"
    async with upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client:
        assert client.status == 503
        assert "it did not answer within" in await client.body()


async def test_a_streaming_server_that_is_away_is_named(
    reached: Agent, unused_tcp_port: int
) -> None:
    reached.runtime.stream_address = StreamAddress("127.0.0.1", unused_tcp_port, "/x")
    async with upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client:
        assert client.status == 503
        assert "the runtime's streaming server is of no use: Connect" in await client.body()


V4 = "v4.channel.k8s.io"


@pytest.mark.parametrize(
    ("path", "spoken", "asked_for"),
    [
        (EXEC, f"v5.channel.k8s.io, {V4}", ("SPDY/3.1", V4)),
        ("/attach/default/web/app?output=1", "v5.channel.k8s.io", ("SPDY/3.1", V4)),
        (
            "/portForward/default/web", "SPDY/3.1+portforward.k8s.io",
            ("SPDY/3.1", "portforward.k8s.io"),
        ),
        (EXEC, V4, ("websocket", V4)),
        ("/portForward/default/web?port=80", V4, ("websocket", V4)),
    ],
)  # fmt: skip
async def test_what_the_runtime_does_not_speak_is_translated(
    reached: Agent, runtime: StreamingServer, path: str, spoken: str, asked_for: tuple[str, str]
) -> None:
    name, protocol = asked_for
    runtime.answer = runtime.answer.replace(b"SPDY/3.1", name.encode())
    headers = (*WEBSOCKET, f"Sec-WebSocket-Protocol: {spoken}")
    tls = reached.context(ADMIN)
    async with upgraded(reached.port, f"GET {path}", headers, tls=tls) as client:
        assert client.status == 101
    (head,) = runtime.heads
    lines = head.decode().split("\r\n")
    assert lines[0].startswith("GET" if name == "websocket" else "POST")
    assert f"Upgrade: {name}" in lines
    named = "Sec-WebSocket-Protocol" if name == "websocket" else "X-Stream-Protocol-Version"
    assert f"{named}: {protocol}" in lines


async def test_a_command_without_streams_answers_with_its_output(reached: Agent) -> None:
    ran: list[tuple[str, ...]] = []

    def on_exec(_id: str, command: Any) -> ExecResult:
        ran.append(tuple(command))
        return ExecResult(int("false" in command), b"out\n", b"err\n")

    reached.runtime.on_exec = on_exec
    answer = await reached.ask("POST", "/run/default/web/app?cmd=ls%20-l%20/")
    assert (answer.status, answer.body) == (200, b"out\nerr\n")
    assert answer.headers["Content-Type"] == "application/json"
    answer = await reached.ask("POST", f"/run/default/web/{pods.UID}/app?cmd=false")
    assert answer.status == 500
    assert answer.text == "command terminated with exit code 1: out\nerr"
    assert ran == [("ls", "-l", "/"), ("false",)]
    assert (await reached.ask("POST", "/run/default/web/app")).text == "a command is required"
    assert (await reached.ask("GET", "/run/default/web/app?cmd=ls")).status == 405


async def test_who_may_only_read_gets_in_nowhere(reached: Agent) -> None:
    for subject in (MONITORING, None):
        async with upgraded(reached.port, f"GET {EXEC}", tls=reached.context(subject)) as client:
            assert client.status in (401, 403)
    assert reached.runtime.streams == []


@pytest_asyncio.fixture
async def agent_without_debugging(unserved: Agent, pki: Pki) -> AsyncIterator[Agent]:
    config = unserved.services.config().model_copy(update={"enableDebuggingHandlers": False})
    services = replace(unserved.services, config=lambda: config)
    closed = Agent(services, unserved.runtime, pki)
    async with served(closed, pki.server(), pki.ca_file) as agent:
        yield agent


@pytest.mark.parametrize("name", ["run", "exec", "attach", "portForward", "runningpods"])
async def test_a_page_that_is_off_is_refused(agent_without_debugging: Agent, name: str) -> None:
    for method, path in (("POST", f"/{name}/default/web/app"), ("GET", f"/{name}/")):
        answer = await agent_without_debugging.ask(method, path)
        assert (answer.status, answer.text) == (405, "Debug endpoints are disabled.\n")


async def test_without_debugging_what_remains_is_health_and_statistics(
    agent_without_debugging: Agent,
) -> None:
    async with agent_without_debugging.session(ADMIN) as ask:
        for path in ("/configz", "/statusz", "/checkpoint"):
            assert (await ask("GET", path)).status == 404
        for path in ("/healthz", "/metrics", "/pods", "/stats/summary"):
            assert (await ask("GET", path)).status == 200


def test_ports_are_bounded() -> None:
    assert parse_ports(["1", "2,65535"]) == (1, 2, 65535)
    for bad in (["65536"], [""], ["1,"], ["-1"], ["१"], ["1" * 5000], [",".join(["1"] * 65)]):
        with pytest.raises(ApiError):
            parse_ports(bad)
