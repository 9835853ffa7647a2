import asyncio

import pytest

from orch.component.http.fair_queue import Deadlines

LONG_S = 600.0


async def test_work_that_never_waits_is_done_however_short_its_time() -> None:
    async def work() -> str:
        return "done"

    assert await Deadlines(0.0).hold(work()) == "done"


async def test_what_work_raises_is_passed_on_before_and_after_it_waited() -> None:
    async def work(*, waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("no")

    for waits in (False, True):
        with pytest.raises(ValueError, match="no"):
            await Deadlines(LONG_S).hold(work(waits=waits))


async def test_work_beyond_its_time_is_cancelled_and_may_clean_up() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(TimeoutError):
        await Deadlines(0.001).hold(work())
    assert cleaned == [True]
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


@pytest.mark.looptime
async def test_each_piece_of_work_has_its_own_time() -> None:
    """The second begins while the first runs, and is late after it."""
    deadlines, ended = Deadlines(0.02), []

    async def work(name: str) -> None:
        try:
            await deadlines.hold(asyncio.Event().wait())
        except TimeoutError:
            ended.append(name)

    first = asyncio.ensure_future(work("first"))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(work("second"))
    await first
    assert ended == ["first"]
    await second
    assert ended == ["first", "second"]


async def test_work_that_ended_in_time_is_left_alone_when_the_next_is_late() -> None:
    deadlines = Deadlines(0.01)
    assert await deadlines.hold(asyncio.sleep(0, "in time")) == "in time"
    with pytest.raises(TimeoutError):
        await deadlines.hold(asyncio.Event().wait())
    assert await deadlines.hold(asyncio.sleep(0, "again")) == "again"


async def test_a_cancelled_task_cancels_its_work_and_is_no_timeout() -> None:
    cancelled = []
    waiting = asyncio.Event()

    async def work() -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    task = asyncio.ensure_future(Deadlines(LONG_S).hold(work()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [True]


async def test_a_deadline_of_the_work_itself_still_holds() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "its own"
        return "none"

    assert await Deadlines(LONG_S).hold(work()) == "its own"
