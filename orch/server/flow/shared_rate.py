"""A rate that flows share by weighted fair queueing with equal weights; knows no requests.

Virtual time goes on with the work that is done, by its cost divided by the flows that want some, as
in WF2Q+ (Bennett, Zhang 1996). Each piece of work begins, in virtual time, where the one before it
of the same flow ends, and the works that wait are done in the order in which they end there: small
ones do not wait for large ones. So a flow that takes less than its share is ahead of all that take
more, however many these are and however large their works, and alone it may take everything.
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
SMALL_S = 0.025  # a larger work has no part in what is kept for those within their share


class _Work(NamedTuple):
    cost_s: float
    is_light: bool  # small, and no other of the flow waited when it came
    turn: asyncio.Future[None]


class _Head(NamedTuple):
    """The first work of a flow that waits."""

    rank_s: float  # where it ends in virtual time; for a light one, a lead before
    number: int
    flow: Hashable
    is_light: bool


class SharedRate:
    """Costs are in seconds of the rate. A flow that has gone is remembered until virtual time has
    come to its end: it gains nothing from leaving.
    """

    def __init__(self, *, wait_s: float, waiting_per_flow: int) -> None:
        self._wait_s = wait_s
        self._waiting_max = waiting_per_flow
        self._deadlines = Deadlines(wait_s)
        self._paid_s = 0.0  # of the loop's clock: until then nothing more is due
        self._virtual_s = 0.0
        # Where the last works of flows end, in virtual time: of those that are ahead or wait.
        self._ends_s: dict[Hashable, float] = {}
        self._ahead: list[tuple[float, int, Hashable]] = []  # a heap, by an end that they had
        self._lines: dict[Hashable, deque[_Work]] = {}  # of the flows that wait
        self._order: list[_Head] = []  # a heap, by ranks that they had
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def try_take(self, flow: Hashable, cost_s: float) -> bool:
        """Go on without waiting: while nobody is behind the burst, or the flow is within its share,
        for which there is another burst, and is next.
        """
        now_s = asyncio.get_running_loop().time()
        first = self._first()
        if self._paid_s <= now_s and first is None:
            self._ends_s.clear()  # nobody owes anything
            self._ahead.clear()
        if first is not None or self._paid_s - now_s > BURST_S:
            head = self._head(flow, cost_s, is_light=self._is_light(flow, cost_s))
            is_first = first is None or head < first
            if not (is_first and self._is_within_share(head) and now_s >= self._due_s(head)):
                return False
        self._let_in(flow, cost_s)
        return True

    async def take(self, flow: Hashable, cost_s: float) -> None:
        """Wait for the flow's turn. QueueFull at once where too many of it wait, or it would wait
        for longer than `wait_s` even alone; TimeoutError after that. What is given up is not paid.
        """
        begin_s, line = self._begin_s(flow), self._lines.get(flow, deque())
        ahead_s = begin_s - self._virtual_s + sum(work.cost_s for work in line)
        if len(line) >= self._waiting_max or ahead_s > self._wait_s:
            raise QueueFull
        is_light, turn = self._is_light(flow, cost_s), asyncio.get_running_loop().create_future()
        work = _Work(cost_s, is_light, turn)
        line.append(work)
        if flow not in self._lines:
            self._lines[flow] = line
            self._ends_s[flow] = begin_s
            heapq.heappush(self._order, self._head(flow, cost_s, is_light=is_light))
            self._set_timer()
        try:
            await self._deadlines.hold(work.turn)
        except BaseException:
            if work in line:
                line.remove(work)
            raise

    def charge(self, flow: Hashable, cost_s: float) -> None:
        """For what work that was let in took beyond its cost, not below 0."""
        end_s = self._begin_s(flow) + cost_s
        self._ends_s[flow] = end_s
        heapq.heappush(self._ahead, (end_s, next(self._numbers), flow))
        # At half the pace of those that wait, until these are a lead ahead of newcomers.
        self._virtual_s += cost_s / (2 * (len(self._lines) + 1))
        self._paid_s = max(self._paid_s, asyncio.get_running_loop().time()) + cost_s
        while self._ahead and self._ahead[0][0] <= self._virtual_s:
            self._forget(heapq.heappop(self._ahead)[2])

    def _let_in(self, flow: Hashable, cost_s: float) -> None:
        begin_s = self._begin_s(flow)
        self.charge(flow, cost_s)
        self._virtual_s = max(self._virtual_s, begin_s - LEAD_S)

    def _begin_s(self, flow: Hashable) -> float:
        """Where the next work begins: a flow that waits loses nothing by those that go before."""
        if flow in self._lines:
            return self._ends_s[flow]
        return max(self._virtual_s, self._ends_s.get(flow, 0.0))

    def _is_light(self, flow: Hashable, cost_s: float) -> bool:
        return flow not in self._lines and cost_s <= SMALL_S

    def _head(self, flow: Hashable, cost_s: float, *, is_light: bool) -> _Head:
        rank_s = self._begin_s(flow) + cost_s - (LEAD_S if is_light else 0)
        return _Head(rank_s, next(self._numbers), flow, is_light)

    def _is_within_share(self, head: _Head) -> bool:
        return head.is_light and head.rank_s < self._virtual_s

    def _due_s(self, head: _Head) -> float:
        """When it is served, if it is the first."""
        return self._paid_s - (2 * BURST_S if self._is_within_share(head) else BURST_S)

    def _first(self) -> _Head | None:
        """Who is next; ranks change when a flow is charged or its first work is given up."""
        while self._order:
            head = self._order[0]
            flow, line = head.flow, self._lines[head.flow]
            while line and line[0].turn.done():
                line.popleft()  # given up, and not yet noticed by its task
            if not line:
                heapq.heappop(self._order)
                self._leave(flow)
                continue
            work = line[0]
            new = self._head(flow, work.cost_s, is_light=work.is_light)
            if new.rank_s == head.rank_s:
                return head
            heapq.heapreplace(self._order, new)
        return None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        first, loop = self._first(), asyncio.get_running_loop()
        self._timer = loop.call_at(self._due_s(first), self._serve_due) if first else None

    def _serve_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while (first := self._first()) and now_s >= self._due_s(first):
            heapq.heappop(self._order)
            flow, line = first.flow, self._lines[first.flow]
            work = line.popleft()
            self._let_in(flow, work.cost_s)
            work.turn.set_result(None)
            if line:
                head = self._head(flow, line[0].cost_s, is_light=False)
                heapq.heappush(self._order, head)
            else:
                self._leave(flow)
        self._set_timer()

    def _leave(self, flow: Hashable) -> None:
        del self._lines[flow]
        self._forget(flow)

    def _forget(self, flow: Hashable) -> None:
        """A flow that neither waits nor is ahead."""
        if flow not in self._lines and self._ends_s.get(flow, 0.0) <= self._virtual_s:
            self._ends_s.pop(flow, None)
