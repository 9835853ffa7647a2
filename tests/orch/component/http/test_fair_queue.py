"""Seats and turns: who gets in at once, who waits for whom, and what is given back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from orch.component.http.fair_queue import Bounds, FairQueue, Flow, Pace, QueueFull, Turns


class Line:
    """Who enters a queue, in the order in which they got in."""

    def __init__(self, bounds: Bounds) -> None:
        self.queue = FairQueue(bounds)
        self.entered: list[str] = []
        self.flows: dict[str, Flow] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def add(self, names: str) -> None:
        for name in names:
            self.tasks.append(asyncio.ensure_future(self._enter(name)))

    async def _enter(self, name: str) -> None:
        await self.queue.enter(self.flow(name))
        self.entered.append(name)

    def flow(self, name: str) -> Flow:
        return self.flows.setdefault(name, Flow())

    def leave(self, name: str) -> None:
        self.queue.leave(self.flow(name))


@pytest.fixture
async def lines() -> AsyncIterator[list[Line]]:
    made: list[Line] = []
    yield made
    for line in made:
        for task in line.tasks:
            task.cancel()
        await asyncio.gather(*line.tasks, return_exceptions=True)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_free_seat_is_taken_at_once() -> None:
    queue, flow = FairQueue(Bounds(seats=1)), Flow()
    assert queue.try_enter(flow)
    assert not queue.try_enter(Flow())
    queue.leave(flow)
    assert queue.try_enter(Flow())


async def test_flows_take_turns_however_many_of_one_wait(lines: list[Line]) -> None:
    line = Line(Bounds(seats=1))
    lines.append(line)
    line.add("xaaaaaabc")
    await turns()
    assert (line.entered, line.queue.waiting) == (["x"], 8)
    for name in "xabcaa":
        line.leave(name)
        await turns()
    assert "".join(line.entered) == "xabcaaa"


async def test_one_flow_has_no_more_than_its_share_of_the_seats(lines: list[Line]) -> None:
    line = Line(Bounds(seats=4, seats_per_flow=2))
    lines.append(line)
    line.add("aaaab")
    await turns()
    assert line.entered == ["a", "a", "b"]
    line.leave("a")
    await turns()
    assert line.entered == ["a", "a", "b", "a"]


async def test_starts_are_spread_over_turns_of_the_loop() -> None:
    queue, flow, other = FairQueue(Bounds(starts_per_turn=3, starts_per_flow=2)), Flow(), Flow()
    assert [queue.try_enter(flow) for _ in range(3)] == [True, True, False]
    assert [queue.try_enter(other) for _ in range(2)] == [True, False]
    await asyncio.sleep(0)
    assert queue.try_enter(flow)


async def test_those_beyond_the_pace_start_in_the_next_turns(lines: list[Line]) -> None:
    line = Line(Bounds(starts_per_turn=2, starts_per_flow=1))
    lines.append(line)
    line.add("aaaab")
    await asyncio.sleep(0)
    assert sorted(line.entered) == ["a", "b"]
    await turns()
    assert sorted(line.entered) == ["a"] * 4 + ["b"]


async def test_those_let_in_and_those_who_enter_at_once_share_the_starts_of_a_turn() -> None:
    queue, started, turn = FairQueue(Bounds(starts_per_turn=2)), Counter[int](), 0

    async def enter() -> None:
        await queue.enter(Flow())
        started[turn] += 1

    tasks = [asyncio.ensure_future(enter()) for _ in range(4)]  # of whom two wait
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turn += 1
        if turn == 2:  # when those start
            tasks += [asyncio.ensure_future(enter()) for _ in range(2)]
    assert max(started.values()) == 2


async def test_a_flow_that_waits_is_not_overtaken_by_its_own(lines: list[Line]) -> None:
    line = Line(Bounds(seats=1))
    lines.append(line)
    line.add("xa")
    await turns()
    line.leave("x")
    assert not line.queue.try_enter(line.flow("a"))


async def test_only_so_many_of_a_flow_wait(lines: list[Line]) -> None:
    line = Line(Bounds(seats=1, waiting_per_flow=2))
    lines.append(line)
    line.add("xaab")
    await turns()
    with pytest.raises(QueueFull):
        await line.queue.enter(line.flow("a"))
    line.add("b")
    await turns()
    assert line.queue.waiting == 4


async def test_waiting_has_an_end() -> None:
    queue = FairQueue(Bounds(seats=1, wait_s=0.001))
    first, second = Flow(), Flow()
    assert queue.try_enter(first)
    with pytest.raises(TimeoutError):
        await queue.enter(second)
    assert queue.waiting == 0
    queue.leave(first)
    assert queue.executing == 0
    assert queue.try_enter(second)


@pytest.mark.parametrize("leaves_first", [True, False])
async def test_who_gives_up_waiting_leaves_no_seat_taken(
    lines: list[Line], *, leaves_first: bool
) -> None:
    """At any moment: cancelled before the seat is free, or when it was just given."""
    line = Line(Bounds(seats=1))
    lines.append(line)
    line.add("xab")
    await turns()
    if leaves_first:
        line.leave("x")
        line.tasks[1].cancel()
    else:
        line.tasks[1].cancel()
        line.leave("x")
    with contextlib.suppress(asyncio.CancelledError):
        await line.tasks[1]
    await turns()
    assert line.entered == ["x", "b"]
    line.leave("b")
    assert (line.queue.executing, line.queue.waiting) == (0, 0)


async def test_work_falls_into_turns_of_the_loop_and_its_owners_rotate() -> None:
    turns, done, passed = Turns(), [], 0

    async def work(owner: str) -> None:
        await turns.take(owner)
        done.append((owner, passed))

    tasks = [asyncio.ensure_future(work(owner)) for owner in "aaaab"]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        passed += 1
    assert [owner for owner, _ in done] == ["a", "a", "b", "a", "a"]
    assert len({turn for _, turn in done}) == len(tasks)
    async with asyncio.timeout(1):
        await turns.take("a")


@pytest.mark.looptime
async def test_owners_begin_at_a_pace_in_rotation_and_so_do_their_parts() -> None:
    pace, begun = Pace(10, 2), list[tuple[str, str]]()

    async def begin(owner: str, part: str) -> None:
        async with pace.turn(owner, part):
            begun.append((owner, part))

    loop = asyncio.get_running_loop()
    wanted = [*20 * [("a", "1")], ("a", "2"), ("b", "1"), ("b", "1")]
    began_s = loop.time()
    await asyncio.gather(*(begin(*one) for one in wanted))
    assert loop.time() - began_s == pytest.approx((len(wanted) - 2) / 10, abs=0.01)
    assert [begun[:8].count(one) for one in (("a", "2"), ("b", "1"))] == [1, 2], begun


async def test_who_gives_up_waiting_leaves_no_garbage() -> None:
    """What the cancelled task held was there until the next collection: megabytes of messages."""

    class Held:
        pass

    queue, flow = FairQueue(Bounds(seats=1)), Flow()
    await queue.enter(flow)

    async def wait(_held: Held) -> None:
        await queue.enter(flow)

    held = Held()
    seen = weakref.ref(held)
    task = asyncio.ensure_future(wait(held))
    del held
    await asyncio.sleep(0)
    gc.disable()
    try:
        task.cancel()
        await asyncio.wait((task,))
        del task
        assert seen() is None
    finally:
        gc.enable()
