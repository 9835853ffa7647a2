"""A watch as an HTTP answer: one JSON line per event, until its time is up or the client is gone.

What happens is `resources.watching`; here it is written, with bookmarks in between and a clean end
when the server stops. Several events that are there together go out in one write.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aiohttp import web

from orch.component import clock
from orch.server import render
from orch.server.render import Rendering
from orch.server.resources import watching
from orch.server.resources.options import ListOptions
from orch.server.resources.selection import Selection
from orch.server.resources.watching import Event, Opened
from orch.wire.errors import ApiError

MIN_LIFETIME_S = 1800  # the reference: random between one and two of these
BOOKMARK_S = 60.0
_GONE_CHECK_S = 15.0  # a silent watch notices within this that its client has left
_EVENTS_PER_WRITE = 200


@dataclass(frozen=True, slots=True)
class CountSent:
    """Who wants to know how many events a watch has sent."""

    tell: Callable[[int], None]


COUNT_SENT = web.RequestKey("count_sent", CountSent)


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What one client asked to watch, and how it wants it shown."""

    rendering: Rendering
    selection: Selection
    options: ListOptions

    def lifetime_s(self) -> float:
        if self.options.timeout_s is not None:
            return self.options.timeout_s
        return MIN_LIFETIME_S * (1 + random.random())  # noqa: S311 - spreads reconnects


async def stream(request: web.Request, wanted: WatchRequest, opened: Opened) -> web.StreamResponse:
    """Answer with the events of an opened watch; returns when the stream has ended."""
    response = web.StreamResponse(headers=_headers(wanted))
    response.enable_chunked_encoding()
    writer = _Writer(wanted.rendering, response, request.get(COUNT_SENT))
    try:
        await response.prepare(request)
        await writer.write_events(opened.initial)
        if wanted.options.send_initial_events:
            await writer.write(
                render.render_bookmark(wanted.rendering, opened.initial_revision, ends_initial=True)
            )
        await _follow(request, wanted, opened, writer)
        await response.write_eof()
    except ConnectionError:
        if request.transport is not None:
            request.transport.abort()
    finally:
        opened.watch.close()
    return response


def _headers(wanted: WatchRequest) -> dict[str, str]:
    return {
        "Content-Type": wanted.rendering.representation.content_type,
        "Cache-Control": "no-cache, private",
    }


async def _follow(
    request: web.Request, wanted: WatchRequest, opened: Opened, writer: _Writer
) -> None:
    """Write events as they come; bookmarks when asked for, also as the last line at timeout.

    One timer runs beside the events, not one per event.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wanted.lifetime_s()
    bookmark_s = loop.time() + BOOKMARK_S
    timer = _remind(opened, deadline_s, bookmark_s)
    try:
        while request.transport is not None and not request.transport.is_closing():
            events = await watching.next_events(opened.watch, wanted.selection)
            if events is None:
                return
            await writer.write_events(events)
            now_s = loop.time()
            if now_s < timer.when():
                continue
            if now_s >= min(bookmark_s, deadline_s):
                if wanted.options.bookmarks:
                    line = render.render_bookmark(wanted.rendering, opened.watch.revision)
                    await writer.write(line)
                bookmark_s = now_s + BOOKMARK_S
            if now_s >= deadline_s:
                return
            timer = _remind(opened, deadline_s, bookmark_s)
    except ApiError as error:
        await writer.write(render.render_error(error.to_status()))
    finally:
        timer.cancel()


def _remind(opened: Opened, deadline_s: float, bookmark_s: float) -> asyncio.TimerHandle:
    """Wake the watch for a bookmark, for its end, or only to look whether anybody listens."""
    loop = asyncio.get_running_loop()
    when_s = min(deadline_s, bookmark_s, loop.time() + _GONE_CHECK_S)
    return loop.call_at(when_s, opened.watch.nudge)


class _Writer:
    """Lines of one stream; knows whether the columns of a table were already sent."""

    def __init__(
        self, rendering: Rendering, response: web.StreamResponse, count: CountSent | None = None
    ) -> None:
        self._rendering = rendering
        self._count = count
        self._response = response
        self._first = True

    async def write(self, line: bytes) -> None:
        await self._response.write(line)

    async def write_events(self, events: Sequence[Event]) -> None:
        for start in range(0, len(events), _EVENTS_PER_WRITE):
            lines = []
            if not self._rendering.is_plain:  # ages grow meanwhile
                self._rendering = replace(self._rendering, now=clock.utc_now())
            for event in events[start : start + _EVENTS_PER_WRITE]:
                lines.append(render.render_event(self._rendering, event, first=self._first))
                self._first = False
            await self.write(b"".join(lines))
        if self._count is not None and events:
            self._count.tell(len(events))
