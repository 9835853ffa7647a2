"""Work in a daemon thread: its result, its error, and a program that exits without it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import weakref

import pytest

from orch.component.process import threads
from orch.component.process.threads import NoThreadError, SingleFlight, run_in_thread

HANGS = """
import asyncio, threading
from orch.component.process.threads import run_in_thread

async def main():
    begun = threading.Event()
    def work():
        begun.set()
        threading.Event().wait()
    task = asyncio.create_task(run_in_thread(work, name="hangs"))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    task.cancel()

asyncio.run(main())
print("ended")
"""


async def test_the_result_or_the_error_of_the_work_comes_back() -> None:
    assert await run_in_thread(lambda: threading.current_thread().name, name="here") == "here"

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await run_in_thread(fail, name="fails")


async def test_an_idle_thread_is_reused_and_a_hanging_one_is_not() -> None:
    first = await run_in_thread(threading.get_ident, name="first")
    assert await run_in_thread(threading.get_ident, name="second") == first
    begun, released = threading.Event(), threading.Event()

    def hang() -> int:
        begun.set()
        released.wait(30)
        return threading.get_ident()

    hanging = asyncio.ensure_future(run_in_thread(hang, name="hangs"))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    assert await run_in_thread(threading.get_ident, name="beside") != first
    released.set()
    assert await hanging == first


async def test_an_idle_thread_keeps_nothing_of_its_work_alive() -> None:
    class Result:
        pass

    result = weakref.ref(await run_in_thread(Result, name="makes"))
    async with asyncio.timeout(30):
        while result() is not None:
            await asyncio.sleep(0.001)


async def test_work_that_hangs_is_not_started_again_and_all_callers_share_its_result() -> None:
    released, runs = threading.Event(), []

    def hang() -> int:
        runs.append(1)
        assert released.wait(30)
        return len(runs)

    work = SingleFlight(hang, name="hangs")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await work.run()
    assert work.is_running
    waiting = asyncio.gather(work.run(), work.run())
    await asyncio.sleep(0)
    released.set()
    assert await waiting == [1, 1]
    assert not work.is_running
    assert await work.run() == 2


async def test_a_lack_of_threads_has_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    released = threading.Event()
    try:
        with pytest.raises(NoThreadError, match="no thread can be started"):
            while True:  # idle threads of other tests take the first work
                threads.submit(released.wait, name="hangs")
    finally:
        released.set()


@pytest.mark.may_block
def test_work_that_hangs_does_not_keep_the_program_from_exiting() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
