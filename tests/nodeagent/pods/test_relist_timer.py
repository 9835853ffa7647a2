"""When to look again, on a clock that jumps."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.pods.relist import COLLECT_S, Due, RelistTimer

pytestmark = pytest.mark.looptime


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def waited(
    timer: RelistTimer, seconds: float = 10.0, *, took_s: float = 0.0
) -> tuple[Due, float]:
    """Why the wait ended, and after how long."""
    began_s = now_s()
    due = await timer.wait(began_s + seconds, took_s=took_s)
    return due, round(now_s() - began_s, 3)


async def test_when_nothing_happens_it_is_time_at_the_regular_time() -> None:
    assert await waited(RelistTimer()) == (Due.INTERVAL, 10)


async def test_who_asks_is_answered_at_once() -> None:
    timer = RelistTimer()
    asyncio.get_running_loop().call_later(3, timer.request)
    assert await waited(timer, took_s=60) == (Due.REQUESTED, 3)
    timer.request()
    assert await waited(timer) == (Due.REQUESTED, 0)
    assert await waited(timer) == (Due.INTERVAL, 10)


async def test_hints_are_collected_for_a_moment_and_count_as_one() -> None:
    timer = RelistTimer()
    for delay_s in (3, 3.01, 3.04):
        asyncio.get_running_loop().call_later(delay_s, timer.hint)
    assert await waited(timer) == (Due.HINTED, 3 + COLLECT_S)
    assert await waited(timer) == (Due.INTERVAL, 10)


async def test_a_hint_does_not_put_off_the_regular_time() -> None:
    timer = RelistTimer()
    asyncio.get_running_loop().call_later(9.99, timer.hint)
    assert await waited(timer) == (Due.HINTED, 10)


async def test_who_asks_after_a_hint_does_not_wait() -> None:
    timer = RelistTimer()
    timer.hint()
    asyncio.get_running_loop().call_later(0.01, timer.request)
    assert await waited(timer) == (Due.REQUESTED, 0.01)
    assert await waited(timer) == (Due.INTERVAL, 10)


@pytest.mark.parametrize(("took_s", "after_s"), [(0.001, 0.05), (0.1, 0.5), (3.0, 1.0)])
async def test_hints_wait_longer_where_looking_takes_long(took_s: float, after_s: float) -> None:
    timer = RelistTimer()
    timer.hint()
    assert await waited(timer, took_s=took_s) == (Due.HINTED, after_s)
