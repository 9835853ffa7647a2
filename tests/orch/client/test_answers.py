import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from orch.client import answers
from orch.client.kubeconfig import ClientConfig
from orch.client.transport import Transport, TransportError

MakeServer = Callable[[web.Application], Awaitable[TestServer]]


@pytest.fixture
async def send(aiohttp_server: MakeServer) -> AsyncIterator[Callable[..., Awaitable[Transport]]]:
    """A function that makes a server send these chunks, then end, hang or break off."""
    made = []

    async def send(*chunks: bytes, then: str = "end") -> Transport:
        async def handle(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"X-Kind": "stream"})
            await response.prepare(request)
            for chunk in chunks:
                await response.write(chunk)
                await asyncio.sleep(0.001)
            if then == "hang":
                await asyncio.Event().wait()
            if then == "break":
                assert request.transport
                request.transport.abort()
            return response

        app = web.Application()
        app.router.add_get("/", handle)
        server = await aiohttp_server(app)
        made.append(Transport(ClientConfig(server=str(server.make_url("/"))[:-1])))
        return made[-1]

    yield send
    for transport in made:
        await transport.close()


async def lines(transport: Transport, **options: float) -> list[bytes]:
    async with transport.stream("/", **options) as stream:  # type: ignore[arg-type]
        assert (stream.status, stream.headers["x-kind"]) == (200, "stream")
        return [line async for line in stream]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"o", b"n", b"e\ntw", b"o\n"], [b"one", b"two"]),
        ([b"one\ntwo"], [b"one", b"two"]),
        ([b"\n\n"], [b"", b""]),
        ([], []),
        ([b"x" * 300_000, b"y" * 300_000 + b"\nz\n"], [b"x" * 300_000 + b"y" * 300_000, b"z"]),
    ],
    ids=["whole", "split", "open end", "empty lines", "nothing", "long"],
)
async def test_lines_are_whole_however_they_arrive(
    send: Callable[..., Awaitable[Transport]], chunks: list[bytes], expected: list[bytes]
) -> None:
    assert await lines(await send(*chunks)) == expected


async def test_chunks_come_as_they_arrive_and_read_takes_the_rest(
    send: Callable[..., Awaitable[Transport]],
) -> None:
    transport = await send(b"abc", b"def")
    async with transport.stream("/") as stream:
        first = await anext(stream.chunks())
        assert b"abcdef".startswith(first)
        assert first + await stream.beginning(100, within_s=30) == b"abcdef"


async def test_a_stream_that_breaks_off_is_an_error_after_its_lines(
    send: Callable[..., Awaitable[Transport]],
) -> None:
    transport = await send(b"one\n", then="break")
    seen = []
    with pytest.raises(TransportError, match=r"cannot reach http://.*: "):
        async with transport.stream("/") as stream:
            async for line in stream:
                seen.append(line)  # noqa: PERF401 - what came before the error counts
    assert seen == [b"one"]


async def test_a_silent_stream_is_given_up(
    send: Callable[..., Awaitable[Transport]],
) -> None:
    transport = await send(b"one\n", then="hang")
    with pytest.raises(TransportError, match=r"the server did not answer within 0\.05 s"):
        await lines(transport, silence_s=0.05)


async def test_bytes_without_a_line_are_silence_to_who_waits_for_lines() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX-Kind: stream\r\n\r\none\n")
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = Transport(ClientConfig(server=f"http://127.0.0.1:{port}"))
    async with asyncio.timeout(30):
        with pytest.raises(TransportError, match=r"the server did not answer within 0\.5 s"):
            await lines(transport, silence_s=0.5)
    await transport.close()
    server.close()


async def test_a_refusal_that_drips_or_never_ends_is_cut(
    send: Callable[..., Awaitable[Transport]],
) -> None:
    transport = await send(b"no" * 10, then="hang")
    async with transport.stream("/") as stream:
        assert await stream.beginning(4, within_s=30) == b"nono"
        with pytest.raises(TransportError, match=r"did not answer within 0\.05 s"):
            await stream.beginning(1000, within_s=0.05)


async def test_an_answer_beyond_every_measure_is_refused(
    send: Callable[..., Awaitable[Transport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MAX_BYTES", 2**20)
    transport = await send(b"x" * 2**20)
    assert len((await transport.request("GET", "/")).body) == 2**20
    transport = await send(b"x" * 2**20, b"y", then="hang")
    with pytest.raises(TransportError, match="answered with more than 1 MiB"):
        await transport.request("GET", "/")


@pytest.mark.slow
async def test_an_answer_in_tiny_chunks_is_refused(
    send: Callable[..., Awaitable[Transport]],
) -> None:
    transport = await send(*([b"x" * 32] * 1_500))
    assert len((await transport.request("GET", "/")).body) == 48_000
    transport = await send(*([b"x"] * 1_500), then="hang")
    with pytest.raises(TransportError, match="chunks of the answer are too small"):
        await transport.request("GET", "/")


async def test_answers_without_a_body_end(aiohttp_server: MakeServer) -> None:
    async def nothing(_request: web.Request) -> web.Response:
        return web.Response(status=204)

    app = web.Application()
    app.router.add_get("/", nothing)
    server = await aiohttp_server(app)
    transport = Transport(ClientConfig(server=str(server.make_url("/"))[:-1]))
    for _ in range(3):
        answer = await transport.request("GET", "/")
        assert (answer.status, answer.body) == (204, b"")
    await transport.close()


async def test_leaving_a_stream_early_does_not_wait_for_its_rest(
    send: Callable[..., Awaitable[Transport]],
) -> None:
    transport = await send(b"one\n", then="hang")
    async with transport.stream("/") as stream, asyncio.timeout(30):
        assert await anext(aiter(stream)) == b"one"


async def test_a_line_without_end_is_refused(
    send: Callable[..., Awaitable[Transport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MAX_LINE_BYTES", 1000)
    with pytest.raises(TransportError, match="sent a line longer than"):
        await lines(await send(b"x" * 600, b"x" * 600, then="hang"))


async def test_a_response_that_is_not_http_is_reported() -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    transport = Transport(
        ClientConfig(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    )
    with pytest.raises(TransportError, match="the answer is not HTTP"):
        await transport.request("GET", "/")
    await transport.close()
    server.close()


async def test_a_server_that_hangs_up_is_reported() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    transport = Transport(
        ClientConfig(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    )
    with pytest.raises(TransportError, match="the server closed the connection without an answer"):
        await transport.request("POST", "/")
    await transport.close()
    server.close()


async def test_a_name_that_does_not_resolve_is_reported() -> None:
    transport = Transport(ClientConfig(server="http://no-such-host.invalid:1"))
    with pytest.raises(TransportError, match="the host name does not resolve"):
        await transport.request("GET", "/")
    await transport.close()


async def test_an_address_that_is_no_url_is_reported() -> None:
    transport = Transport(ClientConfig(server="http://a:b"))
    with pytest.raises(TransportError, match="cannot reach http://a:b: "):
        await transport.request("GET", "/")
    await transport.close()


@pytest.mark.parametrize(
    ("limit", "expected"), [(100, b"first and last"), (14, b"first and last"), (8, b"first an")]
)
async def test_the_beginning_of_a_body_has_the_requested_length(
    send: Callable[..., Awaitable[Transport]], limit: int, expected: bytes
) -> None:
    transport = await send(b"first ", b"and ", b"last")
    async with aiohttp.ClientSession() as session, session.get(transport.config.server) as answer:
        assert await answers.beginning(answer, limit) == expected
