"""Answers kept for their time, one question for all who ask at once, errors never kept."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.auth.reviews import ReviewCache

pytestmark = pytest.mark.looptime


class Oracle:
    """Answers after a second; counts how often it was asked."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self) -> int:
        self.asked += 1
        await asyncio.sleep(1)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_an_answer_is_cached_until_it_expires() -> None:
    cache = ReviewCache[int](lambda answer: 10 if answer == 1 else 100)
    oracle = Oracle(1, 2, 3)
    assert await cache.get("k", oracle) == 1
    await asyncio.sleep(9)
    assert await cache.get("k", oracle) == 1
    await asyncio.sleep(1)
    assert await cache.get("k", oracle) == 2
    await asyncio.sleep(99)
    assert (await cache.get("k", oracle), oracle.asked) == (2, 2)
    await asyncio.sleep(1)
    assert await cache.get("k", oracle) == 3


async def test_who_asks_at_once_shares_one_question() -> None:
    cache = ReviewCache[int](lambda _: 10)
    oracle = Oracle(1)
    assert await asyncio.gather(*(cache.get("k", oracle) for _ in range(50))) == [1] * 50
    assert oracle.asked == 1


async def test_a_caller_that_gives_up_leaves_the_answer_to_the_others() -> None:
    cache = ReviewCache[int](lambda _: 10)
    oracle = Oracle(1)
    first = asyncio.ensure_future(cache.get("k", oracle))
    second = asyncio.ensure_future(cache.get("k", oracle))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == 1
    assert (await cache.get("k", oracle), oracle.asked) == (1, 1)


async def test_an_error_reaches_all_callers_and_is_not_cached() -> None:
    cache = ReviewCache[int](lambda _: 10)
    oracle = Oracle(ValueError("away"), 1)
    results = await asyncio.gather(
        cache.get("k", oracle), cache.get("k", oracle), return_exceptions=True
    )
    assert [str(result) for result in results] == ["away", "away"]
    assert (await cache.get("k", oracle), oracle.asked) == (1, 2)


async def test_zero_keeps_nothing() -> None:
    cache = ReviewCache[int](lambda _: 0)
    oracle = Oracle(1, 2)
    assert [await cache.get("k", oracle), await cache.get("k", oracle)] == [1, 2]


async def test_the_oldest_answers_make_room() -> None:
    cache = ReviewCache[int](lambda _: 10, limit=2)
    first, other = Oracle(1, 2), Oracle(0, 0, 0)
    await cache.get("first", first)
    await cache.get("second", other)
    await cache.get("third", other)
    assert await cache.get("first", first) == 2
    assert (await cache.get("third", other), other.asked) == (0, 2)


async def test_closing_ends_the_questions_under_way() -> None:
    cache = ReviewCache[int](lambda _: 10)
    waiting = asyncio.ensure_future(cache.get("k", Oracle(1)))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
