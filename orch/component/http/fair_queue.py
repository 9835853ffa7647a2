"""Fair queues: seats that flows share, each of which waits in a queue of its own.

A flow is whoever must not take what belongs to others: a user, an address. Flows that wait are
served in turn, and only so many starts fall into one turn of the event loop, so that a burst of one
delays the others by little. Taking a free seat costs a few counters. Knows nothing of requests.
`Pace` lets only so many of them begin each second. `Deadlines` limits how long work may take that
has begun.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from orch.component.process.loops import RateLimit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seats are held from `enter` to `leave`; starts are counted by turn of the event loop."""

    seats: int = sys.maxsize
    seats_per_flow: int = sys.maxsize
    starts_per_turn: int = sys.maxsize
    starts_per_flow: int = sys.maxsize
    waiting_per_flow: int = sys.maxsize
    wait_s: float = 15.0


_REFUSED_AFTER_S = 0.5, 1.5
_ONE_A_TURN = Bounds(starts_per_turn=1, wait_s=300.0)
ANY_TIME_S = 1e9  # for as long as it takes
_ONE = Bounds(seats=1, wait_s=ANY_TIME_S)
_ONE_OF_EACH = Bounds(seats_per_flow=1, wait_s=ANY_TIME_S)


class QueueFull(Exception):
    """As many of the flow wait as may."""


async def pause_before_refusal() -> None:
    """For want of a place to wait: refusals at once would be a flood, too."""
    await asyncio.sleep(random.uniform(*_REFUSED_AFTER_S))  # noqa: S311


class Flow:
    """The state of one flow in one queue."""

    __slots__ = ("__weakref__", "executing", "started", "turn", "waiting")

    def __init__(self) -> None:
        self.executing = 0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.turn = 0  # in which the last one starts
        self.started = 0  # in that turn


class FairQueue:
    """`executing` seats are taken, `waiting` wait for one."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.executing = 0
        self.waiting = 0
        self._waits: deque[Flow] = deque()  # the flows of which some wait; the next one first
        self._deadlines = Deadlines(bounds.wait_s)
        self._turn = 1
        self._started = 0  # in this turn
        self._let_in = 0  # of those who waited, to start in the next one
        self._turning = False  # the end of this turn will be noticed

    def try_enter(self, flow: Flow) -> bool:
        """Take a seat, if that needs no waiting."""
        full = self._is_full(self._started)
        if flow.waiting or full or not self._has_room(flow, self._turn):
            return False
        self._started += 1
        self._start(flow, self._turn)
        return True

    async def enter(self, flow: Flow) -> None:
        """Wait for a seat; QueueFull at once, TimeoutError after `wait_s`."""
        if self.try_enter(flow):
            return
        if len(flow.waiting) >= self.bounds.waiting_per_flow:
            raise QueueFull
        waiter = asyncio.get_running_loop().create_future()
        if not flow.waiting:
            self._waits.append(flow)
        flow.waiting.append(waiter)
        self.waiting += 1
        try:
            await self._deadlines.hold(waiter)
        except BaseException:
            self._give_up(flow, waiter)
            raise

    def leave(self, flow: Flow) -> None:
        """Give the seat to whoever is next."""
        self.executing -= 1
        flow.executing -= 1
        if self._waits:
            self._let_some_in()

    def _give_up(self, flow: Flow, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():  # let in at the same moment
            self.leave(flow)
        elif waiter in flow.waiting:
            flow.waiting.remove(waiter)
            self.waiting -= 1
            if not flow.waiting:
                self._waits.remove(flow)

    def _is_full(self, starts: int) -> bool:
        """`starts`: those of the turn in question."""
        return self.executing >= self.bounds.seats or starts >= self.bounds.starts_per_turn

    def _has_room(self, flow: Flow, turn: int) -> bool:
        paced = flow.turn >= turn and flow.started >= self.bounds.starts_per_flow
        return not paced and flow.executing < self.bounds.seats_per_flow

    def _start(self, flow: Flow, turn: int) -> None:
        self.executing += 1
        flow.executing += 1
        flow.started = flow.started + 1 if flow.turn >= turn else 1
        flow.turn = max(flow.turn, turn)
        self._notice_turn()

    def _notice_turn(self) -> None:
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        """Before those start in it who were let in during the last."""
        self._turning = False
        self._turn += 1
        self._started, self._let_in = self._let_in, 0
        if self._started:
            self._notice_turn()
        if self._waits:
            self._let_some_in()

    def _let_some_in(self) -> None:
        """Let in who may start in the next turn, one of each flow after the other."""
        passed_over, turn = 0, self._turn + 1
        while passed_over < len(self._waits) and not self._is_full(self._let_in):
            flow = self._waits.popleft()
            if self._has_room(flow, turn):
                passed_over = 0
                self.waiting -= 1
                waiter = flow.waiting.popleft()
                if not waiter.done():  # cancelled, and not yet noticed by its task
                    self._let_in += 1
                    self._start(flow, turn)
                    waiter.set_result(None)
            else:
                passed_over += 1
            if flow.waiting:
                self._waits.append(flow)


class Turns:
    """Turns at pieces of work, the owners in rotation; without bounds one piece in each turn of the
    event loop. Else all who are woken by one change would do theirs in the same turn.
    """

    def __init__(self, bounds: Bounds = _ONE_A_TURN) -> None:
        self._queue = FairQueue(bounds)
        self._flows: dict[object, Flow] = {}  # of those who wait or work

    async def take(self, owner: object) -> None:
        """Wait for the owner's turn; TimeoutError after `wait_s`."""
        async with self.hold(owner):
            pass

    @asynccontextmanager
    async def hold(self, owner: object) -> AsyncIterator[None]:
        """A seat in the owner's turn; TimeoutError."""
        flow = self._flows.setdefault(owner, Flow())
        try:
            await self._queue.enter(flow)
            try:
                yield
            finally:
                self._queue.leave(flow)
        finally:
            if not (flow.waiting or flow.executing):
                self._flows.pop(owner, None)


class Pace:
    """So many begin each second, `burst` at once after a while without any; `per_s` 0: any number.

    Owners begin in rotation, and so do the parts of each: whoever asks for most waits longest.
    """

    def __init__(self, per_s: float, burst: int) -> None:
        self._parts, self._owners = Turns(_ONE_OF_EACH), Turns(_ONE)
        self._rate = RateLimit(per_s, burst)

    @asynccontextmanager
    async def turn(self, owner: object, part: object = None) -> AsyncIterator[None]:
        """The next one begins once this is left."""
        async with self._parts.hold((owner, part)), self._owners.hold(owner):
            await self._rate.begin()
            yield


class Deadlines:
    """Limits the duration of pieces of work, each in its own task, with a single timer.

    All have the same limit, so the oldest is the first to exceed it, and hardly any does. With an
    `asyncio.timeout` for each request, a GET costs 6-12 % more, a PUT 4-6 %.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends: dict[asyncio.Task[object], float] = {}  # oldest first
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def hold(self, work: Awaitable[T]) -> T:
        """What the work returns or raises; cancelled with a TimeoutError when it takes longer."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise AssertionError("only the work of a task has a deadline")
        self._ends[task] = loop.time() + self.seconds
        if self._timer is None:
            self._timer = loop.call_at(self._ends[task], self._end_late)
        try:
            return await work
        except asyncio.CancelledError:
            if task in self._late and task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            self._ends.pop(task, None)
            self._late.discard(task)
            del task  # a cancelled one holds this frame: whatever it used would stay as garbage

    def _end_late(self) -> None:
        """Cancel the late tasks, and set the timer for the next deadline."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, end_s in tuple(self._ends.items()):
            if end_s > loop.time():
                self._timer = loop.call_at(end_s, self._end_late)
                return
            del self._ends[task]
            self._late.add(task)
            task.cancel()
