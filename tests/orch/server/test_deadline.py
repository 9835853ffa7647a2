from __future__ import annotations

import asyncio

import pytest

from orch.server.deadline import within

LONG_S = 600.0


async def test_work_that_never_waits_is_done_however_short_its_time() -> None:
    async def work() -> str:
        return "done"

    assert await within(0.0, work()) == "done"


async def test_what_work_raises_is_passed_on_before_and_after_it_waited() -> None:
    async def work(*, waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("no")

    for waits in (False, True):
        with pytest.raises(ValueError, match="no"):
            await within(LONG_S, work(waits=waits))


async def test_work_that_waits_gets_what_it_waited_for() -> None:
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[int]] = [loop.create_future() for _ in range(2)]

    async def work() -> list[int]:
        await asyncio.sleep(0)
        return [await answer for answer in answers]

    task = asyncio.create_task(within(LONG_S, work()))
    for number, answer in enumerate(answers):
        await asyncio.sleep(0)
        answer.set_result(number)
    assert await task == [0, 1]


async def test_an_error_of_what_it_waits_for_reaches_the_work() -> None:
    failing: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    failing.set_exception(OSError("gone"))

    async def work() -> str:
        try:
            await asyncio.sleep(0)
            await failing
        except OSError as error:
            await asyncio.sleep(0)
            return f"seen: {error}"
        return "not seen"

    assert await within(LONG_S, work()) == "seen: gone"


async def test_work_beyond_its_time_is_cancelled_and_may_clean_up() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(TimeoutError):
        await within(0.001, work())
    assert cleaned == [True]


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

    task = asyncio.create_task(within(LONG_S, work()))
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

    assert await within(LONG_S, work()) == "its own"
