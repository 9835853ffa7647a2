"""A watch as an HTTP answer: one JSON line per event, until its time is up or the client is gone.

What happens is `resources.watching`; here it is written, with bookmarks in between and a clean end
when the server stops. Events that are there together go out in one write, and those of a busy
watch wait a few milliseconds for each other (`gathering`).

Writes of many streams done together: once in a turn of the event loop, or a little later.

A stream that was written to a moment ago waits for more to come, since a write over TLS costs more
than all else of an event; one that was silent is written to at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from orch.component.process import clock
from orch.server.handlers import render
from orch.server.handlers.render import Lines, Rendering
from orch.server.objects import list_watch
from orch.server.objects.list_watch import Event, Opened
from orch.server.objects.options import ListOptions
from orch.server.objects.selection import Selection
from orch.server.storage.base import Change, Compacted, Watch
from orch.wire.errors import expired

GATHER_S = 0.012  # how long what is to be written waits for more

Write = Callable[[], None]


class Gathering:
    """One timer for all streams; a write must not raise."""

    def __init__(self) -> None:
        self._soon: dict[Write, None] = {}
        self._later: dict[Write, None] = {}

    def soon(self, write: Write) -> None:
        """Call it after this turn's other work."""
        if not self._soon:
            asyncio.get_running_loop().call_soon(self._write_soon)
        self._soon[write] = None

    def later(self, write: Write) -> None:
        """Call it within GATHER_S."""
        if not self._later:
            asyncio.get_running_loop().call_later(GATHER_S, self._write_later)
        self._later[write] = None

    def forget(self, write: Write) -> None:
        self._soon.pop(write, None)
        self._later.pop(write, None)

    def _write_soon(self) -> None:
        writes, self._soon = self._soon, {}
        for write in writes:
            write()

    def _write_later(self) -> None:
        writes, self._later = self._later, {}
        for write in writes:
            write()


MIN_LIFETIME_S = 1800  # the reference: random between one and two of these
BOOKMARK_S = 60.0
_GONE_CHECK_S = 15.0  # a silent watch notices within this that its client has left
_EVENTS_PER_WRITE = 200
BUSY_S = 0.02  # a watch is busy for so long after a write
_LATEST_CHUNKS_MAX = 8

# Chunks that went to one client of several lately, with the first and the last change in them.
Chunks = dict[tuple[int, int, str, str], tuple[Change, Change, bytes]]


@dataclass(frozen=True, slots=True)
class Shared:
    """What the watches of one server have in common: when they write, and what several are told."""

    gathering: Gathering = field(default_factory=Gathering)
    latest_chunks: Chunks = field(default_factory=dict)
    latest_lines: Lines = field(default_factory=dict)


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
    namespace: str
    options: ListOptions

    @property
    def is_common(self) -> bool:
        """The plain form of all objects of a namespace, or of all: what others see as well."""
        return self.rendering.is_plain and self.selection.everything

    def lifetime_s(self) -> float:
        if self.options.timeout_s is not None:
            return self.options.timeout_s
        return MIN_LIFETIME_S * (1 + random.random())  # noqa: S311 - spreads reconnects


async def stream(
    request: web.Request, wanted: WatchRequest, opened: Opened, shared: Shared
) -> web.StreamResponse:
    """Answer with the events of an opened watch; returns when the stream has ended."""
    response = web.StreamResponse(headers=_headers(wanted))
    response.enable_chunked_encoding()
    writer = _Writer(wanted, request, response, shared)
    feed = _Feed(request, opened.watch, writer, shared.gathering)
    try:
        await response.prepare(request)
        if request.method == "HEAD":  # whose answer has no body: what is written would follow it
            return response
        await writer.write_events(opened.initial)
        if wanted.options.send_initial_events:
            await writer.write(
                render.render_bookmark(wanted.rendering, opened.initial_revision, ends_initial=True)
            )
        await _follow(wanted, feed, writer)
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


async def _follow(wanted: WatchRequest, feed: _Feed, writer: _Writer) -> None:
    """Write events as they come; bookmarks when asked for, also as the last line at timeout."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wanted.lifetime_s()
    bookmark_s = loop.time() + BOOKMARK_S
    try:
        while writer.is_open:
            changes = await feed.next_changes(
                min(deadline_s, bookmark_s, loop.time() + _GONE_CHECK_S)
            )
            if changes is None:
                return
            await writer.write_events(list_watch.events_of(changes, wanted.selection))
            now_s = loop.time()
            if now_s < min(bookmark_s, deadline_s):
                continue
            if wanted.options.bookmarks:
                await writer.write(render.render_bookmark(wanted.rendering, feed.revision))
            bookmark_s = now_s + BOOKMARK_S
            if now_s >= deadline_s:
                return
    except Compacted as error:
        await writer.write(render.render_error(expired(str(error)).to_status()))


class _Feed:
    """What a watch brings, on its way to the client.

    Ordinarily a callback writes it, without a switch to the handler's task, which would cost more
    than the event. What takes time or ends the stream is left to the handler: many events at once,
    a client that does not keep up or has left, a watch that ended or fell behind.
    """

    def __init__(
        self, request: web.Request, watch: Watch, writer: _Writer, gathering: Gathering
    ) -> None:
        self._request = request
        self._watch = watch
        self._writer = writer
        self._gathering = gathering
        self._loop = asyncio.get_running_loop()
        self._written_s = 0.0
        self._rest: list[Change] = []  # taken, and too many for a callback
        self._left: asyncio.Future[None] = self._loop.create_future()  # to the handler

    @property
    def revision(self) -> int:
        """How far the watch has come."""
        return self._watch.revision

    async def next_changes(self, until_s: float) -> list[Change] | None:
        """Those the handler has to write itself; [] when it is `until_s`; None at the end.

        Compacted when the client fell behind what is held.
        """
        changes = self._take()
        if changes is None or changes:
            return changes
        self._left = self._loop.create_future()
        timer = self._loop.call_at(until_s, self._leave)
        self._watch.wake(self._arrived)
        try:
            await self._left
        finally:
            timer.cancel()
            self._watch.wake(None)
            self._gathering.forget(self._write)
        await self._request.writer.drain()
        return self._take()

    def _take(self) -> list[Change] | None:
        rest, self._rest = self._rest, []
        return rest or self._watch.take()

    def _arrived(self) -> None:
        if self._loop.time() - self._written_s < BUSY_S:
            self._gathering.later(self._write)
        else:
            self._gathering.soon(self._write)

    def _write(self) -> None:
        if self._left.done():
            return  # the handler takes what there is
        try:
            changes = self._take() if self._writer.takes_more else None
            if changes is None or len(changes) > _EVENTS_PER_WRITE:
                self._rest = changes or []
                self._leave()
                return
            if changes and self._writer.write_now(changes):
                self._written_s = self._loop.time()
            self._watch.wake(self._arrived)
        except Exception as error:  # the handler raises it: a callback has nobody to tell
            self._left.set_exception(error)

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)


class _Writer:
    """Lines of one stream; knows whether the columns of a table were already sent."""

    def __init__(
        self,
        wanted: WatchRequest,
        request: web.Request,
        response: web.StreamResponse,
        shared: Shared,
    ) -> None:
        self._wanted = wanted
        self._rendering = wanted.rendering
        self._is_common = wanted.is_common
        self._protocol = request.protocol
        self._response = response
        self._latest_chunks = shared.latest_chunks
        self._latest_lines = shared.latest_lines
        self._count = request.get(COUNT_SENT)
        self._first = True

    @property
    def is_open(self) -> bool:
        transport = self._protocol.transport
        return transport is not None and not transport.is_closing()

    @property
    def takes_more(self) -> bool:
        """Is the client there, and keeping up?"""
        return not self._protocol.writing_paused and self.is_open

    async def write(self, line: bytes) -> None:
        await self._response.write(line)

    async def write_events(self, events: Sequence[Event]) -> None:
        """As fast as the client takes them."""
        for start in range(0, len(events), _EVENTS_PER_WRITE):
            await self.write(self._lines(events[start : start + _EVENTS_PER_WRITE]))

    def write_now(self, changes: Sequence[Change]) -> bool:
        """As one chunk, into the connection's buffer; False when the client has no part in them."""
        chunk = self._common_chunk(changes) if self._is_common else self._chunk(changes)
        transport = self._protocol.transport
        if chunk and transport is not None:
            transport.write(chunk)
        return bool(chunk)

    def _common_chunk(self, changes: Sequence[Change]) -> bytes:
        """Made for the first client of those who are told the same at about one time."""
        first, last = changes[0], changes[-1]
        place = id(first), id(last), self._wanted.namespace, self._rendering.alias
        known = self._latest_chunks.get(place)
        if known is not None and known[0] is first and known[1] is last:
            if self._count is not None:
                self._count.tell(len(changes))
            return known[2]
        chunk = self._chunk(changes)
        if len(self._latest_chunks) >= _LATEST_CHUNKS_MAX:
            self._latest_chunks.clear()
        self._latest_chunks[place] = first, last, chunk
        return chunk

    def _chunk(self, changes: Sequence[Change]) -> bytes:
        """As it goes over the wire; b"" without an event."""
        lines = self._lines(list_watch.events_of(changes, self._wanted.selection))
        return b"%x\r\n%b\r\n" % (len(lines), lines) if lines else b""

    def _lines(self, events: Sequence[Event]) -> bytes:
        if not self._rendering.is_plain:  # ages grow meanwhile
            self._rendering = self._rendering._replace(now=clock.utc_now())
        lines, latest = [], self._latest_lines
        for event in events:
            lines.append(render.render_event(self._rendering, event, latest, first=self._first))
            self._first = False
        if self._count is not None and events:
            self._count.tell(len(events))
        return b"".join(lines)
