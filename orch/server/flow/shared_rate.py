"""A rate that flows share by start-time fair queueing (Goyal, Vin, Cheng 1996); knows no requests.

Each piece of work begins, in virtual time, where the one before it of the same flow ends, and flows
that wait are served in the order in which their next works begin. So a flow that takes less than
its share is ahead of all that take more, however many these are, and alone it may take everything.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

from orch.component.http.fair_queue import Deadlines, QueueFull

BURST_S = 0.25  # of work of all flows that may be done ahead of the rate
LEAD_S = 0.05  # of virtual time that a flow may be ahead of its share
_SWEPT = 1024  # flows, before those that are hardly ahead of their share are forgotten


class _Work(NamedTuple):
    cost_s: float
    turn: asyncio.Future[None]


class SharedRate:
    """Costs are in seconds of the rate. A flow that has gone is remembered until the work of all is
    paid: it gains nothing from leaving.
    """

    def __init__(self, *, wait_s: float, waiting_per_flow: int) -> None:
        self._wait_s = wait_s
        self._waiting_max = waiting_per_flow
        self._deadlines = Deadlines(wait_s)
        self._paid_s = 0.0  # of the loop's clock: until then nothing more is due
        self._virtual_s = 0.0  # where the last work that was let in begins
        self._ends_s: dict[Hashable, float] = {}  # virtual, of the flows' last works
        self._lines: dict[Hashable, deque[_Work]] = {}  # of the flows that wait
        # A heap of these flows, by the virtual time from which the first of each is served.
        self._order: list[tuple[float, int, Hashable]] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_at = _SWEPT

    def try_take(self, flow: Hashable, cost_s: float) -> bool:
        """Go on without waiting: while nobody is behind the burst, or the flow is within its share,
        for which there is another burst, and is next.
        """
        now_s = asyncio.get_running_loop().time()
        if self._paid_s <= now_s and not self._order:
            self._ends_s.clear()  # nobody owes anything
        begin_s = self._begin_s(flow)
        if not self._order and self._paid_s - now_s <= BURST_S:
            self._virtual_s = begin_s
        elif not self._is_next(flow, begin_s - LEAD_S, now_s):
            return False
        self.charge(flow, cost_s)
        return True

    async def take(self, flow: Hashable, cost_s: float) -> None:
        """Wait for the flow's turn. QueueFull at once where too many of it wait, or it would wait
        for longer than `wait_s` even alone; TimeoutError after that. What is given up is not paid.
        """
        begin_s, line = self._begin_s(flow), self._lines.get(flow, deque())
        ahead_s = begin_s - self._virtual_s + sum(work.cost_s for work in line)
        if len(line) >= self._waiting_max or ahead_s > self._wait_s:
            raise QueueFull
        work = _Work(cost_s, asyncio.get_running_loop().create_future())
        line.append(work)
        if flow not in self._lines:
            self._lines[flow] = line
            heapq.heappush(self._order, (begin_s - LEAD_S, next(self._numbers), flow))
            self._set_timer()
        try:
            await self._deadlines.hold(work.turn)
        except BaseException:
            if work in line:
                line.remove(work)
            raise

    def charge(self, flow: Hashable, cost_s: float) -> None:
        """For work that was let in, or what it took beyond its cost."""
        self._ends_s[flow] = self._begin_s(flow) + cost_s
        self._paid_s = max(self._paid_s, asyncio.get_running_loop().time()) + cost_s
        if len(self._ends_s) > self._sweep_at:
            soon_s = self._virtual_s + LEAD_S  # else they had not to wait
            ahead = {flow: end for flow, end in self._ends_s.items() if end > soon_s}
            self._ends_s = ahead
            self._sweep_at = 2 * len(ahead) + _SWEPT

    def _begin_s(self, flow: Hashable) -> float:
        return max(self._virtual_s, self._ends_s.get(flow, 0.0))

    def _is_next(self, flow: Hashable, from_s: float, now_s: float) -> bool:
        """Whether a flow within its share may go before all that wait."""
        if flow in self._lines or (self._order and self._order[0][0] <= from_s):
            return False
        return from_s < self._virtual_s and now_s >= self._due_s(from_s)

    def _due_s(self, from_s: float) -> float:
        """When the first flow is served."""
        return self._paid_s - (2 * BURST_S if from_s < self._virtual_s else BURST_S)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self._due_s(self._order[0][0]), self._serve_due)

    def _serve_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while self._order and now_s >= self._due_s(self._order[0][0]):
            from_s, _, flow = heapq.heappop(self._order)
            line = self._lines[flow]
            while line and line[0].turn.done():
                line.popleft()  # given up, and not yet noticed by its task
            if line:
                self._virtual_s = max(self._virtual_s, from_s)
                work = line.popleft()
                self.charge(flow, work.cost_s)
                work.turn.set_result(None)
            if line:
                heapq.heappush(self._order, (self._begin_s(flow), next(self._numbers), flow))
            else:
                del self._lines[flow]
        if self._order:
            self._set_timer()
