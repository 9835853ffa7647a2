import asyncio
import gc
import weakref

import pytest

from orch.component.process import loops
from orch.component.process.loops import Backoff, Periodic
from orch.component.process.threads import NoThreadError
from tests.garbage import is_left_by

pytestmark = pytest.mark.looptime


class Steps:
    """A step that notes when it ran and takes as long as it is told."""

    def __init__(self, *durations_s: float) -> None:
        self.began_s: list[float] = []
        self.running = 0
        self._durations_s = list(durations_s)

    async def __call__(self) -> None:
        assert self.running == 0, "two steps at once"
        self.running += 1
        self.began_s.append(round(asyncio.get_running_loop().time(), 6))
        await asyncio.sleep(self._durations_s.pop(0) if self._durations_s else 0)
        self.running -= 1


async def run_for(periodic: Periodic, duration_s: float) -> None:
    task = loops.spawn(periodic.run(), name=periodic.name)
    await asyncio.sleep(duration_s)
    await loops.cancel(task)


async def test_runs_at_once_and_then_at_a_fixed_rate() -> None:
    step = Steps()
    await run_for(Periodic("x", step, interval_s=10), 35)
    assert step.began_s == [0, 10, 20, 30]


async def test_the_duration_of_a_step_does_not_shift_the_plan() -> None:
    step = Steps(3, 9, 0)
    await run_for(Periodic("x", step, interval_s=10), 35)
    assert step.began_s == [0, 10, 20, 30]


async def test_a_step_that_outlasts_its_interval_is_followed_at_once_without_catching_up() -> None:
    step = Steps(34)
    await run_for(Periodic("x", step, interval_s=10), 60)
    assert step.began_s == [0, 34, 44, 54]


async def test_the_first_step_waits_for_the_initial_delay() -> None:
    step = Steps()
    await run_for(Periodic("x", step, interval_s=10, initial_delay_s=4), 20)
    assert step.began_s == [4, 14]


async def test_jitter_lengthens_an_interval_by_at_most_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    step = Steps()
    await run_for(Periodic("x", step, interval_s=10, jitter=0.04), 31)
    assert step.began_s == [0, 10.2, 20.4, 30.6]


async def test_wake_adds_a_step_now_and_leaves_the_plan() -> None:
    step = Steps()
    periodic = Periodic("x", step, interval_s=10)
    asyncio.get_running_loop().call_later(13, periodic.wake)
    await run_for(periodic, 35)
    assert step.began_s == [0, 10, 13, 20, 30]


async def test_several_wakes_count_as_one() -> None:
    step = Steps()
    periodic = Periodic("x", step, interval_s=10)
    for _ in range(3):
        asyncio.get_running_loop().call_later(13, periodic.wake)
    await run_for(periodic, 25)
    assert step.began_s == [0, 10, 13, 20]


async def test_a_wake_during_a_step_runs_one_more_after_it() -> None:
    step = Steps(5)
    periodic = Periodic("x", step, interval_s=10)
    asyncio.get_running_loop().call_later(1, periodic.wake)
    asyncio.get_running_loop().call_later(2, periodic.wake)
    await run_for(periodic, 15)
    assert step.began_s == [0, 5, 10]


async def test_a_wake_before_the_start_replaces_the_initial_delay() -> None:
    step = Steps()
    periodic = Periodic("x", step, interval_s=10, initial_delay_s=4)
    periodic.wake()
    await run_for(periodic, 5)
    assert step.began_s == [0, 4]


async def test_a_woken_step_that_outlasts_the_plan_is_not_repeated_for_it() -> None:
    step = Steps(0, 9)
    periodic = Periodic("x", step, interval_s=10)
    asyncio.get_running_loop().call_later(5, periodic.wake)
    await run_for(periodic, 35)
    assert step.began_s == [0, 5, 20, 30]


async def test_beats_are_stamped_when_a_step_has_ended() -> None:
    periodic = Periodic("x", Steps(3, 100), interval_s=10)
    assert (periodic.last_beat_s, periodic.beats) == (None, 0)
    await run_for(periodic, 50)
    assert (periodic.last_beat_s, periodic.beats) == (3, 1)


async def test_the_error_of_a_step_ends_the_loop() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await Periodic("x", fail, interval_s=10).run()


async def test_an_interval_of_zero_does_not_starve_other_tasks() -> None:
    async def step() -> None:
        pass

    periodic = Periodic("x", step, interval_s=0)
    task = loops.spawn(periodic.run(), name="x")
    for _ in range(10):
        await asyncio.sleep(0)
    assert periodic.beats > 1
    await loops.cancel(task)


async def test_a_spawned_task_has_its_name_and_is_held_until_it_ends() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    spawned = weakref.ref(loops.spawn(wait_forever(), name="nap"))
    await asyncio.sleep(0)
    gc.collect()
    task = spawned()
    assert task is not None
    assert task.get_name() == "nap"
    await loops.cancel(task)
    del task
    await asyncio.sleep(0)
    gc.collect()
    assert spawned() is None


async def test_cancel_waits_for_the_end_of_what_it_cancels() -> None:
    ended = []

    async def slow_end() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            ended.append(True)

    task = loops.spawn(slow_end(), name="x")
    await asyncio.sleep(0)
    await loops.cancel(task)
    assert ended == [True]


@pytest.mark.parametrize(("takes_s", "waits_s"), [(0, 1), (4, 4), (100, 10)])
async def test_what_must_finish_is_waited_for_by_whoever_is_cancelled_and_never_cancelled(
    takes_s: float, waits_s: float
) -> None:
    ended = asyncio.Event()

    async def work() -> str:
        await asyncio.sleep(takes_s)
        ended.set()
        return "done"

    loop = asyncio.get_running_loop()
    caller = loops.spawn(loops.finish(work(), name="work"), name="caller")
    for moment_s in (1, 2):
        loop.call_later(moment_s, caller.cancel)
    began_s = loop.time()
    await asyncio.wait((caller,))
    assert loop.time() - began_s == pytest.approx(waits_s + (takes_s > 10) - (not takes_s), abs=0.1)
    assert caller.cancelled() is bool(takes_s)
    await ended.wait()


@pytest.mark.parametrize("fails_after_s", [5, 15])
async def test_an_error_that_nobody_waits_for_any_more_leaves_no_traceback(
    fails_after_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(fails_after_s)
        ended.set()
        raise ValueError

    caller = loops.spawn(loops.finish(work(), name="work"), name="caller")
    asyncio.get_running_loop().call_later(1, caller.cancel)
    await asyncio.wait((caller,))
    await ended.wait()
    del caller
    await asyncio.sleep(1)
    gc.collect()
    assert caplog.messages == []


async def test_an_error_leaves_no_garbage() -> None:
    async def fail() -> None:
        raise ValueError("no")

    assert not await is_left_by(lambda: loops.finish(fail(), name="fail"))


def test_backoff_grows_to_its_limit_and_starts_again_after_a_success() -> None:
    backoff = Backoff(0.2, 2, 7)
    assert [backoff.next() for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7, 7]
    backoff.reset()
    assert backoff.next() == 0.2


async def test_a_loop_survives_a_lack_of_threads_and_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes = [NoThreadError(11, "no thread can be started")] * 2 + [None] * 10
    taken = []

    async def step() -> None:
        taken.append(outcomes[len(taken)])
        if taken[-1]:
            raise taken[-1]

    await run_for(Periodic("sampling", step, interval_s=10), 35)
    assert len(taken) == 4
    assert caplog.messages == ["sampling: no thread can be started; retrying"]


async def test_the_first_of_several_ends_the_others_and_gives_its_result() -> None:
    ended = []

    async def work(name: str, duration_s: float) -> str:
        try:
            await asyncio.sleep(duration_s)
        finally:
            ended.append(name)
        return name

    assert await loops.first(work("slow", 9), work("fast", 1), name="race") == "fast"
    assert ended == ["fast", "slow"]


async def test_an_error_of_the_first_is_raised_once_the_others_have_ended() -> None:
    others = asyncio.Event()

    async def fail() -> None:
        raise ConnectionError("gone")

    async def wait() -> None:
        try:
            await asyncio.sleep(9)
        finally:
            others.set()

    with pytest.raises(ConnectionError, match="gone"):
        await loops.first(wait(), fail(), name="race")
    assert others.is_set()
