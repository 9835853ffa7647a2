"""Keep-alives go out while the checks pass, and are withheld, with the reason, otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nodeagent.watchdog import Check, Watchdog
from orch.component.process import loops
from orch.component.process.notify import Notifier

pytestmark = pytest.mark.looptime

INTERVAL_S = 8.0


class Manager(Notifier):
    """What systemd was told and when."""

    def __init__(self) -> None:
        super().__init__("")
        self.told: list[tuple[float, str]] = []

    def _send(self, *assignments: str) -> None:
        now_s = round(asyncio.get_running_loop().time(), 3)
        self.told.extend((now_s, one) for one in assignments)

    def alive_s(self) -> list[float]:
        return [time_s for time_s, text in self.told if text == "WATCHDOG=1"]

    def statuses(self) -> list[str]:
        return [text for _, text in self.told if text != "WATCHDOG=1"]


class Switch:
    """A check that passes, or raises `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __call__(self) -> None:
        if self.error:
            raise self.error


@asynccontextmanager
async def watching(manager: Manager, **checks: Check) -> AsyncIterator[Watchdog]:
    watchdog = Watchdog(manager, checks, interval_s=INTERVAL_S)
    task = loops.spawn(watchdog.run(), name="watchdog")
    yield watchdog
    assert not task.done()
    await loops.cancel(task)


async def test_a_keep_alive_is_sent_every_interval() -> None:
    manager = Manager()
    async with watching(manager, sampling=Switch()) as watchdog:
        await asyncio.sleep(30)
    assert manager.told == [(0, "WATCHDOG=1"), (8, "WATCHDOG=1"), (16, "WATCHDOG=1"),
                            (24, "WATCHDOG=1")]  # fmt: skip
    assert watchdog.skipped == {}


async def test_a_failing_check_withholds_the_keep_alive_and_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager, sampling = Manager(), Switch(ValueError("stuck"))
    async with watching(manager, sampling=sampling, other=Switch()) as watchdog:
        await asyncio.sleep(20)
    assert manager.alive_s() == []
    assert watchdog.skipped == {"sampling": 3}
    assert manager.told == [(0, "STATUS=unhealthy: sampling: stuck")]
    assert caplog.messages == ["withholding the watchdog keep-alive: sampling: stuck"]


async def test_keep_alives_resume_on_their_old_plan_when_the_check_passes_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    manager, sampling = Manager(), Switch()
    async with watching(manager, sampling=sampling) as watchdog:
        await asyncio.sleep(1)
        sampling.error = ValueError("stuck")
        await asyncio.sleep(20)
        sampling.error = None
        await asyncio.sleep(15)
    assert manager.alive_s() == [0, 24, 32]
    assert watchdog.skipped == {"sampling": 2}
    assert manager.statuses()[-1] == "STATUS=healthy"
    assert caplog.messages[-1] == "the watchdog keep-alive is sent again"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ValueError("the last reading is 40 s old"), "the last reading is 40 s old"),
        (KeyError(), "KeyError"),
    ],
)
async def test_a_failed_check_is_named_with_its_cause(error: Exception, why: str) -> None:
    manager, sampling = Manager(), Switch(error)
    async with watching(manager, sampling=sampling):
        await asyncio.sleep(1)
    assert manager.told == [(0, f"STATUS=unhealthy: sampling: {why}")]


async def test_all_failing_checks_are_named() -> None:
    manager, one, two = Manager(), Switch(ValueError("a")), Switch(ValueError("b"))
    async with watching(manager, one=one, two=two) as watchdog:
        await asyncio.sleep(5)
    assert manager.told == [(0, "STATUS=unhealthy: one: a; two: b")]
    assert watchdog.skipped == {"one": 1, "two": 1}


async def test_another_failing_check_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    manager, one, two = Manager(), Switch(ValueError("a")), Switch()
    async with watching(manager, one=one, two=two):
        await asyncio.sleep(1)
        one.error, two.error = None, ValueError("b")
        await asyncio.sleep(20)
    assert manager.statuses() == ["STATUS=unhealthy: one: a", "STATUS=unhealthy: two: b"]
    assert len(caplog.messages) == 2
