"""Answers of webhooks are kept within bounds of time, number and size."""

from __future__ import annotations

import asyncio

import pytest

from orch.server.webhooks import answers
from orch.server.webhooks.answers import Answers, Kept
from tests.garbage import is_left_by


async def kept(known: Answers[int], *keys: int, seconds: float = 60.0, size: int = 1) -> list[int]:
    """Which of these are still known after each was asked for."""

    async def ask(key: int) -> Kept:
        return Kept(key, seconds)

    for key in keys:
        assert await known.fetch(key, size, lambda key=key: ask(key)) == key  # type: ignore[misc]
    return [key for key in keys if known.get(key) is not None]


async def test_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await kept(Answers(), 1, seconds=0.0) == [1]  # for long enough to be used
    monkeypatch.setattr(answers, "SHORTEST_S", 0.0)
    assert await kept(Answers(), 1, seconds=0.0) == []


async def test_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST", 3)
    assert await kept(Answers(), 1, 2, 3, 4, 5) == [3, 4, 5]


async def test_long_ones_count_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", 100)
    assert await kept(Answers(), 1, 2, 3, size=50) == [2, 3]
    assert await kept(Answers(), 1, 2, size=200) == [2]


async def test_a_failed_call_keeps_nothing() -> None:
    known: Answers[int] = Answers()

    async def fail() -> Kept:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await known.fetch("a", 1, fail)
    assert known.get("a") is None


async def test_a_failed_call_leaves_no_garbage() -> None:
    known: Answers[int] = Answers()

    async def fail() -> Kept:
        raise ValueError("no")

    assert not await is_left_by(lambda: known.fetch("a", 1, fail))


async def test_who_leaves_takes_no_call_along() -> None:
    known: Answers[int] = Answers()
    begun, end = asyncio.Event(), asyncio.Event()

    async def ask() -> Kept:
        begun.set()
        await end.wait()
        return Kept(1, 60.0)

    leaving = asyncio.ensure_future(known.fetch("a", 1, ask))
    await begun.wait()
    leaving.cancel()
    staying = asyncio.ensure_future(known.fetch("a", 1, ask))
    await asyncio.sleep(0)
    end.set()
    assert await staying == 1
