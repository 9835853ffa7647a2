"""Work that may hang in the kernel: in a thread of its own that nothing waits for at the end.

The loop's own pool of threads is joined when the program ends; a reading that hangs in an
uninterruptible call would keep the agent from ending. A thread whose work is done is kept for the
next one, so that a machine that is out of threads is measured all the same.
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

Step = Callable[[], None]

_idle: collections.deque[_Worker] = collections.deque()


class NoThreadError(OSError):
    """The machine, or the program's cgroup, has no thread left; it may have one later."""


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._given: queue.SimpleQueue[tuple[str, Step, Step]] = queue.SimpleQueue()

    def give(self, name: str, work: Step, done: Step) -> None:
        self._given.put((name, work, done))

    def run(self) -> None:
        while True:
            self.name, work, done = self._given.get()
            try:
                work()
                _idle.append(self)
            finally:
                done()
            del work, done  # an idle thread keeps no result alive


def start(work: Step, done: Step, *, name: str) -> None:
    """Begin `work` aside; `done` is called there when it has ended.

    NoThreadError when one is needed and the machine has none left.
    """
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        try:
            worker.start()
        except RuntimeError as error:
            raise NoThreadError(errno.EAGAIN, "no thread can be started") from error
    worker.give(name, work, done)


def begin(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """What `work` will have returned or raised; NoThreadError as with `start`."""
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[T] = loop.create_future()
    outcome: tuple[T | None, BaseException | None] = None, None

    def run() -> None:
        nonlocal outcome
        try:
            outcome = work(), None
        except BaseException as error:  # handed to whoever waits
            outcome = None, error

    def settle() -> None:
        result, error = outcome
        if settled.cancelled():
            return
        if error is not None:
            settled.set_exception(error)
        else:
            settled.set_result(result)  # type: ignore[arg-type]

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle)

    start(run, tell, name=name)
    return settled


async def run_aside(work: Callable[[], T], *, name: str) -> T:
    """What `work` returns or raises."""
    return await begin(work, name=name)


class OneAtATime(Generic[T]):
    """Work that is not begun again while it hangs, however often it is asked for."""

    def __init__(self, work: Callable[[], T], *, name: str) -> None:
        self._work = work
        self._name = name
        self._running: asyncio.Future[T] | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    async def run(self) -> T:
        """The outcome of the run under way, else of one that begins now."""
        if self._running is None:
            self._running = begin(self._work, name=self._name)
            self._running.add_done_callback(self._ended)
        running = self._running
        await asyncio.wait([running])  # one that stops waiting does not end it for the others
        return running.result()

    def _ended(self, running: asyncio.Future[T]) -> None:
        self._running = None
        if not running.cancelled():
            running.exception()  # it may be that nobody waits any more
