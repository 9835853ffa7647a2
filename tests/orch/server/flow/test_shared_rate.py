"""The rate of tenants' changes, and of nodes' large ones: who is slowed, by what, and how many."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from orch.component.http.fair_queue import Flow
from orch.server.flow import control, shared_rate
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
    assert await change(fixture, ANN, 1, count=41) == pytest.approx(1, abs=shared_rate.LEAD_S)
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
    assert await change(fixture, ANN, 1) == pytest.approx(10 - shared_rate.BURST_S)


@pytest.mark.looptime
async def test_the_privileged_group_and_small_changes_of_nodes_are_not_slowed() -> None:
    fixture = Fixture(rate=1)
    assert await change(fixture, MASTER, 1000, count=3) == 0
    assert await change(fixture, NODE, 2, count=100) == 0


@pytest.mark.looptime
async def test_large_changes_of_nodes_are_slowed_and_slow_no_tenant() -> None:
    fixture = Fixture(rate=1)
    assert await change(fixture, NODE, 3) == 0
    assert await change(fixture, ANN, 1) == 0
    assert await change(fixture, NODE, 3) == pytest.approx(3 - shared_rate.BURST_S)


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
    assert await change(fixture, ANN, 1) > 10 - shared_rate.BURST_S


@pytest.mark.looptime
async def test_what_an_object_has_shrunk_by_meanwhile_is_not_given_back() -> None:
    fixture, sizes = Fixture(rate=1), iter((4 * control.BYTES_OF_CHANGE, 0))
    await change(fixture, ANN, 5)
    async with fixture.seat(ANN, WRITE):
        await control.limit_rate(lambda: next(sizes))
    assert await change(fixture, ANN, 1) > 5 - shared_rate.BURST_S


async def without_pause(fixture: Fixture, who: Identity, tasks: int, end_s: float) -> int:
    """How many changes of one unit a tenant makes until then, `tasks` at a time."""
    loop, made = asyncio.get_running_loop(), 0

    async def repeat() -> None:
        nonlocal made
        while loop.time() < end_s:
            await change(fixture, who, 1)
            made += loop.time() < end_s

    await asyncio.gather(*(repeat() for _ in range(tasks)))
    return made


def tenants(count: int) -> list[Identity]:
    return [Identity(f"tenant-{number}") for number in range(count)]


@pytest.mark.looptime
async def test_tenants_share_the_rate_whoever_asks_for_more() -> None:
    fixture, loop = Fixture(rate=100), asyncio.get_running_loop()
    end_s = loop.time() + 10
    made = await asyncio.gather(
        *(
            without_pause(fixture, who, tasks, end_s)
            for who, tasks in zip(tenants(5), (1, 2, 10, 50, 100), strict=True)
        )
    )
    assert 10 * 100 <= sum(made) <= (10 + 2 * shared_rate.BURST_S) * 100 + 10
    assert max(made) - min(made) <= 15, made


@pytest.mark.slow
@pytest.mark.looptime
@pytest.mark.parametrize(
    ("units", "pause_s", "most_s"),  # its share: 36 a second
    [(1, 0.04, 0.003), (10, 0.04, 0.003), (40, 0.028, 0.003), (1, 0.0, 0.3), (10, 0.0, 0.3)],
)
async def test_a_tenant_at_its_share_hardly_waits_beside_ten_who_want_all(
    units: int, pause_s: float, most_s: float
) -> None:
    fixture, loop = Fixture(rate=400), asyncio.get_running_loop()
    end_s = loop.time() + 10

    async def want_all(who: Identity) -> None:
        while loop.time() < end_s:
            await change(fixture, who, units)

    greedy = [asyncio.ensure_future(want_all(who)) for who in tenants(10) for _ in range(10)]
    await asyncio.sleep(2)
    waited_s = []
    for _ in range(100):
        waited_s.append(await change(fixture, ANN, 1))
        await asyncio.sleep(pause_s)
    await asyncio.gather(*greedy)
    assert max(waited_s) <= most_s, max(waited_s)


@pytest.mark.looptime
async def test_large_changes_have_their_share_beside_small_ones() -> None:
    fixture, loop = Fixture(rate=400), asyncio.get_running_loop()
    end_s = loop.time() + 10
    small, large = tenants(2)
    made = 0

    async def want_large() -> None:
        nonlocal made
        while loop.time() < end_s:
            await change(fixture, large, 40)
            made += 40

    large_ones = [asyncio.ensure_future(want_large()) for _ in range(5)]
    others = await without_pause(fixture, small, 20, end_s)
    await asyncio.gather(*large_ones)
    assert 0.45 * 4000 <= others <= 0.55 * 4000, (made, others)


@pytest.mark.looptime
async def test_many_large_changes_at_once_delay_a_small_one_by_little() -> None:
    fixture, loop = Fixture(rate=400), asyncio.get_running_loop()
    large = [asyncio.ensure_future(change(fixture, who, 200)) for who in tenants(45)]
    await turns()
    assert await change(fixture, BOB, 1) <= 200 / 400 - shared_rate.BURST_S
    for task in large:
        task.cancel()
    await asyncio.gather(*large, return_exceptions=True)
    assert loop.time() < 1


@pytest.mark.looptime
async def test_values_and_webhooks_are_charged_beside_bytes() -> None:
    fixture = Fixture(rate=10)
    values = b"[" + b"0," * 16_000 + b"0]"
    for charged in (control.size_of(values) - len(values), 10 * control.BYTES_OF_CHANGE):
        async with fixture.seat(ANN, WRITE):
            await control.limit_rate(lambda: 0)
            control.charge(charged)
        assert await change(fixture, ANN, 1) == pytest.approx(
            1.1 - shared_rate.BURST_S, abs=2 * shared_rate.LEAD_S
        )
        await asyncio.sleep(5)


@pytest.mark.looptime
async def test_leaving_and_coming_back_as_somebody_new_gains_nothing() -> None:
    """Each change is over a connection of its own, and nothing else knows the caller."""
    fixture, loop = Fixture(rate=100), asyncio.get_running_loop()
    end_s = loop.time() + 5
    stays, leaves = tenants(2)

    async def leave_and_come() -> int:
        made = 0
        while loop.time() < end_s:
            await asyncio.gather(*(asyncio.create_task(change(fixture, leaves, 1)) for _ in "ab"))
            gc.collect()
            made += 2
        return made

    kept, moved = await asyncio.gather(without_pause(fixture, stays, 10, end_s), leave_and_come())
    assert moved <= kept + 10, (kept, moved)


@pytest.mark.looptime
async def test_a_change_that_is_given_up_takes_nothing_from_others() -> None:
    fixture, loop = Fixture(rate=10), asyncio.get_running_loop()
    await change(fixture, ANN, 10)
    given_up = [asyncio.ensure_future(change(fixture, ANN, 10)) for _ in range(5)]
    await turns()
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    began_s = loop.time()
    await change(fixture, BOB, 1)
    assert loop.time() - began_s <= 1.0


@pytest.mark.slow
@pytest.mark.looptime
async def test_flows_that_are_paid_are_forgotten_also_while_others_wait() -> None:
    rate = shared_rate.SharedRate(wait_s=15, waiting_per_flow=200)
    remembered: weakref.WeakSet[Flow] = weakref.WeakSet()
    for _ in range(4_000):
        flow = Flow()
        remembered.add(flow)
        if not rate.try_take(flow, 0.001):
            await rate.take(flow, 0.001)
    assert len(remembered) < 2000


@pytest.mark.looptime
async def test_who_waits_within_their_share_goes_before_those_who_come_later() -> None:
    """Also when a burst of large changes has used up what is kept for them."""
    fixture = Fixture(rate=100)
    first, *later = tenants(60)
    assert await change(fixture, first, 100) == 0
    bob = asyncio.ensure_future(change(fixture, BOB, 1))
    coming = []
    for who in later:
        await asyncio.sleep(0.02)
        coming.append(asyncio.ensure_future(change(fixture, who, 40)))
    assert await bob == pytest.approx(1 - 2 * shared_rate.BURST_S, abs=0.01)
    for task in coming:
        task.cancel()
    await asyncio.gather(*coming, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.looptime
async def test_changes_that_waited_in_vain_take_nothing_of_their_tenants_share() -> None:
    """A tenant sends ten times as many as can be done in time, and those refused again."""
    fixture, loop = Fixture(rate=100), asyncio.get_running_loop()
    end_s, made = loop.time() + 90, 0

    async def repeat() -> None:
        nonlocal made
        while loop.time() < end_s:
            with contextlib.suppress(ApiError):
                await change(fixture, ANN, 10)
                made += loop.time() > end_s - 60

    others = (without_pause(fixture, who, 2, end_s) for who in tenants(9))
    await asyncio.gather(*others, *(repeat() for _ in range(100)))
    assert made >= 0.9 * 60 * 100 / 10 / 10, made


@pytest.mark.slow
@pytest.mark.looptime
async def test_what_a_tenants_changes_cost_beyond_their_size_delays_only_its_own() -> None:
    """Its next change begins far ahead of the others': they must not begin there, too."""
    fixture, loop = Fixture(rate=400), asyncio.get_running_loop()
    end_s = loop.time() + 10

    async def cost_more(who: Identity) -> None:
        while loop.time() < end_s:
            async with fixture.seat(who, WRITE):
                await control.limit_rate(lambda: 0)
                control.charge(100 * control.BYTES_OF_CHANGE)

    costly, *many = tenants(10)
    asked = [asyncio.ensure_future(cost_more(costly)) for _ in range(5)]
    others = [asyncio.ensure_future(without_pause(fixture, who, 5, end_s)) for who in many]
    await asyncio.sleep(1)
    waited_s = []
    while loop.time() < end_s - 1:
        waited_s.append(await change(fixture, BOB, 1))
        await asyncio.sleep(0.04)
    assert max(waited_s) <= 0.3, max(waited_s)
    made = await asyncio.gather(*others)
    assert min(made) >= 0.9 * 4000 / 11, made
    await asyncio.gather(*asked)


@pytest.mark.looptime
async def test_a_large_change_does_not_take_the_place_of_a_small_one_that_was_given_up() -> None:
    rate = shared_rate.SharedRate(wait_s=15, waiting_per_flow=200)
    rate.charge("busy", 1)
    small = [asyncio.create_task(rate.take(number, 0.002)) for number in range(20)]
    await turns()
    large = [asyncio.create_task(rate.take(number, 0.5)) for number in range(20)]
    await turns()
    for task in small:
        task.cancel()
    await asyncio.gather(*small, return_exceptions=True)
    began_s = asyncio.get_running_loop().time()
    await rate.take("light", 0.002)
    assert asyncio.get_running_loop().time() - began_s <= 1
    for task in large:
        task.cancel()
    await asyncio.gather(*large, return_exceptions=True)
