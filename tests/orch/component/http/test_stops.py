"""How a server stops: what is under way, and what clients see of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack, suppress

import aiohttp
import pytest
from aiohttp import web

from orch.component.http.httpd import HttpServer
from tests.conftest import Pki
from tests.orch.component.http.test_httpd import connected, server_context, serving, whoami


async def test_a_stop_ends_handshakes_under_way(pki: Pki) -> None:
    async with serving(whoami, context=server_context(pki)) as (server, port):
        async with connected(port) as (reader, _):
            while not server.connection_limit.open:
                await asyncio.sleep(0)
            await server.stop()
            assert await reader.read() == b""
        assert server.connection_limit.open == 0


async def test_a_stop_cuts_who_does_not_answer_the_end_of_tls(pki: Pki) -> None:
    def shake_hands() -> ssl.SSLSocket:
        bare = socket.create_connection(("127.0.0.1", port), timeout=5)
        context = ssl.create_default_context(cafile=pki.ca_file)
        context.check_hostname = False
        return context.wrap_socket(bare)

    async with serving(whoami, context=server_context(pki)) as (server, port):
        with await asyncio.to_thread(shake_hands):
            await server.stop(0.1)
            assert server.connection_limit.open == 0


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("secured", [True, False])
async def test_a_stop_ends_connections_that_are_just_being_accepted(
    pki: Pki, turns: int, secured: bool
) -> None:
    context = server_context(pki) if secured else None
    server = HttpServer(web.Application(), host="127.0.0.1", port=0, ssl_context=context, name="x")
    port = await server.start()
    with ExitStack() as clients:
        opened = [clients.enter_context(socket.socket()) for _ in range(3)]
        for client in opened:
            client.settimeout(5)
            client.connect(("127.0.0.1", port))
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop(0.1)
        for client in opened:
            with suppress(ConnectionResetError):
                assert await asyncio.to_thread(client.recv, 1) == b""


async def test_a_stop_lets_running_requests_end() -> None:
    arrived, finish = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        arrived.set()
        await finish.wait()
        return web.Response(text="finished")

    async with serving(slow) as (server, port), aiohttp.ClientSession() as session:
        request = asyncio.ensure_future(session.get(f"http://127.0.0.1:{port}/"))
        await arrived.wait()
        stopping = asyncio.ensure_future(server.stop(5))
        for _ in range(20):  # it has told the connections by then
            await asyncio.sleep(0)
        finish.set()
        answer = await request
        assert (answer.headers["Connection"], await answer.text()) == ("close", "finished")
        await stopping


async def test_a_stop_notifies_the_application_and_then_cuts_requests_that_do_not_end() -> None:
    order = []
    arrived = asyncio.Event()

    async def endless(_request: web.Request) -> web.Response:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("cut")
        raise AssertionError

    async def on_shutdown(_app: web.Application) -> None:
        order.append("told")

    async with (
        serving(endless, on_shutdown=on_shutdown) as (server, port),
        aiohttp.ClientSession() as session,
    ):
        request = asyncio.ensure_future(session.get(f"http://127.0.0.1:{port}/"))
        await arrived.wait()
        await server.stop(0.05)
        with pytest.raises(aiohttp.ClientError):
            await request
    assert order == ["told", "cut"]


async def test_stopping_twice_or_before_the_start_does_nothing() -> None:
    server = HttpServer(web.Application(), host="127.0.0.1", port=0, name="x")
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()
