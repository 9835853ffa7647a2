from __future__ import annotations

import asyncio

import pytest

from orch.server.handlers.watch_stream import GATHER_S, Gathering


class Stream:
    """Notes when it was written to, by the loop's clock."""

    def __init__(self) -> None:
        self.written_s: list[float] = []

    def write(self) -> None:
        self.written_s.append(asyncio.get_running_loop().time())


async def test_a_write_that_is_due_is_done_once_in_this_turn() -> None:
    gathering, streams = Gathering(), [Stream() for _ in range(3)]
    for stream in (*streams, *streams):
        gathering.soon(stream.write)
    assert streams[0].written_s == []
    await asyncio.sleep(0)
    assert [len(stream.written_s) for stream in streams] == [1, 1, 1]


@pytest.mark.looptime
async def test_writes_that_may_wait_are_done_together_and_in_time() -> None:
    gathering, early, late = Gathering(), Stream(), Stream()
    began_s = asyncio.get_running_loop().time()
    gathering.later(early.write)
    await asyncio.sleep(GATHER_S / 2)
    gathering.later(late.write)
    assert early.written_s == []
    await asyncio.sleep(GATHER_S)
    assert early.written_s == late.written_s == [pytest.approx(began_s + GATHER_S)]


async def test_a_forgotten_write_is_not_done() -> None:
    gathering, stream = Gathering(), Stream()
    gathering.soon(stream.write)
    gathering.later(stream.write)
    gathering.forget(stream.write)
    await asyncio.sleep(2 * GATHER_S)
    assert stream.written_s == []


async def test_a_write_may_ask_for_the_next_one() -> None:
    gathering, stream = Gathering(), Stream()

    def write() -> None:
        stream.write()
        if len(stream.written_s) < 3:
            gathering.soon(write)

    gathering.soon(write)
    while len(stream.written_s) < 3:
        await asyncio.sleep(0)
    assert len(stream.written_s) == 3
