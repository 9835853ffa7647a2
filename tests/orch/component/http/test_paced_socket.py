"""Between a socket and TLS all bytes pass, in order, and in the time of their owner."""

from __future__ import annotations

import asyncio
import logging
import math
import socket

import pytest

from orch.component.http.intake import OWN_S, WINDOW_S, Intake
from orch.component.http.paced_socket import SERVER_BYTES, SLICE_BYTES, PacedSocket

RECORDS = b"".join(b"\x17\x03\x03" + number.to_bytes(2, "big") for number in range(3276))


class Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_read = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """It is called directly."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nothing is sent."""

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Tls(asyncio.BufferedProtocol):
    """Takes as much time for two slices as an owner has who took none before."""

    def __init__(self) -> None:
        self.buffer = bytearray(16_384)
        self.slices: list[bytes] = []
        self.now_s = 1000.0

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.slices.append(bytes(self.buffer[:nbytes]))
        self.now_s += 2 * OWN_S / 1.9


class World:
    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        is_free: bool = False,
        large_bytes: int = SLICE_BYTES,
        opening_bytes: float = math.inf,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.tls, self.socket = Tls(), Socket()
        monkeypatch.setattr(loop, "time", lambda: self.tls.now_s)
        intake = None if is_free else Intake(loop)
        self.paced = PacedSocket(
            self.socket,
            lambda: "owner",
            lambda _: intake,
            large_bytes=large_bytes,
            opening_bytes=opening_bytes,
        )
        self.paced.set_protocol(self.tls)

    def receive(self, data: bytes) -> None:
        self.paced.get_buffer(-1)[: len(data)] = data
        self.paced.buffer_updated(len(data))

    async def pass_windows(self, count: int) -> None:
        for _ in range(count):
            self.tls.now_s += WINDOW_S
            for _ in range(4):
                await asyncio.sleep(0)


async def test_much_is_decrypted_in_slices_while_nothing_more_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.receive(RECORDS)
    assert len(world.tls.slices) == 2 and not world.socket.is_read, "an owner's time is used up"
    world.paced.resume_reading()
    assert not world.socket.is_read, "TLS would read on"
    await world.pass_windows(3)
    assert b"".join(world.tls.slices) == RECORDS
    assert max(map(len, world.tls.slices)) == SLICE_BYTES
    assert world.socket.is_read


async def test_a_servers_large_records_are_decrypted_in_one_go_but_not_its_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, large_bytes=SERVER_BYTES)
    world.receive(RECORDS[:5] + bytes(16_379))
    world.receive(RECORDS)
    assert list(map(len, world.tls.slices)) == [16_384, SLICE_BYTES]


async def test_little_waits_as_well_once_the_time_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    for data in (b"one", b"two", b"three"):
        world.receive(data)
    assert world.tls.slices == [b"one", b"two"] and not world.socket.is_read
    world.tls.buffer[:5] = b"other"
    world.paced.pause_reading()
    await world.pass_windows(1)
    assert world.tls.slices == [b"one", b"two", b"three"]
    assert not world.socket.is_read, "TLS does not want it"
    world.paced.resume_reading()
    assert world.socket.is_read


async def test_who_is_free_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, is_free=True)
    for _ in range(10):
        world.receive(b"x" * 16_384)
    assert len(world.tls.slices) == 10 and world.socket.is_read


async def test_what_waited_is_dropped_with_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.receive(RECORDS)
    world.paced.connection_lost(None)
    await world.pass_windows(3)
    assert len(world.tls.slices) == 2


async def test_what_is_written_to_a_lost_socket_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As the answers to the pings of a client that has reset its connection."""
    own, peer = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=own)
    paced = PacedSocket(transport, lambda: "owner", lambda _: None)
    peer.close()
    with caplog.at_level(logging.DEBUG, "asyncio"):
        for _ in range(20):
            paced.write(b"pong")
    assert transport.is_closing()
    assert not caplog.records
    await asyncio.sleep(0)


async def test_more_than_a_handshake_is_read_only_once_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, opening_bytes=10_000)
    for _ in range(3):
        assert world.socket.is_read
        world.receive(b"x" * SLICE_BYTES)
        await world.pass_windows(3)
    world.paced.resume_reading()
    assert not world.socket.is_read
    assert sum(map(len, world.tls.slices)) == 3 * SLICE_BYTES
    world.paced.open()
    assert world.socket.is_read
    world.receive(RECORDS[:16_384])
    await world.pass_windows(10)
    assert world.socket.is_read
