"""Flow control: every request has a seat of its caller's level while it is worked on.

A request takes its seat once the caller is known and is authorized with it, so that refusals are
paced as well. It has none while its body arrives, and a watch or a proxied request gives it back as
soon as it is allowed. A caller's seats, waiting requests, bodies and connections are bounded, and
the rates of tenants' changes and of nodes' large ones; beyond a bound is 429, which names the
caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Self

from aiohttp import web
from prometheus_client import Gauge

from orch.component.http import httpd
from orch.component.http.connection import Connection
from orch.component.http.fair_queue import FairQueue, QueueFull, pause_before_refusal
from orch.server.flow.levels import WAITING_PER_FLOW, WORKLOAD, Caller, Levels, Limits
from orch.server.flow.shared_rate import SharedRate
from orch.server.request.attributes import RequestInfo
from orch.server.request.bodies import MAX_VALUES, values_in
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

BODIES = 100  # of one caller, being received or worked on
BODY_BYTES = 24 * 1024 * 1024
LEVEL_BODY_BYTES = 128 * 1024 * 1024
BYTES_OF_CHANGE = 30_000  # of the object and of what is sent: as many more count as one more change
BYTES_OF_VALUE = 20  # each value of either beyond the first thousand counts as so many more
_FREE_VALUES = 1000
_LONG_RUNNING_SHARE = 1 / 16  # of the listener's connections, for one caller
_READS = ("get", "list", "watch", "head", "options")
_KINDS = ("readOnly", "mutating")


_SEAT: ContextVar[Seat | None] = ContextVar("seat", default=None)


@asynccontextmanager
async def aside() -> AsyncIterator[None]:
    """Wait for something slow without the seat of the current request, which others need; the
    several parts of a request may do so at once. ApiError 429 when it is not given back in time.
    After a failure it is not taken again: only the answer is left.
    """
    seat = _SEAT.get()
    if seat is None:
        yield
        return
    seat.step_aside()
    try:
        yield
    except BaseException:
        seat.stay_aside()
        raise
    await seat.come_back()


async def limit_rate(size: Callable[[], int]) -> None:
    """Wait, if the current request is a tenant's, or a node's and large, until it may change an
    object of so many bytes, what was sent included. ApiError 429.

    A change takes one to four milliseconds of the event loop, in pieces: without a limit tenants
    had nearly all of it, one or ten, and every piece of another's request waited for one of theirs.
    """
    seat = _SEAT.get()
    if seat is not None and (rate := seat.rate) is not None:
        await seat.limit_rate(rate, size)


def charge(size: int) -> None:
    """Charge the current request, if it is a tenant's or a node's, for so many bytes more."""
    seat = _SEAT.get() if size else None
    if seat is not None and (rate := seat.rate) is not None:
        seat.charge(rate, size)


def size_of(stored: bytes) -> int:
    """An object's bytes and values, in bytes of the rate."""
    return len(stored) + size_of_values(values_in(stored))


def size_of_values(count: int) -> int:
    """In bytes of the rate. With more than a body may have it is refused before they are read."""
    return BYTES_OF_VALUE * max(min(count, MAX_VALUES) - _FREE_VALUES, 0)


class FlowControl:
    """`in_flight` are the requests with a seat; `gauge` shows them by its label `request_kind`."""

    def __init__(self, limits: Limits, gauge: Gauge) -> None:
        self.levels = Levels(limits)
        self.changes, self.node_changes = (
            SharedRate(wait_s=limits.wait_s, waiting_per_flow=WAITING_PER_FLOW) for _ in range(2)
        )
        self._change_s = 1 / limits.changes_per_s if limits.changes_per_s else 0.0
        self.long_running_max = max(int(limits.max_connections * _LONG_RUNNING_SHARE), 1)
        self.in_flight = dict.fromkeys(_KINDS, 0)
        for kind in _KINDS:  # read when the page is rendered, not set at every request
            gauge.labels(kind).set_function(partial(self.in_flight.__getitem__, kind))

    def cost_s(self, size: int) -> float:
        """What a change of an object of so many bytes takes of the rate."""
        return self._change_s * (1 + size / BYTES_OF_CHANGE)

    def seat(self, connection: Connection, identity: Identity | None, info: RequestInfo) -> Seat:
        """The context in which a request is worked on; `identity` None: not authenticated."""
        caller = connection.owner
        if (
            identity is None
            or not isinstance(caller, Caller)
            or caller.identity is not identity  # mostly it is: one certificate, one caller
        ):
            caller = self.levels.caller(identity, connection.network, info.path)
        return Seat(self, connection, caller, info)


class Seat:
    """Entering it takes a seat; ApiError 429."""

    __slots__ = (
        "_aside", "_caller", "_connection", "_control", "_held", "_info", "_is_long", "_kind",
        "_seated",
    )  # fmt: skip

    def __init__(
        self, control: FlowControl, connection: Connection, caller: Caller, info: RequestInfo
    ) -> None:
        self._control = control
        self._connection = connection
        self._caller = caller
        self._info = info
        self._kind = _KINDS[info.verb not in _READS]
        self._seated = False
        self._is_long = False  # it is counted as long-running
        self._held = 0  # bytes reserved for the body
        self._aside = 0  # parts of the request that wait for something slow

    @property
    def is_upper(self) -> bool:
        """Whether it is no tenant's."""
        return self._caller.schema.level.name != WORKLOAD

    @property
    def rate(self) -> SharedRate | None:
        """Of changes; None for the control plane, administrators, and nodes' Leases, which are
        small.
        """
        control = self._control
        if not self.is_upper:
            return control.changes
        is_report = self._info.resource != "leases" and self._caller.schema is control.levels.nodes
        return control.node_changes if is_report else None

    async def __aenter__(self) -> Self:
        connection, caller, schema = self._connection, self._caller, self._caller.schema
        level = schema.level
        if connection.owner is not caller and not connection.claim(caller, schema.rank):
            connection.close()  # after the answer
            raise self._refusal("concurrency-limit", "all connections they may have are busy")
        if level.busy and not level.busy.begin(connection.network):
            raise self._refusal("concurrency-limit", "all connections of the level are busy")
        try:
            await self._take_seat()
        except BaseException:
            if level.busy:
                level.busy.end(connection.network)
            raise
        _SEAT.set(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        caller, level = self._caller, self._caller.schema.level
        if self._seated:
            self._leave_seat()
        if self._is_long:
            caller.long_running -= 1
        if self._held:
            caller.bodies -= 1
            caller.body_bytes -= self._held
            level.body_bytes -= self._held
        if level.busy:
            level.busy.end(self._connection.network)

    def step_aside(self) -> None:
        self._aside += 1
        if self._seated:
            self._leave_seat()

    def stay_aside(self) -> None:
        self._aside -= 1

    async def come_back(self) -> None:
        """The last of its parts takes the seat again; ApiError 429."""
        try:
            if not (self._aside > 1 or self._seated or self._info.is_long_running):
                await self._take_seat()  # it counts as aside until then: no other is the last
        finally:
            self._aside -= 1

    async def prepare(self, request: web.Request) -> None:
        """To be called when the request is allowed: without the seat, receive its body or leave a
        long-running one to itself. ApiError 408, 413, 415, 429.
        """
        if self._info.is_long_running:
            await self._run_long()
        elif (
            not request.content.is_eof()  # mostly the body has arrived with the headers
            and self._kind == "mutating"
            and self._caller.schema.level.queue is not None
        ):
            self._leave_seat()
            await self._reserve(request)
            await httpd.read_body(request)
            await self._take_seat()

    async def limit_rate(self, rate: SharedRate, size: Callable[[], int]) -> None:
        """Wait, without the seat, for the caller's turn at the rate that it shares with others.
        Most reports of nodes do not wait: they are small.
        """
        control, caller, now = self._control, self._caller, size()
        if rate is control.node_changes and now <= BYTES_OF_CHANGE:
            return
        cost_s = control.cost_s(now)
        if rate.try_take(caller, cost_s):
            return
        async with aside():
            await self._wait_slowed(rate, cost_s)
        grown_s = control.cost_s(size()) - cost_s
        rate.charge(caller, max(grown_s, 0.0))  # nothing is given back

    def charge(self, rate: SharedRate, size: int) -> None:
        """For what a change takes beyond its size; no wait, but later ones of the caller will."""
        control = self._control
        rate.charge(self._caller, control.cost_s(size) - control.cost_s(0))

    async def _wait_slowed(self, rate: SharedRate, cost_s: float) -> None:
        schema, loop = self._caller.schema, asyncio.get_running_loop()
        began_s = loop.time()
        schema.waiting += 1
        try:
            await rate.take(self._caller, cost_s)
        except QueueFull:
            raise await self._late_refusal("as many of their changes as may are waiting") from None
        except TimeoutError:
            schema.waited_in_vain.observe(loop.time() - began_s)
            raise self._refusal("time-out", "their change waited too long for its turn") from None
        finally:
            schema.waiting -= 1
        schema.waited.observe(loop.time() - began_s)

    async def _run_long(self) -> None:
        caller = self._caller
        self._leave_seat()
        if caller.schema.level.queue and caller.long_running >= self._control.long_running_max:
            raise await self._late_refusal("too many watches and proxied requests run")
        caller.long_running += 1
        self._is_long = True

    async def _reserve(self, request: web.Request) -> None:
        """For a body of unknown size the most that it may have."""
        caller, level = self._caller, self._caller.schema.level
        size = min(request.content_length or request.client_max_size, request.client_max_size)
        if caller.bodies >= BODIES or caller.body_bytes + size > BODY_BYTES:
            raise await self._late_refusal("too many of their bodies are under way")
        if level.body_bytes + size > LEVEL_BODY_BYTES:
            raise await self._late_refusal("the bodies of the level use up its memory")
        self._held = size
        caller.bodies += 1
        caller.body_bytes += size
        level.body_bytes += size

    async def _take_seat(self) -> None:
        caller, schema = self._caller, self._caller.schema
        queue = schema.level.queue
        if queue is None or queue.try_enter(caller):
            schema.at_once += 1
        else:
            await self._wait(queue)
        self._seated = True
        schema.executing += 1
        self._control.in_flight[self._kind] += 1

    def _leave_seat(self) -> None:
        caller, schema = self._caller, self._caller.schema
        self._seated = False
        schema.executing -= 1
        self._control.in_flight[self._kind] -= 1
        if schema.level.queue is not None:
            schema.level.queue.leave(caller)

    async def _wait(self, queue: FairQueue) -> None:
        schema, loop = self._caller.schema, asyncio.get_running_loop()
        began_s = loop.time()
        schema.waiting += 1
        try:
            await queue.enter(self._caller)
        except QueueFull:
            await pause_before_refusal()
            raise self._refusal("queue-full", "as many of theirs as may are waiting") from None
        except TimeoutError:
            schema.waited_in_vain.observe(loop.time() - began_s)
            raise self._refusal("time-out", "it waited too long for its turn") from None
        finally:
            schema.waiting -= 1
        schema.waited.observe(loop.time() - began_s)

    async def _late_refusal(self, why: str) -> ApiError:
        """To be asked for without a seat."""
        await pause_before_refusal()
        return self._refusal("concurrency-limit", why)

    def _refusal(self, reason: str, why: str) -> ApiError:
        schema = self._caller.schema
        schema.rejected[reason] = schema.rejected.get(reason, 0) + 1
        text = (
            f'too many requests from "{self._caller.name}" (flow schema {schema.name}, priority'
            f" level {schema.level.name}): {why}; please try again in a second"
        )
        return ApiError(429, "TooManyRequests", text, retry_after_s=1)
