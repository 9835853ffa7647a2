"""The frame of a long-running program: signals, supervised tasks, exit code, memory settings.

A program's `main(stop)` builds its objects, hands its loops to `supervise` and cleans up after it.
Exit code 0 means that it stopped on request; 1 comes with the cause in the log. Configuration and
arguments are the programs' own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from orch.component.process import log_queue

log = logging.getLogger(__name__)

CLEANUP_LIMIT_S = 10.0  # for tasks and threads that outlive main; then the process just exits
OTHER_THREADS = 8  # besides the pool's, and one for each processor: gRPC's and the program's own
SAME_REQUEST_S = 0.5  # a second signal counts only when it comes later than this


class SetupError(Exception):
    """The program cannot start as configured; the text is the one line the operator sees."""


class LoopEnded(Exception):
    """A loop that should run forever returned."""


class Stop:
    """The request to stop: set once, by a signal or by the program; the first reason is kept."""

    def __init__(self) -> None:
        self.reason = ""
        self._event = asyncio.Event()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()

    def set(self, reason: str) -> None:
        """Request the stop; call from the loop's own thread."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()


async def supervise(stop: Stop, loops: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run every loop until `stop`, then cancel them all and wait until they have ended.

    A loop that returns or raises before that cancels the others and raises an ExceptionGroup.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_endless(name, loop), name=name) for name, loop in loops.items()]
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _endless(name: str, loop: Coroutine[Any, Any, None]) -> None:
    try:
        await loop
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # A group takes no notice of it: what the loop waited for was cancelled, but nobody asked.
        raise LoopEnded(f"the loop {name} was cancelled by what it waited for") from error
    raise LoopEnded(f"the loop {name} ended, which it never should")


def run_daemon(
    main: Callable[[Stop], Awaitable[None]],
    *,
    name: str,
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Run `main` and return the process's exit code; call it from the main thread.

    SIGTERM and SIGINT set the Stop; a second signal exits with 1 at once.
    """
    stop = Stop()
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # standard error has no descriptor
        faulthandler.enable()  # a crash of compiled code leaves a last line
    with asyncio.Runner(loop_factory=new_loop) as runner:
        restore = _install_signals(runner.get_loop(), stop)
        try:
            return runner.run(_report(main, stop, name))
        finally:
            limit = _limit_cleanup(name)
            try:
                runner.close()
            finally:
                limit.cancel()
                restore()


async def _report(main: Callable[[Stop], Awaitable[None]], stop: Stop, name: str) -> int:
    try:
        asyncio.get_running_loop().set_default_executor(_start_threads())
        await main(stop)
    except (Exception, asyncio.CancelledError) as error:
        return _log_causes(error, name)
    if not stop.is_set():
        log.error("%s ended without being asked to stop", name)
        return 1
    log.info("stopped: %s", stop.reason)
    return 0


def _start_threads() -> ThreadPoolExecutor:
    """A pool as large as asyncio's own, started now, so that `to_thread` never lacks threads.

    More are tried out: gRPC aborts the process, without a word, where it gets none.
    """
    processors = os.cpu_count() or 1
    number = min(32, processors + 4)
    tried = OTHER_THREADS + min(16, processors)
    pool = ThreadPoolExecutor(number, thread_name_prefix="asyncio")
    all_started = threading.Barrier(number + tried)
    others = [threading.Thread(target=_meet, args=(all_started,)) for _ in range(tried)]
    try:
        for _ in range(number):
            pool.submit(all_started.wait)
        for other in others:
            other.start()
    except RuntimeError as error:
        all_started.abort()
        text = f"cannot start {number + tried} threads: the machine or the cgroup has none left"
        raise SetupError(f"{text} (pids.max, TasksMax)") from error
    for other in others:
        other.join()
    return pool


def _meet(all_started: threading.Barrier) -> None:
    with contextlib.suppress(threading.BrokenBarrierError):
        all_started.wait()


def _log_causes(error: BaseException, name: str) -> int:
    causes = list(_leaves(error))
    for cause in causes:
        if isinstance(cause, SetupError):
            log_queue.print_final_line(f"{name}: error: {cause}")
            return 1
    for cause in causes:
        if isinstance(cause, LoopEnded):
            log.error("stopping: %s", cause)
        else:
            log.error(
                "stopping after an unexpected %s: %s", type(cause).__name__, cause, exc_info=cause
            )
    return 1


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _install_signals(loop: asyncio.AbstractEventLoop, stop: Stop) -> Callable[[], None]:
    """Set handlers of the interpreter: the second signal also ends a loop that hangs."""
    # They log nothing, since a handler may interrupt a log line being written. Two signals within a
    # moment are one request that came by two ways (a dying parent, a process group). The wake-up
    # pipe wakes the loop even if another thread gets the signal, or it comes just before the loop
    # waits.
    first_s: float | None = None

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        shown = signal.Signals(number).name
        now_s = time.monotonic()
        if first_s is None:
            first_s = now_s
        elif now_s - first_s > SAME_REQUEST_S:
            exit_now(f"received {shown} again: ending at once\n")
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set, f"received {shown}")

    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    loop.add_reader(wake_read, os.read, wake_read, 4096)
    previous_wake = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    previous = {n: signal.signal(n, handle) for n in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_wake)
        os.close(wake_read)
        os.close(wake_write)

    return restore


def _limit_cleanup(name: str) -> threading.Timer:
    text = f"{name}: tasks or threads did not end within {CLEANUP_LIMIT_S:g} s: ending at once\n"
    timer = threading.Timer(CLEANUP_LIMIT_S, exit_now, (text,))
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread is left: the cleanup has no limit
        timer.start()
    return timer


def exit_now(text: str) -> None:
    """Exit with 1 and `text` on standard error, without any cleanup."""
    log_queue.write_final(2, text.encode())
    os._exit(1)


def freeze_gc() -> None:
    """After start-up: exclude what is loaded from garbage collection, and collect all rarely.

    Removes pauses of 70-90 ms from serving. The young are few, as their collections are pauses,
    too: of 50,000 objects one of 32-69 ms, of 100,000 that had survived one 37-46.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 4, 2_500)


def return_freed_memory() -> None:
    """Give the kernel the free pages between blocks in use; some milliseconds per 10 MB of them.

    Only the C library does that, and only when it is asked.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of the GNU C library
LARGE_BYTES = 256 * 1024


def configure_allocator() -> bool:
    """Make the C library return freed memory; call before any thread starts. False: not glibc.

    By default each thread gets an arena, and the size from which freed blocks are returned at once
    grows with the largest ever freed: a daemon that renders megabytes in worker threads then
    retains tens of them. Costs a page fault per 4 kB of a large block.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = (
        (_M_ARENA_MAX, 1),
        (_M_MMAP_THRESHOLD, LARGE_BYTES),
        (_M_TRIM_THRESHOLD, LARGE_BYTES),
    )
    return bool(min(mallopt(name, value) for name, value in settings))
