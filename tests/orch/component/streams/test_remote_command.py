"""A translated session at its edges: slow, broken, silent and hostile on either side."""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, web

from orch.component.streams import remote_command, spdy, websocket
from orch.component.streams.remote_command import PROTOCOLS, Channel, Wanted
from orch.component.streams.spdy import Data, Frame, GoAway, Ping, RstStream, SynReply, SynStream
from tests.orch.component.streams import door

ALL = Wanted(stdin=True, stdout=True, stderr=True)
SUCCESS = b'{"status":"Success"}'
MIB = bytes(1024 * 1024)


@dataclass
class Runtime:
    """The runtime's end of a connection, played by the test."""

    reader: StreamReader
    writer: StreamWriter

    def __post_init__(self) -> None:
        self.encoder = spdy.FrameWriter()
        self.decoder = spdy.FrameReader()
        self.waiting: list[Frame] = []

    async def send(self, *frames: Frame) -> None:
        self.writer.write(b"".join(map(self.encoder.write, frames)))
        await self.writer.drain()

    async def frame(self) -> Frame | None:
        """The next one; None at the end."""
        while not self.waiting:
            data = await asyncio.wait_for(self.reader.read(65536), 30)
            if not data:
                return None
            self.waiting += self.decoder.feed(data)
        return self.waiting.pop(0)

    async def take_streams(self, count: int = 4) -> dict[str, int]:
        """Their ids by type."""
        streams = {}
        for _ in range(count):
            opened = await self.frame()
            assert isinstance(opened, SynStream)
            streams[dict(opened.headers)["streamtype"]] = opened.stream_id
        await self.send(*map(SynReply, streams.values()))
        return streams


@contextlib.asynccontextmanager
async def session(
    protocol: str = "v5.channel.k8s.io", wanted: Wanted = ALL, idle_timeout_s: float = 60
) -> AsyncIterator[tuple[ClientWebSocketResponse, Runtime]]:
    async with door.pair() as (reader, writer, there_reader, there_writer):

        async def handle(request: web.Request) -> web.StreamResponse:
            socket = await websocket.accept(request, PROTOCOLS)
            await remote_command.translate(
                socket, (reader, writer), wanted, idle_timeout_s=idle_timeout_s
            )
            return socket.response

        async with door.served(handle) as url, door.connected(url, protocol) as socket:
            first = await socket.receive(30)
            assert first.data in (b"\x01", b"\x03", "1")  # connected
            yield socket, Runtime(there_reader, there_writer)


async def end_of(socket: ClientWebSocketResponse) -> dict[str, object]:
    """The Status at the end of a session, whose socket is then closed in order."""
    received = await socket.receive(30)
    assert received.type is WSMsgType.BINARY and received.data[0] == Channel.ERROR
    assert (await socket.receive(30)).type is WSMsgType.CLOSE
    assert socket.close_code == 1000
    status: dict[str, object] = json.loads(received.data[1:])
    return status


@pytest.mark.parametrize(
    ("wanted", "types"),
    [
        (ALL, ["error", "stdin", "stdout", "stderr"]),
        (Wanted(stdout=True), ["error", "stdout"]),
        (Wanted(True, True, True, tty=True), ["error", "stdin", "stdout", "resize"]),
    ],
)
async def test_the_wanted_streams_are_opened_in_order(wanted: Wanted, types: list[str]) -> None:
    async with session(wanted=wanted) as (_, runtime):
        assert list(await runtime.take_streams(len(types))) == types


async def test_the_status_comes_after_all_output_and_before_the_end() -> None:
    async with session() as (socket, runtime):
        ids = await runtime.take_streams()
        await runtime.send(
            Data(ids["error"], SUCCESS[:5]),
            Data(ids["error"], SUCCESS[5:], is_fin=True),
            Data(ids["stdout"], b"late"),
            RstStream(ids["stdout"]),
            Data(ids["stderr"], b"", is_fin=True),
        )

        assert (await socket.receive(30)).data == b"\x01late"
        assert await end_of(socket) == {"status": "Success"}
        assert isinstance(await runtime.frame(), GoAway)
        assert await runtime.frame() is None


BROKEN: dict[str, tuple[Iterable[Frame], str]] = {
    "no word": ([], "did not say how it went"),
    "an endless status": ([Data(1, MIB)], "status has over 65536 bytes"),
    "a stream of its own": ([SynStream(2, ())], "opened a stream"),
    "half a status": ([GoAway(0)], "did not say"),
}


@pytest.mark.parametrize(("frames", "why"), BROKEN.values(), ids=BROKEN)
async def test_a_runtime_that_breaks_off_is_told_to_the_client(
    frames: Iterable[Frame], why: str
) -> None:
    async with session() as (socket, runtime):
        await runtime.take_streams()
        await runtime.send(*frames)
        runtime.writer.close()

        status = await end_of(socket)
        assert status["code"] == 500 and why in str(status["message"])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (RstStream(3, 3), "refused a stream"),
        (Data(5, b"early"), "before it took all streams"),
        (GoAway(0), "ended before it took the streams"),
    ],
)
async def test_a_runtime_that_takes_no_streams_is_told_to_the_client(
    answer: Frame, why: str
) -> None:
    async with session() as (socket, runtime):
        await runtime.send(answer)

        assert why in str((await end_of(socket))["message"])


async def test_a_runtime_that_speaks_something_else_is_told_to_the_client() -> None:
    async with session() as (socket, runtime):
        runtime.writer.write(b"\x80HTTP/1.1 400 Bad Request\r\n")

        assert "version" in str((await end_of(socket))["message"])


async def test_a_client_that_goes_ends_the_runtime_s_streams() -> None:
    async with session() as (socket, runtime):
        ids = await runtime.take_streams()
        await socket.send_bytes(b"\x00last words")
        await socket.close()

        assert await runtime.frame() == Data(ids["stdin"], b"last words")
        assert isinstance(await runtime.frame(), GoAway)
        assert await runtime.frame() is None


async def test_a_client_whose_connection_breaks_ends_the_runtime_s_streams() -> None:
    async with session() as (socket, runtime):
        await runtime.take_streams()
        door.wire_of(socket).abort()

        assert isinstance(await runtime.frame(), GoAway)
        assert await runtime.frame() is None


async def test_an_idle_session_ends_with_a_reason() -> None:
    async with session(idle_timeout_s=0.1) as (socket, runtime):
        await runtime.take_streams()

        status = await end_of(socket)
        assert (status["code"], status["message"]) == (504, "the stream was idle for 0.1 s")


async def test_only_v5_ends_its_input_by_message() -> None:
    async with session("v4.channel.k8s.io") as (socket, runtime):
        ids = await runtime.take_streams()
        await socket.send_bytes(b"\xff\x00")
        await socket.send_bytes(b"\x00on")

        assert await runtime.frame() == Data(ids["stdin"], b"on")


async def test_text_messages_are_input_of_a_binary_protocol() -> None:
    """As the Python client sends them."""
    async with session("v4.channel.k8s.io") as (socket, runtime):
        ids = await runtime.take_streams()
        await socket.send_str("\x00hällo")

        assert await runtime.frame() == Data(ids["stdin"], "hällo".encode())


async def test_messages_for_no_channel_are_dropped() -> None:
    async with session() as (socket, runtime):
        ids = await runtime.take_streams()
        for odd in (b"", b"\x01x", b"\x03x", b"\x09x", b"\x04x", b"\xff", b"\xff\x63", b"\xff\0\0"):
            await socket.send_bytes(odd)
        await socket.send_bytes(b"\x00end")

        assert await runtime.frame() == Data(ids["stdin"], b"end")


async def test_what_is_not_base64_is_dropped() -> None:
    async with session("v4.base64.channel.k8s.io") as (socket, runtime):
        ids = await runtime.take_streams()
        await socket.send_str("0!!!")
        await socket.send_str("0ZW5k")

        assert await runtime.frame() == Data(ids["stdin"], b"end")


async def test_input_that_the_runtime_no_longer_takes_is_dropped_and_output_goes_on() -> None:
    async with session() as (socket, runtime):
        ids = await runtime.take_streams()
        await runtime.send(RstStream(ids["stdin"]), Data(ids["stdout"], b"seen"))
        assert (await socket.receive(30)).data == b"\x01seen"
        await socket.send_bytes(b"\x00late")
        await socket.send_bytes(b"\xff\x00")
        await runtime.send(*(Data(ids[kind], b"", is_fin=True) for kind in ("stdout", "stderr")))
        await runtime.send(Data(ids["error"], SUCCESS, is_fin=True))

        assert await end_of(socket) == {"status": "Success"}
        assert isinstance(await runtime.frame(), GoAway)


async def test_the_runtime_s_pings_are_answered() -> None:
    async with session() as (_, runtime):
        await runtime.take_streams()
        await runtime.send(Ping(2), Ping(1), Ping(4))

        assert [await runtime.frame(), await runtime.frame()] == [Ping(2), Ping(4)]


async def test_a_client_that_does_not_read_stops_the_runtime() -> None:
    async with session() as (socket, runtime):
        ids = await runtime.take_streams()
        door.wire_of(socket).pause_reading()
        sent = 0

        async def pour() -> None:
            nonlocal sent
            while True:
                await runtime.send(Data(ids["stdout"], MIB[:65536]))
                sent += 65536

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pour(), 1.0)

        door.wire_of(socket).abort()
        assert sent < 32 * len(MIB)  # the kernel's buffers, mostly


async def test_a_runtime_that_does_not_read_stops_the_client_and_output_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does the client give up meanwhile: it is sent pongs, for its own pings are not seen."""
    monkeypatch.setattr(websocket, "PONG_INTERVAL_S", 0.1)
    async with session() as (socket, runtime):
        ids = await runtime.take_streams()
        sent = 0

        async def pour() -> None:
            nonlocal sent
            while True:
                await socket.send_bytes(b"\x00" + MIB)
                sent += len(MIB)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pour(), 1.0)
        await runtime.send(Data(ids["stdout"], b"still here"))

        assert sent < 48 * len(MIB)
        socket._autoping = False
        received = [await socket.receive(30)]
        while received[-1].type is not WSMsgType.BINARY:
            received.append(await socket.receive(30))
        assert received[-1].data == b"\x01still here"
        assert WSMsgType.PONG in {one.type for one in (*received, await socket.receive(30))}
        door.wire_of(socket).abort()
