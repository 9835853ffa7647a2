from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import orjson
import pytest

from orch.server import turns
from orch.server.request.protobuf import MAGIC

LARGE = orjson.dumps([0] * (turns.SMALL + 2))


async def test_what_is_about_a_small_object_is_computed_at_once() -> None:
    assert await turns.compute(threading.current_thread, b'{"a":1}') is threading.current_thread()


async def test_what_is_about_a_large_stored_object_is_computed_in_a_thread() -> None:
    assert await turns.compute(threading.current_thread, LARGE) is not threading.current_thread()


async def test_what_a_request_with_a_large_body_needs_is_computed_in_a_thread() -> None:
    for body in (LARGE, MAGIC + bytes(5 * turns.SMALL)):
        turns.weigh(body, None)
        assert await turns.compute(threading.current_thread) is not threading.current_thread()
    turns.weigh(b"{}", None)
    assert await turns.compute(threading.current_thread) is threading.current_thread()


async def test_those_who_need_the_thread_share_it_in_rotation() -> None:
    """One tenant's twenty patches of large objects made others wait for seconds."""
    released, done = threading.Event(), []

    async def request(owner: str) -> None:
        turns.weigh(LARGE, owner)
        await turns.compute(lambda: released.wait(30) and done.append(owner))

    requests = [asyncio.create_task(request(owner)) for owner in "aaaaaab"]
    await asyncio.sleep(0)
    released.set()
    await asyncio.gather(*requests)
    assert done.index("b") <= 3
    assert sorted(done) == list("aaaaaab")


async def test_the_loop_goes_on_while_something_large_is_computed() -> None:
    released = threading.Event()
    computing = asyncio.create_task(turns.compute(lambda: released.wait(30), LARGE))
    await asyncio.sleep(0)  # a computation on the loop would keep this from ever ending
    released.set()
    assert await computing


async def test_others_have_a_turn_while_many_objects_are_gone_through() -> None:
    others = 0
    done = False

    async def other() -> None:
        nonlocal others
        while not done:
            others += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    seen = []
    async for number in turns.in_turns(range(6)):
        seen.append(number)
        until_s = time.monotonic() + turns.TURN_S
        while time.monotonic() <= until_s:
            pass
    done = True
    await beside
    assert seen == list(range(6))
    assert others >= 6


@pytest.mark.parametrize(("turn_s", "most_s"), [(0.1, 30.0), (1.0, turns.TURN_S)])
def test_between_its_steps_the_thread_gives_way_to_a_turn_but_to_no_endless_one(
    monkeypatch: pytest.MonkeyPatch, turn_s: float, most_s: float
) -> None:
    """A turn of 13 ms had taken 48 beside the thread."""
    monkeypatch.setattr(turns, "TURN_S", most_s)
    steps: list[float] = []

    began = threading.Event()

    def turn() -> None:
        began.set()
        time.sleep(turn_s)
        steps.append(turn_s)

    def work(loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(turn)
        began.wait(30)
        turns.give_way()
        steps.append(0)

    async def use() -> None:
        await turns.aside(partial(work, asyncio.get_running_loop()))
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=turns.new_event_loop) as runner:
        runner.run(use())
    assert steps == ([turn_s, 0] if turn_s < most_s else [0, turn_s])


async def test_many_calls_are_made_in_order_and_leave_others_their_turns() -> None:
    made: list[object] = []
    calls = turns.Calls()

    def call(number: int) -> None:
        end_s = time.monotonic() + turns.TURN_S * 0.6  # two of them fill a turn
        while time.monotonic() < end_s:
            continue
        made.append(number)

    for number in range(4):
        calls.soon(partial(call, number))
    while 3 not in made:
        await asyncio.sleep(0)
        made.append("other")
    assert [one for one in made if one != "other"] == [0, 1, 2, 3]
    assert made.index("other") <= 2
    calls.soon(partial(made.append, "later"))
    await asyncio.sleep(0)
    assert made[-1] == "later"
