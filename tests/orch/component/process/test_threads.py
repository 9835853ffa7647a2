"""Work in a thread of its own: its result, its error, and a program that ends without it."""

from __future__ import annotations

import asyncio
import collections
import subprocess
import sys
import threading
import weakref

import pytest

from orch.component.process import threads
from orch.component.process.threads import NoThreadError, OneAtATime, run_aside

HANGS = """
import asyncio, threading
from orch.component.process.threads import run_aside

async def main():
    begun = threading.Event()
    def work():
        begun.set()
        threading.Event().wait()
    task = asyncio.create_task(run_aside(work, name="hangs"))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    task.cancel()

asyncio.run(main())
print("ended")
"""


async def test_what_the_work_returns_or_raises_comes_back() -> None:
    assert await run_aside(lambda: threading.current_thread().name, name="here") == "here"

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await run_aside(fail, name="fails")


async def test_a_thread_is_kept_for_the_next_work_and_not_while_it_hangs() -> None:
    first = await run_aside(threading.get_ident, name="first")
    assert await run_aside(threading.get_ident, name="second") == first
    begun, released = threading.Event(), threading.Event()

    def hang() -> int:
        begun.set()
        released.wait(30)
        return threading.get_ident()

    hanging = asyncio.ensure_future(run_aside(hang, name="hangs"))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    assert await run_aside(threading.get_ident, name="beside") != first
    released.set()
    assert await hanging == first


async def test_an_idle_thread_keeps_nothing_of_its_work_alive() -> None:
    class Result:
        pass

    result = weakref.ref(await run_aside(Result, name="makes"))
    async with asyncio.timeout(30):
        while result() is not None:
            await asyncio.sleep(0.001)


async def test_work_that_hangs_is_not_begun_again_and_its_end_is_for_all_who_wait() -> None:
    released, runs = threading.Event(), []

    def hang() -> int:
        runs.append(1)
        assert released.wait(30)
        return len(runs)

    work = OneAtATime(hang, name="hangs")
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


async def test_a_machine_without_threads_is_told_by_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_idle", collections.deque())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(NoThreadError, match="no thread can be started"):
        await run_aside(threading.get_ident, name="none")


@pytest.mark.may_block
def test_work_that_hangs_does_not_keep_the_program_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
