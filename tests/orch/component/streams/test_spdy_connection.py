"""A client's connection of SPDY against a server that the test plays frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator

import pytest

from orch.component.streams import spdy, spdy_connection
from orch.component.streams.spdy import Data, Frame, GoAway, RstStream, SpdyError, SynReply
from orch.component.streams.spdy_connection import Received, SpdyConnection
from tests.orch.component.streams import door


class Server:
    """The other end."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._encoder = spdy.FrameWriter()

    def send(self, *frames: Frame) -> None:
        self.writer.write(b"".join(map(self._encoder.write, frames)))

    async def frames(self) -> list[Frame]:
        """All that come to the end."""
        data = await asyncio.wait_for(self.reader.read(), 30)
        return list(spdy.FrameReader().feed(data))


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[SpdyConnection, Server]]:
    async with door.pair() as (reader, writer, there_reader, there_writer):
        yield SpdyConnection(reader, writer), Server(there_reader, there_writer)


async def test_streams_are_opened_written_finished_and_ended_in_order() -> None:
    async with connected() as (connection, server):
        server.send(SynReply(3), SynReply(1))
        assert await connection.open((("a", "1"),), (("b", "2"),)) == (1, 3)
        await connection.write(3, b"x" * (spdy_connection.WRITE_BYTES + 1))
        await connection.finish(3)
        await connection.finish(3)
        await connection.write(3, b"late")
        connection.close()

        opened, other, *data, end = await server.frames()
        assert opened == spdy.SynStream(1, (("a", "1"),))
        assert other == spdy.SynStream(3, (("b", "2"),))
        assert b"".join(one.data for one in data if isinstance(one, Data)) == b"x" * 32769
        assert data[-1] == Data(3, b"", is_fin=True)
        assert end == GoAway(0)


async def test_what_comes_on_a_stream_ends_by_its_flag_or_a_reset() -> None:
    async with connected() as (connection, server):
        server.send(SynReply(1), SynReply(3), SynReply(5))
        await connection.open((), (), ())
        server.send(Data(1, b"a"), Data(1, b"b", is_fin=True), RstStream(3))
        server.send(
            spdy.Headers(5, (("late", "header"),), is_fin=True), spdy.Settings(()), GoAway(0)
        )

        assert [await connection.receive() for _ in range(5)] == [
            Received(1, b"a", False),
            Received(1, b"b", True),
            Received(3, b"", True),
            Received(5, b"", True),
            None,
        ]


async def test_a_server_that_takes_no_streams_in_time_is_given_up() -> None:
    async with connected() as (connection, _):
        with pytest.raises(SpdyError, match=r"no new streams within 0\.05 s"):
            await connection.open((), timeout_s=0.05)


async def test_nothing_is_written_to_a_stream_that_was_reset() -> None:
    async with connected() as (connection, server):
        server.send(SynReply(1), RstStream(1))
        await connection.open(())
        await connection.receive()
        await connection.write(1, b"unwanted")
        await connection.finish(1)
        connection.close()

        assert await server.frames() == [spdy.SynStream(1, ()), GoAway(0)]


async def test_a_connection_that_breaks_is_an_error_of_its_own_kind() -> None:
    async with connected() as (connection, server):
        server.send(SynReply(1))
        await connection.open(())
        server.writer.transport.abort()  # with bytes unread: a reset

        with pytest.raises(SpdyError, match="writing failed"):
            while True:
                await connection.write(1, bytes(65536))


async def test_pings_of_a_server_that_does_not_read_go_unanswered() -> None:
    """Their answers would wait here without bound."""
    async with connected() as (connection, server):
        server.send(SynReply(1))
        await connection.open(())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while True:
                    await connection.write(1, bytes(65536))
        waiting_bytes = connection._writer.transport.get_write_buffer_size()
        server.send(*[spdy.Ping(2)] * 1000, Data(1, b"after"))

        assert await connection.receive() == Received(1, b"after", False)
        assert connection._writer.transport.get_write_buffer_size() <= waiting_bytes
        connection._writer.transport.abort()


async def test_a_storm_of_tiny_frames_leaves_others_their_turn() -> None:
    sent = 20_000
    async with connected() as (connection, server):
        server.send(SynReply(1))
        await connection.open(())
        server.send(*[Data(1, b"x")] * sent, GoAway(0))
        received = 0

        async def receive_all() -> None:
            nonlocal received
            while await connection.receive() is not None:
                received += 1

        receiving = asyncio.create_task(receive_all())
        most_in_a_turn = 0
        while not receiving.done():
            before = received
            await asyncio.sleep(0)
            most_in_a_turn = max(most_in_a_turn, received - before)
        assert received == sent
        assert most_in_a_turn < 2000  # 3 to 6 ms of work
