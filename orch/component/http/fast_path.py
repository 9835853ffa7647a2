"""Ways past what costs a request or a watch event too much: the router, a timer each, a coroutine.

Figures are CPU of the API server over TLS. Knows neither resources nor records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shortcut:
    """Below each of `prefixes`, which end in a slash, `route` is the only one: requests that all
    end there need no router. Without this a GET costs 7-15 % more, a PUT 4-6 %.
    """

    prefixes: tuple[str, ...]
    route: web.AbstractRoute

    def beside(self, app: web.Application, routed: Answering) -> Answering:
        """Answers like `routed`, the application's own way, which is left what needs a look."""
        match = web.UrlMappingMatchInfo({}, self.route)
        match.add_app(app)
        match.current_app = app
        match.freeze()
        handler: Answering = self.route.handler
        for middleware in reversed(app.middlewares):
            handler = partial(middleware, handler=handler)
        prefixes = self.prefixes

        def answer(request: web.Request) -> Awaitable[web.StreamResponse]:
            path = request.rel_url.raw_path
            plain = path.startswith(prefixes) and "%" not in path and not path.endswith("/")
            if not plain or "Expect" in request.headers:
                return routed(request)
            request._match_info = match  # by which the application's signals are found
            return handler(request)

        return answer


SHORTCUT = web.AppKey("shortcut", Shortcut)


def take_shortcut(app: web.Application, server: web.Server) -> None:
    """Have the connections of the server use the application's shortcut, if it has one."""
    shortcut = app.get(SHORTCUT)
    if shortcut is not None:
        changed: Any = server
        changed.request_handler = shortcut.beside(app, changed.request_handler)


class Deadlines:
    """Bounds the time of requests, each in a task of its own, with one timer for all.

    All have the same time, so the first to begin is the first to be late, and nearly none ever is.
    With an `asyncio.timeout` for each a GET costs 6-12 % more, a PUT 4-6 %.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends: dict[asyncio.Task[object], float] = {}  # the oldest first
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def hold(self, work: Awaitable[T]) -> T:
        """What the work returns or raises; TimeoutError when it takes longer, which cancels it."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise AssertionError("work is held to its time in a task")
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

    def _end_late(self) -> None:
        """Cancel what is late, and look again when the next one is."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, end_s in tuple(self._ends.items()):
            if end_s > loop.time():
                self._timer = loop.call_at(end_s, self._end_late)
                return
            del self._ends[task]
            self._late.add(task)
            task.cancel()


def framed(data: bytes) -> bytes:
    """One chunk of a chunked answer, as it goes over the wire; never of nothing, which ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def write_chunk(request: web.Request, chunk: bytes) -> None:
    """Put a framed chunk into the buffer of the connection, from a callback: aiohttp's own `write`
    has to be awaited, and waking the handler of a watch for that makes an event 2.3 to 3.9 times
    as dear.
    """
    if request.transport is not None:
        request.transport.write(chunk)
