"""Slots are granted, refused and, when the agent stops, cancelled."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.archives.concurrency import CheckpointSlots, ContainerRef
from orch.wire.errors import ApiError

APP, SIDE, OTHER = (ContainerRef("shop", "web", name) for name in ("app", "side", "other"))


def refusal(slots: CheckpointSlots, target: ContainerRef) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught, slots.acquire(target):
        raise AssertionError("a slot was granted")
    return caught.value.code, caught.value.reason


async def test_a_container_has_one_slot_and_the_node_as_many_as_allowed() -> None:
    slots = CheckpointSlots(2)
    with slots.acquire(APP):
        assert refusal(slots, APP) == (409, "Conflict")
        with slots.acquire(SIDE):
            assert refusal(slots, OTHER) == (429, "TooManyRequests")
            assert refusal(slots, APP) == (409, "Conflict")
        with slots.acquire(OTHER):
            pass
    with slots.acquire(APP):
        pass


async def test_a_slot_is_released_when_its_holder_fails() -> None:
    slots = CheckpointSlots(1)
    with pytest.raises(OSError, match="broken"), slots.acquire(APP):
        raise OSError("broken")

    with slots.acquire(APP):
        pass


async def hold(slots: CheckpointSlots, target: ContainerRef, ended: list[str]) -> str:
    try:
        with slots.acquire(target):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # some cleanup
                ended.append(target.container)
    except ApiError as error:
        await asyncio.sleep(0)  # the caller itself is not cancelled
        return f"{error.code}"
    raise AssertionError("not cancelled")


async def test_close_cancels_holders_and_refuses_new_ones() -> None:
    slots, ended = CheckpointSlots(2), list[str]()
    holders = [asyncio.ensure_future(hold(slots, target, ended)) for target in (APP, SIDE)]
    await asyncio.sleep(0)

    await slots.close()

    assert sorted(ended) == ["app", "side"]
    assert await asyncio.gather(*holders) == ["503", "503"]
    assert refusal(slots, OTHER) == (503, "ServiceUnavailable")
    await slots.close()


async def test_a_holder_whose_caller_was_cancelled_stays_cancelled() -> None:
    slots, ended = CheckpointSlots(1), list[str]()
    holder = asyncio.ensure_future(hold(slots, APP, ended))
    await asyncio.sleep(0)

    holder.cancel()

    with pytest.raises(asyncio.CancelledError):
        await holder
    assert ended == ["app"]


async def test_close_does_not_wait_for_ever() -> None:
    held, release = CheckpointSlots(1, close_limit_s=0.01), asyncio.Event()

    async def stubborn() -> None:
        with held.acquire(APP):
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
