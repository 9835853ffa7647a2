"""A rate that flows share by start-time fair queueing (Goyal, Vin, Cheng 1996); knows no requests.

Each piece of work begins, in virtual time, where the one before it of the same flow ends, and those
that wait go in the order of their beginnings. So a flow that takes less than its share is ahead of
all that take more, however many these are, and alone it may take everything.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable
from typing import NamedTuple

from orch.component.http.fair_queue import Deadlines, QueueFull

BURST_S = 0.25  # of work of all flows that may be done ahead of the rate
LEAD_S = 0.05  # of virtual time that a flow may be ahead of its share
_SWEPT = 1024  # flows, before those that are not ahead of their share are forgotten


class _Waiting(NamedTuple):
    """In the order in which they are let in; `from_s` is the virtual time of that."""

    from_s: float
    number: int
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
        self._waiting: list[_Waiting] = []  # a heap
        self._waiting_by_flow: dict[Hashable, int] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_at = _SWEPT

    def try_take(self, flow: Hashable, cost_s: float) -> bool:
        """Go on without waiting: while nobody is behind the burst, or the flow is within its share,
        for which there is another burst.
        """
        now_s = asyncio.get_running_loop().time()
        ahead_s = self._paid_s - now_s
        if ahead_s <= 0 and not self._waiting:
            self._ends_s.clear()  # nobody owes anything
        begin_s = self._begin_s(flow)
        in_order = ahead_s <= BURST_S and not self._waiting
        if in_order:
            self._virtual_s = begin_s
        elif begin_s > self._virtual_s + LEAD_S or ahead_s > 2 * BURST_S:
            return False
        self._ends_s[flow] = begin_s + cost_s
        self._let_in(cost_s, now_s)
        return True

    async def take(self, flow: Hashable, cost_s: float) -> None:
        """Wait for the flow's turn. QueueFull at once where too many of it wait, or it would wait
        for longer than `wait_s` even alone; TimeoutError after that.
        """
        begin_s, waiting = self._begin_s(flow), self._waiting_by_flow.get(flow, 0)
        if waiting >= self._waiting_max or begin_s - self._virtual_s > self._wait_s:
            raise QueueFull
        turn = asyncio.get_running_loop().create_future()
        self._ends_s[flow] = begin_s + cost_s
        self._waiting_by_flow[flow] = waiting + 1
        from_s = begin_s if waiting else begin_s - LEAD_S
        heapq.heappush(self._waiting, _Waiting(from_s, next(self._numbers), cost_s, turn))
        self._set_timer()
        try:
            await self._deadlines.hold(turn)
        finally:
            self._waiting_by_flow[flow] -= 1
            if not self._waiting_by_flow[flow]:
                del self._waiting_by_flow[flow]

    def charge(self, flow: Hashable, cost_s: float) -> None:
        """What work that was let in took beyond its cost."""
        self._ends_s[flow] = self._begin_s(flow) + cost_s
        self._let_in(cost_s, asyncio.get_running_loop().time())

    def _begin_s(self, flow: Hashable) -> float:
        return max(self._virtual_s, self._ends_s.get(flow, 0.0))

    def _let_in(self, cost_s: float, now_s: float) -> None:
        self._paid_s = max(self._paid_s, now_s) + cost_s
        if len(self._ends_s) > self._sweep_at:
            ahead = {flow: end for flow, end in self._ends_s.items() if end > self._virtual_s}
            self._ends_s = ahead
            self._sweep_at = 2 * len(ahead) + _SWEPT

    def _set_timer(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._paid_s - BURST_S, self._let_in_due)

    def _let_in_due(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        while self._waiting:
            if self._paid_s - now_s > BURST_S:
                self._set_timer()
                return
            first = heapq.heappop(self._waiting)
            if not first.turn.done():  # else it was given up
                self._virtual_s = max(self._virtual_s, first.from_s)
                self._let_in(first.cost_s, now_s)
                first.turn.set_result(None)
