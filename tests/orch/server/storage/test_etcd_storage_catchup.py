from __future__ import annotations

import asyncio
import gc

import pytest

from orch.component.process import loops
from orch.server.storage.base import StorageFailed
from orch.server.storage.etcd_storage import Newest, RevisionWaiters

pytestmark = pytest.mark.looptime


async def test_those_wait_whose_revision_was_not_reached() -> None:
    waiting = RevisionWaiters()
    tasks = {n: loops.spawn(waiting.until(n), name=str(n)) for n in (5, 3, 9, 3)}
    await asyncio.sleep(0)
    waiting.reached(5)
    await asyncio.sleep(0)
    assert {n: task.done() for n, task in tasks.items()} == {5: True, 3: True, 9: False}
    waiting.fail(StorageFailed("closed"))
    with pytest.raises(StorageFailed, match="closed"):
        await tasks[9]


async def test_who_left_is_no_trouble() -> None:
    waiting = RevisionWaiters()
    left = loops.spawn(waiting.until(1), name="left")
    await asyncio.sleep(0)
    await loops.cancel(left)
    waiting.reached(1)


class Medium:
    """Takes a second to answer with the number of questions so far."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(1)
        if number == 3:
            raise StorageFailed("gone")
        return number


async def test_those_who_ask_together_share_one_question() -> None:
    medium = Medium()
    newest = Newest(medium.ask)
    assert await asyncio.gather(*(newest.revision() for _ in range(10))) == [1] * 10


async def test_who_asks_while_a_question_is_under_way_gets_the_next_answer() -> None:
    medium = Medium()
    newest = Newest(medium.ask)
    first = loops.spawn(newest.revision(), name="first")
    await asyncio.sleep(0.5)
    assert await asyncio.gather(*(newest.revision() for _ in range(5))) == [2] * 5
    assert await first == 1


async def test_a_failure_is_that_of_those_who_shared_it_alone() -> None:
    medium = Medium()
    medium.asked = 2
    newest = Newest(medium.ask)
    failed = await asyncio.gather(newest.revision(), newest.revision(), return_exceptions=True)
    assert [str(error) for error in failed] == ["gone", "gone"]
    assert await newest.revision() == 4


async def test_a_question_that_failed_does_not_hold_those_before_it() -> None:
    """Nor the requests that asked: while etcd was away they took 10 MB more each second."""

    async def fail() -> int:
        raise StorageFailed("gone")

    newest = Newest(fail)
    for _ in range(20):
        with pytest.raises(StorageFailed):
            await newest.revision()
    gc.collect()
    tasks = [one for one in gc.get_objects() if isinstance(one, asyncio.Task)]
    assert sum(task.get_name() == "newest-revision" for task in tasks) <= 2


async def test_one_who_leaves_does_not_take_the_answer_from_the_others() -> None:
    medium = Medium()
    newest = Newest(medium.ask)
    leaver = loops.spawn(newest.revision(), name="leaver")
    stayer = loops.spawn(newest.revision(), name="stayer")
    await asyncio.sleep(0.5)
    await loops.cancel(leaver)
    assert await stayer == 1
