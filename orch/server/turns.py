"""Work on large objects and long lists, done so that other requests go on meanwhile.

What computes something from one large object runs in a thread; only one such thread, as each would
take its turn of the interpreter from the loop, and between its steps it gives way to the loop.
Callers share it in rotation. What goes through many objects stays on the loop, one at a time, and
lets others have a turn every millisecond.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import TypeVar

from aiohttp import web

from orch.component.http.fair_queue import Bounds, Turns
from orch.component.http.sliced_response import LazyBody, body_of
from orch.server.request import bodies, media
from orch.server.request.bodies import values_in

SMALL = 2_000  # values; validation takes up to 10 µs for each
TURN_S = 0.005
_SLICE_S = 0.001  # of what goes through many objects
SWITCH_S = 0.0003  # how long a thread may compute while another waits for the interpreter

_sent: ContextVar[int] = ContextVar("values_sent", default=0)
_owner: ContextVar[object] = ContextVar("owner", default=None)
_turns = Turns(Bounds(seats=2, wait_s=300.0))  # the second waits for the thread
_slices = Turns()
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-objects")

_at_work = threading.Lock()  # held by the loop unless it waits for something to do

Data = TypeVar("Data")
Item = TypeVar("Item")
Result = TypeVar("Result")


class _Selector(selectors.EpollSelector):
    _holds = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout != 0:
            self._release()
        events = super().select(timeout)
        if not self._holds:
            self._holds = _at_work.acquire(blocking=False)  # in vain while the thread has a look
        return events

    def close(self) -> None:
        self._release()
        super().close()

    def _release(self) -> None:
        if self._holds:
            self._holds = False
            _at_work.release()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop, for the main thread, to which the thread gives way."""
    return asyncio.SelectorEventLoop(_Selector())


def give_way() -> None:
    """Between two steps: in the thread, wait until the loop waits, but no longer than TURN_S.

    Else the loop, which releases the interpreter at each read and write, gets it back only after
    the thread's share, or the end of a long call: a turn of 13 ms was seen to take 48.
    """
    if threading.current_thread() is threading.main_thread():
        return
    if _at_work.acquire(timeout=TURN_S):
        _at_work.release()


def weigh(body: bytes, owner: object) -> int:
    """Remember how many values the body of the current request has, which it returns, and whose
    it is.
    """
    values = values_in(body)
    _sent.set(values)
    _owner.set(owner)
    return values


def owner() -> object:
    """Whose the current request is; None for the server's own work."""
    return _owner.get()


async def compute(work: Callable[[], Result], stored: bytes = b"") -> Result:
    """`work()`, which must touch nothing that others use: in the thread when the body of this
    request, together with a stored object, is large.
    """
    if _sent.get() + values_in(stored) <= SMALL:
        return work()
    return await aside(work)


async def aside(work: Callable[[], Result]) -> Result:
    """`work()` in the thread, when it is the turn of the request's owner."""
    async with _turns.hold(_owner.get()):
        return await asyncio.get_running_loop().run_in_executor(_THREAD, work)


async def aside_of(read: Callable[[], Awaitable[Data]], work: Callable[[Data], Result]) -> Result:
    """`aside` of what is read only then: those who wait hold nothing of it."""
    async with _turns.hold(_owner.get()):
        data = await read()
        return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(work, data))


async def as_json(body: bytes, content_type: str) -> tuple[bytes, str]:
    """A YAML body as JSON, and its new content type; others as they are."""
    if not bodies.is_yaml(content_type, body):
        return body, content_type
    return await aside(partial(bodies.json_of, body)), media.JSON


async def in_turns(items: Iterable[Item]) -> AsyncIterator[Item]:
    """The items; between two of them others may have their turn, and may change what is stored. Of
    all who go through many, one does so in a turn of the loop, their owners in rotation.
    """
    ends_s = time.monotonic() + _SLICE_S
    for item in items:
        yield item
        if time.monotonic() > ends_s:
            await _slices.take(_owner.get())
            ends_s = time.monotonic() + _SLICE_S


class Calls:
    """Calls to be made soon, in each turn of the loop for a few milliseconds.

    400 watches wrote of 64 deletions for 150 in one turn.
    """

    def __init__(self) -> None:
        self._next: deque[Callable[[], None]] = deque()

    def soon(self, call: Callable[[], None]) -> None:
        if not self._next:
            asyncio.get_running_loop().call_soon(self._make_some)
        self._next.append(call)

    def _make_some(self) -> None:
        ends_s = time.monotonic() + TURN_S
        try:
            while self._next and time.monotonic() < ends_s:
                call = self._next[0]
                try:
                    call()
                finally:
                    self._next.popleft()  # only now: until then another one schedules nothing
        finally:
            if self._next:
                asyncio.get_running_loop().call_soon(self._make_some)


async def beginning(response: web.StreamResponse | None, most: int) -> bytes | bytearray:
    """The body of an answer; one that is made while it is sent up to `most` bytes or a little more,
    b"" where there is none.
    """
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, LazyBody):
        return body_of(response) or b""
    made = bytearray()
    async for piece in in_turns(body.pieces()):
        made += piece
        if len(made) >= most:
            break
    return made
