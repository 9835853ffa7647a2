"""Raw bytes against a real listener: what is malformed never reaches a handler.

Source of the table: the framing battery of the HTTP reference notes (section 3).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from aiohttp import web

from orch.component.http import httpd, intake, slow_clients
from orch.component.http.connection import MAX_HEAD_BYTES, Connection
from orch.component.http.httpd import HttpServer
from orch.component.http.sliced_response import LazyBody
from orch.component.http.slow_clients import SlowClients
from tests.garbage import is_left_by

HOST = b"Host: x\r\n"
CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


LARGE = web.RequestKey("large", bytes)


def _hold(_end):
    return lambda: None


class Served:
    def __init__(self) -> None:
        self.requests = 0
        self.port = 0
        self.slow = SlowClients("test")
        self.answer = b""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests += 1
        await request.read()
        if self.answer:
            return web.Response(body=LazyBody(lambda: (memoryview(self.answer),), None, _hold))
        return web.Response(text="handled")

    async def send(self, raw: bytes) -> bytes:
        """Everything the server answers until it closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(raw)
            async with asyncio.timeout(30):
                return await reader.read()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", served.handle)
    server = HttpServer(app, host="127.0.0.1", port=0, name="test", slow_clients=served.slow)
    served.port = await server.start()
    yield served
    await server.stop(0.1)


MALFORMED = {
    "an expectation that is no text": b"GET / HTTP/1.1\r\n" + HOST + b"Expect: \xff\r\n\r\n",
    "length and chunks": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "same length twice": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    **{
        f"length {value!r}": b"POST / HTTP/1.1\r\n"
        + HOST
        + b"Content-Length: "
        + value
        + b"\r\n\r\nabc"
        for value in (b"+1", b"-1", b"0x1", b"1_0", b"1, 1")
    },
    **{
        f"encoding {value!r}": b"POST / HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: "
        + value
        + b"\r\n\r\n0\r\n\r\n"
        for value in (b"xchunked", b"chunked, identity", b"chunked, chunked")
    },
    "space before colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: x\n\n",
    "bare CR": b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "NUL": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "chunk size 0x1": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "HTTP/1.11": b"GET / HTTP/1.11\r\n" + HOST + b"\r\n",
    "lower-case method": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "200 headers": b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 200 + b"\r\n",
    "long header": b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 9000 + b"\r\n\r\n",
    "long path": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS hello": bytes.fromhex("16030100c8010000c40303") + b"\x00" * 50 + b"\r\n\r\n",
    "vertical tab before the encoding": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "comma in the method": b"GE,T / HTTP/1.1\r\n" + HOST + b"\r\n",
    **{
        what: CHUNKED + chunks
        for what, chunks in {
            "chunk size +1": b"+1\r\na\r\n0\r\n\r\n",
            "chunk size of 40 digits": b"f" * 40 + b"\r\na\r\n0\r\n\r\n",
            "LF in a chunk extension": b"1;a\nb\r\na\r\n0\r\n\r\n",
            "chunks with LF only": b"1\na\n0\n\n",
            "nothing after a chunk": b"1\r\nab\r\n0\r\n\r\n",
            "200 trailers": b"1\r\na\r\n0\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        }.items()
    },
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_framing_is_refused_closed_and_never_handled(
    raw: bytes, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        answer = await served.send(raw)
    assert answer.split(b" ")[1] in (b"400", b"505"), answer
    assert b"handled" not in answer
    assert caplog.messages == []


# Odd, but framed without doubt: answered, and nothing of it acted on.
ACCEPTED = {
    "another authority in the target": b"GET http://elsewhere/ HTTP/1.1\r\n" + HOST,
    "an upgrade to HTTP/2": b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n" + HOST,
}


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_what_is_odd_but_clear_is_answered(raw: bytes, served: Served) -> None:
    answer = await served.send(raw + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert served.requests == 1


async def test_a_header_that_dribbles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time counts from the first byte, however many follow."""
    monkeypatch.setattr(httpd, "KEEPALIVE_S", 0.3)
    server = HttpServer(web.Application(), host="127.0.0.1", port=0, name="test")
    port = await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        ended = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(30):
            for byte in b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000:
                if ended.done():
                    break
                with suppress(OSError):
                    writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
        assert ended.done()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        await server.stop(0.1)


async def test_a_client_that_leaves_amid_its_body_is_no_error_of_the_server(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "orch.component.http.connection")
    _reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
    async with asyncio.timeout(10):
        while not served.requests:
            await asyncio.sleep(0.01)
        writer.close()
        while not caplog.records:
            await asyncio.sleep(0.01)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("DEBUG", "127.0.0.1 disconnected before its request was complete")
    ]


async def test_the_table_is_not_refused_for_another_reason(served: Served) -> None:
    answer = await served.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"handled")
    assert served.requests == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    ],
    ids=["handled", "malformed", "refused"],
)
async def test_no_response_names_the_software(raw: bytes, served: Served) -> None:
    answer = (await served.send(raw)).lower()
    assert b"server:" not in answer
    assert b"aiohttp" not in answer
    assert b"python" not in answer


@pytest.mark.parametrize(("method", "expected"), [("GET", "cut"), ("POST", "carried through")])
async def test_when_the_client_goes_a_read_ends_and_a_write_is_carried_through(
    method: str, expected: str
) -> None:
    arrived, gone, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    outcome = []

    async def handle(_request: web.Request) -> web.Response:
        arrived.set()
        try:
            await gone.wait()
            outcome.append("carried through")
        except asyncio.CancelledError:
            outcome.append("cut")
            raise
        finally:
            ended.set()
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/", handle)
    server = HttpServer(app, host="127.0.0.1", port=0, name="test")
    port = await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
    await arrived.wait()
    writer.close()
    await writer.wait_closed()
    while server.connection_limit.open:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    gone.set()
    await ended.wait()
    assert outcome == [expected]
    await server.stop()


async def test_a_head_is_bounded_as_a_whole_before_it_is_complete(served: Served) -> None:
    lines = b"".join(b"A%d: %s\r\n" % (n, b"b" * 4000) for n in range(10))
    fitting = b"GET / HTTP/1.1\r\n" + HOST + lines
    answer = await served.send(fitting + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    answer = await served.send(fitting + lines)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_body_is_no_head_however_it_arrives(served: Served) -> None:
    body = bytes(3 * MAX_HEAD_BYTES)
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n" % len(body)
    twice = (head + b"\r\n" + body) + (head + b"Connection: close\r\n\r\n" + body)
    assert (await served.send(twice)).count(b"HTTP/1.1 200 OK\r\n") == 2


_GET = b"GET / HTTP/1.1\r\n" + HOST + b"%s\r\n"
_POST = b"POST / HTTP/1.1\r\n" + HOST + b"%s\r\n"
_CLOSE = b"Connection: close\r\n"
LONG = {
    "a hundred requests at once": (100, _GET % b"" * 99 + _GET % _CLOSE),
    "a long head": (1, _GET % (b"A: %s\r\n" % (b"b" * 4000) * 9 + _CLOSE)),
    "bodies of a known length": (
        3,
        (_POST % b"Content-Length: 50000\r\n" + bytes(50_000)) * 2 + _GET % _CLOSE,
    ),
    "bodies in chunks": (
        3,
        (CHUNKED + b"20\r\n%s\r\n" % bytes(32) * 1500 + b"0\r\n\r\n") * 2 + _GET % _CLOSE,
    ),
}


@pytest.mark.parametrize(("count", "raw"), LONG.values(), ids=LONG)
async def test_what_waits_for_time_of_the_loop_is_answered_like_anything_else(
    count: int, raw: bytes, served: Served, monkeypatch
) -> None:
    monkeypatch.setattr(intake, "_OWED_S", 1e-9)  # a slice in a window, or in several
    monkeypatch.setattr(intake, "LITTLE_S", 1e-9)
    assert (await served.send(raw)).count(b"HTTP/1.1 200 OK\r\n") == count
    assert served.requests == count


async def test_nothing_of_a_request_is_kept_once_it_is_answered(
    served: Served, monkeypatch
) -> None:
    kept: list[tuple[web.Request, web.StreamResponse]] = []
    finish = Connection.finish_response

    async def remember(self, request, resp, start_time):
        kept.append((request, resp))
        request[LARGE] = bytes(1000)
        return await finish(self, request, resp, start_time)

    monkeypatch.setattr(Connection, "finish_response", remember)
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nConnection: close\r\n\r\n"
    assert (await served.send(head + b"abc")).endswith(b"handled")
    ((request, response),) = kept
    assert (dict(request), request._read_bytes, response._body) == ({}, None, None)


async def test_nothing_of_a_connection_waits_for_garbage_collection(served: Served) -> None:
    asked = b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    assert not await is_left_by(lambda: served.send(asked), Connection)


async def test_an_answer_that_is_not_read_is_kept_small_and_cut(
    served: Served, monkeypatch
) -> None:
    monkeypatch.setattr(slow_clients, "STALL_S", 1.0)
    served.answer = bytes(30_000_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1000)
    writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
    async with asyncio.timeout(30):
        while not served.slow.waiting_bytes:
            await asyncio.sleep(0.01)
        assert served.slow.waiting_bytes < 500_000
        while not served.slow.cut:
            await asyncio.sleep(0.01)
        taken = 0
        with suppress(ConnectionError):
            while data := await reader.read(1_000_000):
                taken += len(data)
    assert taken < len(served.answer)
    assert served.slow.waiting_bytes == 0
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


FRAMED = {
    "chunks of a byte": (413, b"1\r\na\r\n" * 100_000),
    "an endless extension": (413, b"1;" + b"a" * 1_000_000),
    "a few chunks of a byte": (200, b"1\r\na\r\n" * 1000 + b"0\r\n\r\n"),
    "a line in each chunk": (200, (b"20\r\n" + b"a" * 32 + b"\r\n") * 30_000 + b"0\r\n\r\n"),
    "a large chunk": (200, b"%x\r\n" % 1_000_000 + b"a" * 1_000_000 + b"\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize(("status", "chunks"), FRAMED.values(), ids=FRAMED)
async def test_the_chunks_of_a_body_may_cost_no_more_than_what_is_in_them(
    status: int, chunks: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await httpd.read_body(request))}")

    app = web.Application(client_max_size=3_000_000, middlewares=[httpd.api_errors])
    app.router.add_route("POST", "/", handle)
    server = HttpServer(app, host="127.0.0.1", port=0, name="test")
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    try:
        async with asyncio.timeout(30):
            for start in range(0, len(CHUNKED + chunks), 10_000):
                writer.write((CHUNKED + chunks)[start : start + 10_000])
                with suppress(ConnectionError):
                    await writer.drain()
            answer = await reader.readuntil(b"\r\n\r\n")
            if status == 413:
                with suppress(ConnectionError):
                    assert b"too small" in await reader.read()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        await server.stop(0.1)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert not caplog.messages
