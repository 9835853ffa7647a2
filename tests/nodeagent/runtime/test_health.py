"""The watch notices a runtime that fails, hangs, changes its mind or is not there."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from nodeagent.runtime import verdict
from nodeagent.runtime.base import RuntimeCondition, RuntimeUnavailable
from nodeagent.runtime.health import RuntimeWatch
from orch.component.process import loops
from tests.fakes.runtime import FakeRuntime

pytestmark = pytest.mark.looptime


class Watched:
    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.woken = 0
        self.watch = RuntimeWatch(self.runtime, on_change=self.wake)
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Called in the test, whose clock jumps; fixtures live on the real one."""
        self.tasks.append(loops.spawn(self.watch.run(), name="watch"))

    def wake(self) -> None:
        self.woken += 1

    @property
    def problems(self) -> tuple[str, ...]:
        return verdict.runtime_problems(self.watch.health, asyncio.get_running_loop().time())


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    yield watched
    await loops.cancel(*watched.tasks)


async def test_the_first_good_answer_is_signalled_at_once(watched: Watched) -> None:
    watched.start()
    assert RuntimeWatch(FakeRuntime()).health.last_good_s is None
    await asyncio.sleep(1)
    assert (watched.problems, watched.woken) == ((), 1)
    assert watched.watch.health.version and watched.watch.health.version.version == "1.0.0"


async def test_the_time_without_a_good_answer_is_known(watched: Watched) -> None:
    watched.start()
    await asyncio.sleep(1)
    assert watched.watch.silent_s() == 0
    watched.runtime.hold("conditions")
    watched.runtime.fail("conditions", RuntimeUnavailable("Status", "gone"))
    await asyncio.sleep(10)  # asked at 5 s; given up, and asked again, at 15 s
    assert watched.watch.silent_s() == pytest.approx(6)
    await asyncio.sleep(10)
    assert watched.watch.silent_s() == pytest.approx(16)
    watched.runtime.heal("conditions")
    await asyncio.sleep(5)
    assert watched.watch.silent_s() == 0


async def test_an_unchanged_status_wakes_nobody(watched: Watched) -> None:
    watched.start()
    await asyncio.sleep(61)
    assert (watched.woken, watched.watch.checks) == (1, 13)


async def test_a_condition_that_turns_false_is_noticed_within_five_seconds(
    watched: Watched,
) -> None:
    watched.start()
    await asyncio.sleep(1)
    watched.runtime.runtime_conditions[1] = RuntimeCondition("NetworkReady", False, "NoCni", "m")
    await asyncio.sleep(5)
    assert watched.woken == 2
    assert "NetworkReady=false reason:NoCni" in watched.problems[0]


async def test_a_runtime_that_fails_is_down_after_thirty_seconds_and_up_at_once(
    watched: Watched,
) -> None:
    watched.start()
    await asyncio.sleep(1)
    watched.runtime.fail("conditions", RuntimeUnavailable("Status", "connection refused"))
    await asyncio.sleep(28)
    assert watched.problems == ()
    await asyncio.sleep(7)
    assert watched.problems == ("container runtime is down: connection refused",)
    assert watched.woken == 2
    watched.runtime.heal("conditions")
    await asyncio.sleep(5)
    assert (watched.problems, watched.woken) == ((), 3)


async def test_a_runtime_that_hangs_is_down_too(watched: Watched) -> None:
    watched.start()
    await asyncio.sleep(1)
    for _ in range(4):
        await watched.runtime.hold("conditions").reached.wait()
    await asyncio.sleep(1)
    assert watched.problems == ("container runtime is down: no answer within 10 s",)
    assert watched.woken == 2


async def test_an_absent_runtime_is_logged_once_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = RuntimeWatch(None)
    task = loops.spawn(watch.run(), name="watch")
    await asyncio.sleep(60)
    await loops.cancel(task)
    (problem,) = verdict.runtime_problems(watch.health, 0)
    assert problem.startswith("no container runtime is configured")
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [problem]


async def test_known_waits_for_the_first_good_answer() -> None:
    runtime = FakeRuntime()
    watch = RuntimeWatch(runtime)
    waiting = loops.spawn(watch.known(), name="known")
    await asyncio.sleep(verdict.DOWN_AFTER_S - 1)
    assert not waiting.done()
    await watch.check()
    await asyncio.wait_for(waiting, 1)


async def test_known_waits_for_a_silent_runtime_until_it_counts_as_down() -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await RuntimeWatch(FakeRuntime()).known()
    assert loop.time() - began_s == pytest.approx(verdict.DOWN_AFTER_S, abs=1)


async def test_without_a_runtime_there_is_nothing_to_wait_for() -> None:
    await asyncio.wait_for(RuntimeWatch(None).known(), 1)
