"""A client's connection that leaves HTTP, before a listener of ours."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from orch.component.http.httpd import HttpServer, api_errors, connection_of
from orch.component.http.slow_clients import SlowClients
from orch.component.streams import spdy, upgrade
from orch.component.streams.upgrade import Bounds, Streams
from orch.component.streams.upstream import Destination, dial
from orch.wire.errors import ApiError
from tests.fakes.streaming import ASK, StreamingServer, streaming, upgraded

WEBSOCKET = (
    "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)  # fmt: skip


@dataclass
class Front:
    """A listener whose every request is joined to `behind`."""

    behind: StreamingServer
    streams: Streams = field(default_factory=lambda: Streams(Bounds(3, 4)))
    statuses: list[int] = field(default_factory=list)
    slow_clients: SlowClients = field(default_factory=lambda: SlowClients("front"))
    guarded: bool = False
    before: Callable[[web.Request], Awaitable[None]] | None = None
    port: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = upgrade.upgrade_headers(request)
        user = request.query.get("user", "u")
        with self.streams.place(user, user):
            to = Destination(self.behind.host, self.behind.port)
            agreement = await dial(to, request.method, request.path_qs, headers)
            if self.before is not None:
                await self.before(request)
            response = await self.streams.carry(request, agreement, idle_s=0, guarded=self.guarded)
        self.statuses.append(response.status)
        return response


@pytest.fixture
async def behind() -> AsyncIterator[StreamingServer]:
    async with streaming() as server:
        yield server


@pytest.fixture
async def front(behind: StreamingServer) -> AsyncIterator[Front]:
    async with front_of(behind) as front:
        yield front


@asynccontextmanager
async def front_of(behind: StreamingServer, host: str = "127.0.0.1") -> AsyncIterator[Front]:
    front = Front(behind)
    app = web.Application(middlewares=[api_errors])
    app.router.add_route("*", "/{path:.*}", front.handle)
    listener = HttpServer(app, host=host, port=0, name="front", slow_clients=front.slow_clients)
    front.port = await listener.start()
    yield front
    await listener.stop(0.5)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.01)


async def test_a_stream_is_answered_with_101_and_ends_as_such(front: Front) -> None:
    async with upgraded(front.port, "POST /x") as client:
        assert client.head.startswith("HTTP/1.1 101 Switching Protocols\r\n")
        assert "Server:" not in client.head and "Transfer-Encoding" not in client.head
        assert "Content-Length" not in client.head
        assert await client.say(b"GET / HTTP/1.1\r\n\r\n") == b"GET / HTTP/1.1\r\n\r\n"
    await until(lambda: front.statuses == [101])
    await until(lambda: front.behind.open == 0 and not front.streams.open)


async def test_a_websocket_passes_and_a_token_in_it_does_not(front: Front) -> None:
    front.behind.answer = front.behind.answer.replace(b"SPDY/3.1", b"websocket")
    spoken = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.dG9r, v4.channel.k8s.io"
    async with upgraded(front.port, "GET /x", (*WEBSOCKET, spoken)) as client:
        assert client.status == 101
        assert await client.say(b"\x81\x01x") == b"\x81\x01x"
    (head,) = front.behind.heads
    assert b"\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n" in head
    assert b"dG9r" not in head


@pytest.mark.parametrize(
    ("first", "headers", "why"),
    [
        ("POST /x", (), "an upgrade is required"),
        ("POST /x", ("Upgrade: SPDY/3.1",), "an upgrade is required"),
        ("POST /x", ("Connection: te", "Upgrade: SPDY/3.1"), "an upgrade is required"),
        ("POST /x", ("Connection: xUpgrade", "Upgrade: SPDY/3.1"), "an upgrade is required"),
        ("POST /x", ("Connection: Upgrade",), "an upgrade is required"),
        ("POST /x", ("Connection: Upgrade", "Upgrade: h2c"), "cannot upgrade to 'h2c'"),
        ("GET /x", ("Connection: Upgrade", "Upgrade: websocket, SPDY/3.1"), "cannot upgrade to"),
        ("GET /x", (*ASK, "Upgrade: websocket"), "cannot upgrade to 'spdy/3.1, websocket'"),
        ("POST /x", WEBSOCKET, "a WebSocket is opened with GET"),
        ("GET /x", (*WEBSOCKET, "Sec-WebSocket-Protocol: €"), "Sec-WebSocket-Protocol: is no"),
        ("POST /x", (*ASK, "Content-Length: 5"), "has no body"),
        ("POST /x", (*ASK, "Transfer-Encoding: chunked"), "has no body"),
    ],
)
async def test_what_is_no_plain_upgrade_is_refused_and_the_last_of_its_connection(
    front: Front, first: str, headers: tuple[str, ...], why: str
) -> None:
    smuggled = b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n"
    body = b"5\r\nhello\r\n0\r\n\r\n" if "chunked" in str(headers) else b""
    body = b"hello" if "Content-Length" in str(headers) else body
    async with upgraded(front.port, first, headers, more=body + smuggled) as client:
        assert client.status == 400
        assert "\r\nConnection: close\r\n" in client.head
        assert why in await client.body()
        async with asyncio.timeout(10):
            assert b"HTTP/1.1" not in await client.reader.read()
    assert front.behind.heads == []


SECOND = b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize("headers", [ASK, WEBSOCKET])
@pytest.mark.parametrize("early", [SECOND, b"GET /sec", b"\x80\x03\x00\x01"])
async def test_nothing_may_follow_before_the_server_behind_agreed(
    front: Front, headers: tuple[str, ...], early: bytes
) -> None:
    """What came early would be of HTTP for one and of the stream for the other."""

    async def more_came(request: web.Request) -> None:
        dialled.set()
        await until(lambda: not connection_of(request).is_quiet)

    dialled = asyncio.Event()
    front.before = more_came
    if headers is WEBSOCKET:
        front.behind.answer = front.behind.answer.replace(b"SPDY/3.1", b"websocket")
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(("GET /x HTTP/1.1\r\nHost: h\r\n" + "\r\n".join(headers) + "\r\n\r\n").encode())
    await dialled.wait()
    writer.write(early)
    async with asyncio.timeout(10):
        answered = await reader.read(-1)
    writer.close()
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert b"nothing may be sent before the upgrade is agreed to" in answered
    assert answered.count(b"HTTP/1.1") == 1
    await until(lambda: front.behind.open == 0)
    assert b"second" not in b"".join(front.behind.heads)


async def test_a_request_right_behind_an_upgrade_is_never_answered(front: Front) -> None:
    """Of those bytes the parser makes nothing: neither a request nor a part of the stream."""
    async with upgraded(front.port, "POST /x", more=SECOND) as client:
        assert client.status == 101
        assert await client.say(b"x") == b"x"
    assert len(front.behind.heads) == 1


async def test_a_client_that_left_meanwhile_leaves_nothing_behind(front: Front) -> None:
    left = asyncio.Event()

    async def wait(request: web.Request) -> None:
        left.set()
        await until(lambda: request.transport is None or request.transport.is_closing())

    front.before = wait
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(("POST /x HTTP/1.1\r\nHost: h\r\n" + "\r\n".join(ASK) + "\r\n\r\n").encode())
    await left.wait()
    writer.close()
    await until(lambda: front.behind.open == 0 and not front.streams.open)


async def test_streams_are_bounded_by_user_and_in_all(front: Front) -> None:
    async with (
        upgraded(front.port, "POST /1") as one,
        upgraded(front.port, "POST /2"),
        upgraded(front.port, "POST /3"),
    ):
        async with upgraded(front.port, "POST /4") as refused:
            assert refused.status == 429
            assert 'too many streams of \\"u\\" (3) are open' in await refused.body()
            assert "Retry-After: 1" in refused.head
        async with upgraded(front.port, "POST /5?user=v") as other:
            assert other.status == 101
            async with upgraded(front.port, "POST /6?user=w") as refused:
                assert "too many streams of this server (4) are open" in await refused.body()
        assert await one.say(b"still") == b"still"
    await until(lambda: not front.streams.open)


async def test_a_client_that_does_not_read_stops_the_server_behind(front: Front) -> None:
    sent = 0

    async def much(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536

    front.behind.talk = much
    async with upgraded(front.port, "POST /x") as client:
        await until(lambda: front.slow_clients.waiting_bytes > 0)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert 65536 < sent < 16 * 2**20  # the kernel's buffers of three sockets
        await client.reader.readexactly(sent + 65536)  # it goes on
        await until(lambda: front.slow_clients.waiting_bytes > 0)

        def is_cut() -> bool:
            front.slow_clients.cut_all()  # as when memory is short: whoever is slow for a second
            return not front.streams.open

        await until(is_cut)


async def test_a_server_behind_that_does_not_read_stops_the_client(front: Front) -> None:
    async def deaf(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        go.set()
        await over.wait()

    go, over = asyncio.Event(), asyncio.Event()
    front.behind.talk = deaf
    async with upgraded(front.port, "POST /x") as client:
        await go.wait()
        taken = 0
        try:
            while taken < 64 * 2**20:
                client.writer.write(bytes(65536))
                async with asyncio.timeout(1):
                    await client.writer.drain()
                taken += 65536
        except TimeoutError:
            pass
        assert taken < 32 * 2**20
        over.set()


async def test_what_was_sent_before_the_end_still_arrives(front: Front) -> None:
    async def last(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(5_000_000))

    front.behind.talk = last
    async with upgraded(front.port, "POST /x") as client:
        await asyncio.sleep(0.3)  # the reader is slow
        async with asyncio.timeout(10):
            assert len(await client.reader.read(-1)) == 5_000_000


async def test_frames_are_judged_in_slices_and_all_that_was_sent_arrives(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 KiB that had waited in each of many connections were judged in one turn of the loop; of
    frames with large headers even 2 KiB took over a millisecond.
    """
    sizes, got = [], bytearray()
    admit = spdy.FrameGuard.admit

    def judged(guard: spdy.FrameGuard, data: bytes) -> bytes:
        sizes.append(len(data))
        return admit(guard, data)

    async def keep(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            got.extend(data)

    monkeypatch.setattr(spdy.FrameGuard, "admit", judged)
    front.guarded, front.behind.talk = True, keep
    frames = spdy.FrameWriter().write(spdy.Ping(1)) * 20_000
    async with upgraded(front.port, "POST /x") as client:
        client.writer.write(frames)
        await client.writer.drain()
        client.writer.write_eof()
        await until(lambda: len(got) == len(frames))
    assert got == frames
    assert max(sizes) <= 512


async def test_large_frames_of_data_pass_in_few_pieces(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each piece of 2 KiB of an upload is sent by itself."""
    sizes, got = [], 0
    admit = spdy.FrameGuard.admit

    def judged(guard: spdy.FrameGuard, data: bytes) -> bytes:
        sizes.append(len(data))
        return admit(guard, data)

    async def keep(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal got
        while data := await reader.read(65536):
            got += len(data)

    monkeypatch.setattr(spdy.FrameGuard, "admit", judged)
    front.guarded, front.behind.talk = True, keep
    frames = spdy.FrameWriter().write(spdy.Data(1, bytes(2**20), is_fin=False)) * 4
    async with upgraded(front.port, "POST /x") as client:
        client.writer.write(frames)
        await client.writer.drain()
        await until(lambda: got == len(frames))
    assert statistics.mean(sizes) > 8192


async def test_half_an_end_leaves_the_other_half(front: Front) -> None:
    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(len(await reader.read(-1))).encode())

    front.behind.talk = answer_at_the_end
    async with upgraded(front.port, "POST /x") as client:
        client.writer.write(bytes(1_000_000))
        client.writer.write_eof()
        async with asyncio.timeout(10):
            assert await client.reader.read(-1) == b"1000000"


async def test_all_end_when_the_program_stops_and_none_begins(front: Front) -> None:
    async with upgraded(front.port, "POST /x") as client:
        await front.streams.close()
        async with asyncio.timeout(10):
            assert await client.reader.read(-1) == b""
    async with upgraded(front.port, "POST /x") as client:
        assert client.status == 503
    assert front.statuses == [101]


def test_a_place_is_given_back_when_the_stream_fails() -> None:
    streams = Streams(Bounds(1, 1))
    for _ in range(2):
        with pytest.raises(ValueError, match="it failed"), streams.place("u", "u"):
            raise ValueError("it failed")
    with streams.place("u", "u"), pytest.raises(ApiError), streams.place("u", "u"):
        pass


def test_nobody_gets_more_streams_to_a_server_than_are_free() -> None:
    streams = Streams(Bounds(of_user=128, in_all=1024, behind_one=16))
    with ExitStack() as held:
        got = [_filled(streams, held, user) for user in ("a", "b", "c")]
        assert got == [8, 4, 2]
        held.enter_context(streams.place("late", "late", behind="n"))
        held.enter_context(streams.place("a", "a", behind="other"))
        with pytest.raises(ApiError, match=r'too many streams of "a" to "n" \(8, and 15 in all\)'):
            held.enter_context(streams.place("a", "a", behind="n"))
    with ExitStack() as held:
        assert _filled(streams, held, "a") == 8  # nothing is left of the others
    assert not streams.open


def _filled(streams: Streams, held: ExitStack, user: str) -> int:
    """How many streams to "n" the user gets."""
    for number in range(100):
        try:
            held.enter_context(streams.place(user, user, behind="n"))
        except ApiError as error:
            assert error.code == 429
            return number
    raise AssertionError("no bound")
