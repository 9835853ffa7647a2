"""Clients that connect and do not go on: the agent stays healthy for others, on both ports.

A small picture of `python -m tools.bench slow_clients`, which holds 11,000 of them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from nodeagent import server
from orch.component.http import httpd, responses
from orch.component.http.httpd import HttpServer
from tests.conftest import Pki
from tests.fakes.agent import ADMIN, Agent

LIMIT = 64  # connections of a listener: 32 from one address
SLOW = 200
HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
SILENT = b""


@asynccontextmanager
async def listening(agent: Agent, context: ssl.SSLContext | None) -> AsyncIterator[HttpServer]:
    app = agent.app if context else server.healthz_app(agent.services.health)
    listener = HttpServer(
        app, host="127.0.0.1", port=0, ssl_context=context, name="test", max_connections=LIMIT
    )
    agent.port = await listener.start()
    try:
        yield listener
    finally:
        await listener.stop(1.0)


@asynccontextmanager
async def dialled(port: int, begun: bytes) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begun)
    try:
        yield reader
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("begun", [HALF, SILENT], ids=["half a header", "nothing"])
async def test_health_is_answered_on_the_plain_port_despite_hanging_clients(
    unserved: Agent, begun: bytes
) -> None:
    async with listening(unserved, None) as listener, AsyncExitStack() as held:
        for _ in range(SLOW):
            await held.enter_async_context(dialled(unserved.port, begun))
        for _ in range(20):
            ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            async with asyncio.timeout(30), dialled(unserved.port, ask) as reader:
                assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        assert listener.connection_limit.open <= LIMIT // 2
        assert listener.connection_limit.refused == 0
        assert listener.connection_limit.shed >= SLOW - LIMIT // 2


async def test_pages_are_answered_over_tls_despite_silent_clients(
    unserved: Agent, pki: Pki
) -> None:
    pair = pki.server()
    context = httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=pki.ca_file)
    async with listening(unserved, context) as listener, AsyncExitStack() as held:
        for _ in range(SLOW):
            await held.enter_async_context(dialled(unserved.port, b"\x16\x03\x01"))
        async with asyncio.timeout(30), unserved.session(ADMIN) as ask:
            assert (await ask("GET", "/metrics")).status == 200
        assert listener.connection_limit.open <= LIMIT // 2
        assert len(listener.connection_limit.handshakes) <= LIMIT // 2


async def _posted(agent: Agent, context: ssl.SSLContext, path: str) -> bytes:
    """Half a body, as an administrator; what is answered until the connection ends."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", agent.port, ssl=context, server_hostname="localhost"
    )
    form = "application/x-www-form-urlencoded"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {form}\r\nContent-Length: 100\r\n\r\n"
    writer.write(head.encode() + b"only_")
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.transport.abort()


async def test_half_a_body_times_out_and_its_connection_is_closed(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(httpd, "LINGER_S", 0.2)
    context: Any = agent.context(ADMIN)
    answer = await _posted(agent, context, "/stats/summary")
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_an_unread_body_does_not_hold_its_connection(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint route takes no body: it answers, and closes after lingering."""
    monkeypatch.setattr(httpd, "LINGER_S", 0.2)
    answer = await _posted(agent, agent.context(ADMIN), "/checkpoint/a/b/c")
    assert answer.startswith(b"HTTP/1.1 404 ")


async def test_a_body_above_the_limit_is_refused_at_once(agent: Agent) -> None:
    async with agent.session(ADMIN) as ask:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        body = b"a=" + b"b" * server.MAX_BODY_BYTES
        answer = await ask("POST", "/stats/summary", data=body, headers=form)
    assert answer.status == 413
    assert answer.headers["Content-Type"] == responses.TEXT
