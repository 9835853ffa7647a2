"""Two transports joined, as they behave one by one; with sockets they are in test_upgrade.py."""

from __future__ import annotations

import asyncio

import pytest

from orch.component.streams.splice import CLIENT, LINGER_S, UPSTREAM, Splice


class Transport(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self, *, halves: bool = False) -> None:
        super().__init__()
        self.written = b""
        self.is_reading = True
        self.closed = False
        self.ended = False
        self._halves = halves

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data

    def can_write_eof(self) -> bool:
        return self._halves

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


def joined(*, idle_s: float = 0, halves: bool = False) -> tuple[Splice, Transport, Transport]:
    client, upstream = Transport(halves=halves), Transport(halves=halves)
    return Splice(client, upstream, idle_s=idle_s), client, upstream


async def run(splice: Splice) -> None:
    async with asyncio.timeout(5):
        await splice.run(unsent_bytes=lambda: 0)


async def test_what_comes_after_the_end_is_dropped() -> None:
    splice, client, upstream = joined()
    splice.ends[CLIENT].data_received(b"a")
    splice.ends[UPSTREAM].data_received(b"b")
    splice.cut("enough")
    splice.ends[CLIENT].data_received(b"too late")
    await run(splice)
    assert (client.written, upstream.written) == (b"b", b"a")
    assert client.closed and upstream.closed
    assert splice.why == "enough"


async def test_a_full_side_stops_the_other() -> None:
    plain, client, upstream = joined()
    plain.ends[CLIENT].pause_writing()
    assert (client.is_reading, upstream.is_reading) == (True, False)
    plain.ends[CLIENT].resume_writing()
    assert upstream.is_reading


async def test_an_upstream_is_read_only_while_the_client_takes_it() -> None:
    splice, _, upstream = joined()
    upstream.pause_reading()
    splice.ends[CLIENT].pause_writing()
    splice.resume()
    assert not upstream.is_reading
    splice.ends[CLIENT].resume_writing()
    assert upstream.is_reading


async def test_who_is_left_is_read_on() -> None:
    """What waits for it may be taken only then: each waited for the other, for five minutes."""
    splice, client, upstream = joined()
    splice.ends[CLIENT].pause_writing()
    assert not upstream.is_reading
    splice.ends[CLIENT].connection_lost(None)
    assert upstream.is_reading
    splice.ends[UPSTREAM].data_received(b"for nobody")
    await run(splice)
    assert client.written == b""


async def test_half_an_end_is_passed_on_where_both_can() -> None:
    splice, client, upstream = joined(halves=True)
    assert splice.ends[CLIENT].eof_received() is True
    assert upstream.ended and not client.ended
    splice.ends[UPSTREAM].data_received(b"still")
    assert client.written == b"still"
    splice.ends[UPSTREAM].eof_received()
    await run(splice)
    whole, client, _ = joined()  # as over TLS, which has no halves
    assert whole.ends[CLIENT].eof_received() is False
    await run(whole)
    assert whole.why == "the client ended it"


async def test_silence_ends_it_and_speech_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: now_s[0])
    splice, _, _ = joined(idle_s=60)
    now_s[0] += 50
    splice.ends[UPSTREAM].data_received(b"x")
    now_s[0] += 50
    splice._look_for_use()
    assert splice.why == ""
    now_s[0] += 10
    splice._look_for_use()
    assert splice.why == "nothing was sent for 60 s"
    monkeypatch.undo()
    await run(splice)


async def test_what_a_client_does_not_take_is_dropped_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orch.component.streams.splice.LINGER_S", 0.1)
    splice, client, upstream = joined()
    splice.cut("enough")
    async with asyncio.timeout(5):
        await splice.run(unsent_bytes=lambda: 7)
    assert client.closed and upstream.closed


@pytest.mark.looptime
async def test_a_client_that_does_not_read_is_looked_at_ever_less_often() -> None:
    splice, client, _ = joined()
    looks = 0

    def unsent() -> int:
        nonlocal looks
        looks += 1
        return 1

    splice.cut("enough")
    await splice.run(unsent_bytes=unsent)
    assert client.closed
    assert asyncio.get_running_loop().time() >= LINGER_S
    assert looks < LINGER_S + 30
