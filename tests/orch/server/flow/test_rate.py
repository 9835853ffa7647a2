"""The rate of a tenant's changes: who is slowed, by what, and how many."""

from __future__ import annotations

import asyncio
import gc

import pytest

from orch.server.flow import control
from orch.server.flow.levels import WAITING_PER_FLOW
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity
from tests.orch.server.flow.test_control import ANN, BOB, MASTER, NODE, WRITE, Fixture, turns


async def change(fixture: Fixture, who: Identity, units: int, count: int = 1) -> float:
    """How long the changes took, each over a connection of its own."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(count):
        async with fixture.seat(who, WRITE):
            await control.limit_rate(lambda: (units - 1) * control.BYTES_OF_CHANGE)
    return loop.time() - began_s


@pytest.mark.looptime
async def test_a_tenants_changes_are_slowed_to_their_rate_after_a_burst() -> None:
    fixture = Fixture(rate=40)
    assert await change(fixture, ANN, 1, count=10) == 0
    assert await change(fixture, ANN, 1, count=41) == pytest.approx(1)
    assert await change(fixture, BOB, 1) == 0
    assert fixture.flows.levels.users.waited.count >= 40
    await asyncio.sleep(10)
    assert await change(fixture, ANN, 1, count=10) == 0


@pytest.mark.looptime
async def test_a_large_change_slows_those_after_it_and_is_never_impossible() -> None:
    fixture = Fixture(rate=1)
    assert await asyncio.create_task(change(fixture, ANN, 10)) == 0
    await turns()
    gc.collect()  # what is known of a caller does not hang on a request
    assert await change(fixture, ANN, 1) == pytest.approx(10 - control.BURST_S)


@pytest.mark.looptime
async def test_nodes_and_the_privileged_group_are_not_slowed() -> None:
    fixture = Fixture(rate=1)
    for who in (NODE, MASTER):
        assert await change(fixture, who, 1000, count=3) == 0


@pytest.mark.looptime
async def test_a_slowed_change_has_no_seat_and_is_refused_where_it_would_wait_too_long() -> None:
    fixture = Fixture(rate=1)
    await change(fixture, ANN, 10)
    slowed = asyncio.ensure_future(change(fixture, ANN, 50))
    await turns()
    assert (fixture.in_flight("mutating"), fixture.flows.levels.users.waiting) == (0, 1)
    refused = asyncio.ensure_future(change(fixture, ANN, 1))
    await turns()
    assert fixture.in_flight("mutating") == 0
    with pytest.raises(ApiError, match=r'from "ann".*changes') as caught:
        await refused
    assert caught.value.code == 429
    await slowed
    assert fixture.flows.levels.users.waiting == 0


@pytest.mark.looptime
async def test_so_many_changes_of_a_tenant_are_slowed_and_more_are_refused() -> None:
    fixture = Fixture(rate=1000)
    await change(fixture, ANN, 1000)
    some = [asyncio.ensure_future(change(fixture, ANN, 1)) for _ in range(WAITING_PER_FLOW + 5)]
    done = await asyncio.gather(*some, return_exceptions=True)
    assert [isinstance(each, ApiError) for each in done].count(True) == 5


@pytest.mark.looptime
async def test_what_an_object_has_grown_by_meanwhile_is_charged() -> None:
    fixture, sizes = Fixture(rate=1), iter((0, 10 * control.BYTES_OF_CHANGE))
    await change(fixture, ANN, 5)
    async with fixture.seat(ANN, WRITE):
        await control.limit_rate(lambda: next(sizes))
    assert await change(fixture, ANN, 1) > 10 - control.BURST_S
