"""Turns are given, refused and, at the agent's end, broken off."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.archives import concurrency
from nodeagent.archives.concurrency import Target, Turns
from orch.wire.errors import ApiError

APP, SIDE, OTHER = (Target("shop", "web", name) for name in ("app", "side", "other"))


def refusal(turns: Turns, target: Target) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught, turns.take(target):
        raise AssertionError("the turn was given")
    return caught.value.code, caught.value.reason


async def test_each_container_has_one_turn_and_the_node_as_many_as_allowed() -> None:
    turns = Turns(2)
    with turns.take(APP):
        assert refusal(turns, APP) == (409, "Conflict")
        with turns.take(SIDE):
            assert refusal(turns, OTHER) == (429, "TooManyRequests")
            assert refusal(turns, APP) == (409, "Conflict")
        with turns.take(OTHER):
            pass
    with turns.take(APP):
        pass


async def test_a_turn_is_given_back_when_its_holder_fails() -> None:
    turns = Turns(1)
    with pytest.raises(OSError, match="broken"), turns.take(APP):
        raise OSError("broken")

    with turns.take(APP):
        pass


async def hold(turns: Turns, target: Target, ended: list[str]) -> str:
    try:
        with turns.take(target):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # some tidying up
                ended.append(target.container)
    except ApiError as error:
        await asyncio.sleep(0)  # the caller goes on: it is not cancelled
        return f"{error.code}"
    raise AssertionError("not broken off")


async def test_at_the_end_turns_are_broken_off_and_none_is_given() -> None:
    turns, ended = Turns(2), list[str]()
    holders = [asyncio.ensure_future(hold(turns, target, ended)) for target in (APP, SIDE)]
    await asyncio.sleep(0)

    await turns.close()

    assert sorted(ended) == ["app", "side"]
    assert await asyncio.gather(*holders) == ["503", "503"]
    assert refusal(turns, OTHER) == (503, "ServiceUnavailable")
    await turns.close()


async def test_a_holder_whose_caller_was_cancelled_stays_cancelled() -> None:
    turns, ended = Turns(1), list[str]()
    holder = asyncio.ensure_future(hold(turns, APP, ended))
    await asyncio.sleep(0)

    holder.cancel()

    with pytest.raises(asyncio.CancelledError):
        await holder
    assert ended == ["app"]


async def test_a_holder_that_does_not_end_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(concurrency, "_CLOSE_LIMIT_S", 0.01)
    held, release = Turns(1), asyncio.Event()

    async def stubborn() -> None:
        with held.take(APP):
            try:
                await asyncio.Event().wait()
            finally:
                await release.wait()

    holder = asyncio.ensure_future(stubborn())
    await asyncio.sleep(0)

    await held.close()

    release.set()
    with pytest.raises(ApiError):
        await holder
