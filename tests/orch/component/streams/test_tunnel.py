"""A tunnel at its edges: bytes both ways, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, web

from orch.component.streams import spdy, tunnel, websocket
from tests.orch.component.streams import door

MIB = spdy.FrameWriter().write(spdy.Data(1, bytes(range(256)) * 4096))


@contextlib.asynccontextmanager
async def tunnelled(
    idle_timeout_s: float = 60,
) -> AsyncIterator[tuple[ClientWebSocketResponse, StreamReader, StreamWriter]]:
    async with door.pair() as (reader, writer, there_reader, there_writer):

        async def handle(request: web.Request) -> web.StreamResponse:
            assert tunnel.is_tunnel(request)
            socket = await websocket.accept(request, tunnel.PROTOCOLS)
            await tunnel.tunnel(socket, (reader, writer), idle_timeout_s=idle_timeout_s)
            return socket.response

        async with (
            door.served(handle) as url,
            door.connected(url, "SPDY/3.1+portforward.k8s.io") as socket,
        ):
            assert socket.protocol == "SPDY/3.1+portforward.k8s.io"
            yield socket, there_reader, there_writer


async def test_bytes_pass_as_they_are_both_ways() -> None:
    async with tunnelled() as (socket, reader, writer):
        sending = asyncio.create_task(socket.send_bytes(MIB))
        assert await asyncio.wait_for(reader.readexactly(len(MIB)), 30) == MIB
        await sending

        writer.write(MIB)
        received = b""
        while len(received) < len(MIB):
            received += (await socket.receive(30)).data
        assert received == MIB


async def test_frames_are_judged_in_slices_and_data_passes_in_large_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Headers of 4 KiB take 30 bytes: those of 4 KiB made others' p99 12 times that at rest."""
    sizes, admit = list[int](), spdy.FrameGuard.admit

    def judged(guard: spdy.FrameGuard, data: bytes) -> bytes:
        sizes.append(len(data))
        return admit(guard, data)

    monkeypatch.setattr(spdy.FrameGuard, "admit", judged)
    pings = spdy.FrameWriter().write(spdy.Ping(1)) * 1000
    async with tunnelled() as (socket, reader, _):
        await socket.send_bytes(pings)
        assert await asyncio.wait_for(reader.readexactly(len(pings)), 30) == pings
        assert max(sizes) <= 512
        sizes.clear()
        await socket.send_bytes(MIB)
        assert await asyncio.wait_for(reader.readexactly(len(MIB)), 30) == MIB
        assert len(sizes) < 32


async def test_a_client_s_end_is_the_runtime_s_after_all_its_bytes() -> None:
    async with tunnelled() as (socket, reader, _):
        await socket.send_bytes(MIB)
        await socket.close()

        assert await asyncio.wait_for(reader.read(), 30) == MIB


async def test_a_runtime_s_end_closes_the_client_s_socket_in_order() -> None:
    async with tunnelled() as (socket, _, writer):
        writer.write(b"last words")
        writer.close()

        assert (await socket.receive(30)).data == b"last words"
        assert (await socket.receive(30)).type is WSMsgType.CLOSE
        assert socket.close_code == 1000


async def test_a_runtime_that_breaks_off_closes_the_client_s_socket_with_the_reason() -> None:
    async with tunnelled() as (socket, _, writer):
        await socket.send_bytes(MIB[:1000])  # what turns the end into a reset
        await asyncio.sleep(0)
        writer.transport.abort()

        closed = await socket.receive(30)
        assert closed.type is WSMsgType.CLOSE
        assert (closed.data, "failed" in closed.extra) in [(1011, True), (1000, False)]


@pytest.mark.parametrize(
    ("idle_timeout_s", "text", "code", "why"),
    [(60, "text", 1003, "binary messages, not text"), (0.1, "", 1001, "idle for 0.1 s")],
)
async def test_a_tunnel_that_is_misused_or_idle_is_closed(
    idle_timeout_s: float, text: str, code: int, why: str
) -> None:
    async with tunnelled(idle_timeout_s) as (socket, reader, _):
        if text:
            await socket.send_str(text)

        closed = await socket.receive(30)
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, code)
        assert why in closed.extra
        assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_what_is_no_frame_never_reaches_the_runtime() -> None:
    """The rest is in test_spdy.py."""
    async with tunnelled() as (socket, reader, _):
        await socket.send_bytes(MIB + b"\x80\x03\x00\x04\0\0\0\x04")
        await socket.send_bytes(b"\x80\0\0\0")  # more settings than the frame has room for

        closed = await socket.receive(30)
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, 1002)
        assert "does not have 2147483648 settings" in closed.extra
        assert await asyncio.wait_for(reader.read(), 30) == MIB


async def test_a_client_that_does_not_read_stops_the_runtime() -> None:
    async with tunnelled() as (socket, _, writer):
        door.wire_of(socket).pause_reading()
        sent = 0

        async def pour() -> None:
            nonlocal sent
            while True:
                writer.write(MIB)
                await writer.drain()
                sent += len(MIB)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pour(), 1.0)
        door.wire_of(socket).abort()
        assert sent < 32 * len(MIB)
