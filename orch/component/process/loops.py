"""Periodic work: loops of a fixed rate that can be woken and that record their last beat.

The only module that starts tasks (`spawn`); a program's root lists them in `daemon.supervise`.
All times are the running loop's, so tests can advance them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from orch.component.process.once_log import OnceLog
from orch.component.process.threads import NoThreadError

log = logging.getLogger(__name__)

T = TypeVar("T")

_held: set[asyncio.Task[Any]] = set()


def spawn(coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Start a task and hold a reference until it is done; asyncio logs an unretrieved error."""
    task = asyncio.create_task(coro, name=name)
    _held.add(task)
    task.add_done_callback(_held.discard)
    return task


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended; errors they then raise are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def first(*works: Coroutine[Any, Any, T], name: str) -> T:
    """Run all at once until one ends, and cancel the others: its result, or its error."""
    tasks = [spawn(work, name=name) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        await cancel(*tasks)


FINISH_S = 10.0


async def finish(coro: Coroutine[Any, Any, T], *, name: str, limit_s: float = FINISH_S) -> T:
    """Run `coro` to its end even when the caller is cancelled, who waits for that end first.

    After `limit_s` the cancelled caller waits no longer and leaves it running. Nobody asks for its
    error then.
    """
    task = spawn(coro, name=name)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while not task.done() and (left_s := until_s - loop.time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,), timeout=left_s)
        task.add_done_callback(retrieve_error)
        raise
    finally:
        del task  # its error holds this frame: all that its caller used would stay as garbage


def retrieve_error(task: asyncio.Future[Any]) -> None:
    """Retrieve an error that no caller waits for, else asyncio logs its traceback."""
    if not task.cancelled():
        task.exception()


async def finish_in_thread(work: Callable[[], T], *, name: str) -> T:
    """As `finish`, for blocking work in a thread, which nobody can cancel."""
    return await finish(asyncio.to_thread(work), name=name)


class Loop(Protocol):
    """Runs for as long as its program."""

    name: str

    async def run(self) -> None: ...


class Backoff:
    """Growing delays: `initial_s`, then `factor` times the last, never above `max_s`."""

    def __init__(self, initial_s: float, factor: float, max_s: float) -> None:
        self._initial_s = initial_s
        self._factor = factor
        self._max_s = max_s
        self._next_s = initial_s

    def next(self) -> float:
        """The delay before the next attempt, in seconds."""
        delay_s = min(self._next_s, self._max_s)
        self._next_s = min(delay_s * self._factor, self._max_s)
        return delay_s

    def reset(self) -> None:
        """Start again from `initial_s`, after a success."""
        self._next_s = self._initial_s


class RateLimit:
    """Lets `per_s` begin each second (0: any number), who wait in order.

    `burst` of them may begin at once after a while without any.
    """

    def __init__(self, per_s: float, burst: int = 1) -> None:
        self._per_s = per_s
        self._burst = max(1, burst)
        self._turn = asyncio.Lock()
        self._free = float(self._burst)
        self._counted_s = -math.inf  # in the loop's time

    async def begin(self) -> None:
        """Wait until one more may begin."""
        if not self._per_s:
            return
        async with self._turn:
            self._refill()
            if self._free < 1:
                await asyncio.sleep((1 - self._free) / self._per_s)
                self._refill()  # with what a sleep that was too long has brought
            self._free -= 1

    def _refill(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._free = min(self._burst, self._free + (now_s - self._counted_s) * self._per_s)
        self._counted_s = now_s


class Periodic:
    """A step run at a fixed rate, counted from the planned time, never twice at once.

    A step that outlasts its interval is followed at once by the next, and the schedule restarts
    from there: missed rounds are dropped, not made up for. `jitter` lengthens each interval by a
    random share of it (0.04 = up to 4 %). `wake()` adds a step without moving the schedule.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[None]],
        *,
        interval_s: float,
        jitter: float = 0.0,
        initial_delay_s: float = 0.0,
    ) -> None:
        self.name = name
        self.interval_s = interval_s
        self.last_beat_s: float | None = None  # loop time; None before the first step
        self.beats = 0
        self._step = step
        self._jitter = jitter
        self._initial_delay_s = initial_delay_s
        self._due = asyncio.Event()
        self._woken = False
        self._threads = OnceLog(log)  # the lack of them

    def wake(self) -> None:
        """Run the step now, or again after the running one; several calls count as one."""
        self._woken = True
        self._due.set()

    async def run(self) -> None:
        """Run forever; any error of the step but NoThreadError ends the loop."""
        loop = asyncio.get_running_loop()
        planned_s = loop.time() + self._initial_delay_s
        while True:
            woken = await self._wait_until(planned_s)
            self._woken = False
            self._due.clear()
            await self._take_step()
            now_s = loop.time()
            self.last_beat_s = now_s
            self.beats += 1
            if not woken or planned_s <= now_s:
                planned_s = max(planned_s + self._interval(), now_s)

    async def _take_step(self) -> None:
        try:
            await self._step()
        except NoThreadError as error:
            self._threads.failed("%s: %s; retrying", self.name, error.strerror)
        else:
            self._threads.recovered()

    def _interval(self) -> float:
        return self.interval_s * (1 + random.random() * self._jitter)  # noqa: S311

    async def _wait_until(self, planned_s: float) -> bool:
        """True when woken before the planned time."""
        loop = asyncio.get_running_loop()
        if loop.time() >= planned_s and not self._woken:
            await asyncio.sleep(0)  # a step that never waits must not starve other tasks
            return False
        # A third of the CPU of asyncio.timeout, which cancels.
        timer = loop.call_at(planned_s, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()
        return self._woken
