"""Daemon threads for work that may hang in the kernel: nothing joins them when the program exits.

The loop's own thread pool is joined at exit, so a read that hangs in an uninterruptible call would
keep the agent from exiting. An idle thread is reused, so that a machine which has run out of
threads is still measured.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

Work = Callable[[], None]

_idle: collections.deque[_Worker] = collections.deque()


class NoThreadError(OSError):
    """The machine, or the program's cgroup, is out of threads; it may recover."""


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._queue: queue.SimpleQueue[tuple[str, Work, Work]] = queue.SimpleQueue()

    def assign(self, name: str, work: Work, done: Work) -> None:
        self._queue.put((name, work, done))

    def run(self) -> None:
        while True:
            self.name, work, done = self._queue.get()
            try:
                work()
                _idle.append(self)
            finally:
                done()
            del work, done  # an idle thread keeps no result alive


def start(work: Work, done: Work, *, name: str) -> None:
    """Run `work` in an idle thread or a new one, and then `done`; NoThreadError if none starts."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        try:
            worker.start()
        except RuntimeError as error:
            raise NoThreadError(errno.EAGAIN, "no thread can be started") from error
    worker.assign(name, work, done)


def submit(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """A future of what `work` returns or raises; NoThreadError as with `start`."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    outcome: tuple[T | None, BaseException | None] = None, None

    def run() -> None:
        nonlocal outcome
        try:
            outcome = work(), None
        except BaseException as error:  # raised where the future is awaited
            outcome = None, error

    def resolve() -> None:
        result, error = outcome
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(resolve)

    start(run, notify, name=name)
    return future


async def run_in_thread(work: Callable[[], T], *, name: str) -> T:
    """What `work` returns or raises."""
    return await submit(work, name=name)


class SingleFlight(Generic[T]):
    """Work that runs once at a time: concurrent callers share the result of one run."""

    def __init__(self, work: Callable[[], T], *, name: str) -> None:
        self._work = work
        self._name = name
        self._running: asyncio.Future[T] | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    async def run(self) -> T:
        """The outcome of the run in progress, else of a new one."""
        if self._running is None:
            self._running = submit(self._work, name=self._name)
            self._running.add_done_callback(self._finished)
        running = self._running
        await asyncio.wait([running])  # a cancelled caller does not cancel it for the others
        return running.result()

    def _finished(self, running: asyncio.Future[T]) -> None:
        self._running = None
        if not running.cancelled():
            running.exception()  # retrieved, because no caller may be left
