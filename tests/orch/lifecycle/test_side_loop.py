from __future__ import annotations

import asyncio

import pytest

from orch.component.diagnostics.health import CheckFailed
from orch.component.process import loops
from orch.lifecycle.side_loop import WELL_S, SideLoop

pytestmark = pytest.mark.looptime


class Work:
    """Fails as often as it is told, and lasts then."""

    def __init__(self, failures: float) -> None:
        self.began_s: list[float] = []
        self.failures = failures

    async def __call__(self) -> None:
        self.began_s.append(round(asyncio.get_running_loop().time(), 3))
        if len(self.began_s) <= self.failures:
            raise KeyError("odd")
        await asyncio.Event().wait()


async def test_work_that_fails_is_begun_again_after_growing_pauses_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    side, work = SideLoop("the work"), Work(3)
    task = loops.spawn(side.run(work), name="side")
    await asyncio.sleep(10)
    assert work.began_s == [0, 1, 3, 7]
    (record,) = caplog.records
    assert "the work is interrupted by a defect" in record.getMessage()
    assert record.exc_info
    await loops.cancel(task)


async def test_the_check_fails_until_the_work_has_lasted_for_a_while() -> None:
    side, work = SideLoop("the work"), Work(1)
    side.check()
    task = loops.spawn(side.run(work), name="side")
    await asyncio.sleep(5)
    with pytest.raises(CheckFailed, match="the work"):
        side.check()
    await asyncio.sleep(WELL_S)
    side.check()
    await loops.cancel(task)


async def test_the_check_of_broken_work_always_fails() -> None:
    side = SideLoop("the work")
    task = loops.spawn(side.run(Work(float("inf"))), name="side")
    for _ in range(100):
        await asyncio.sleep(17)
        with pytest.raises(CheckFailed):
            side.check()
    await loops.cancel(task)
