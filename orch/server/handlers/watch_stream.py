"""A watch as an HTTP answer: one JSON line per event, until it times out or the client leaves.

Writes the events that `objects.list_watch` selects, with bookmarks in between and a clean end when
the server stops. What waits for a slow client stays in the history: only what it is being sent is
taken, and announced to storage.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import Counter

from orch.component.http import httpd, tcp
from orch.component.http.sliced_response import Piece, framed, send, takes_more, write_chunk
from orch.component.process import clock
from orch.server.handlers import render
from orch.server.handlers.call import NOTES, warning_headers
from orch.server.handlers.render import Rendering
from orch.server.objects import list_watch
from orch.server.objects.list_watch import Event, Opened
from orch.server.objects.options import ListOptions
from orch.server.objects.selection import Selection
from orch.server.storage.base import Change, Compacted, Hold, Stored, Watch
from orch.server.turns import Calls
from orch.wire.errors import expired

# A write over TLS costs more than the rest of an event. So events that are ready together share a
# write, those of a busy watch wait a few milliseconds for more, watches that send the same chunk
# build it once, and a callback writes instead of the handler's task. With 100 watches at 100 events
# a second a delivery costs 1.4 to 2.6 times as much without the wait, 1.4 times with a chunk for
# each watch, 3.5 times when the handler's task writes.

MIN_LIFETIME_S = 1800  # as in the reference: a random time between this and twice this
BOOKMARK_S = 60.0
GONE_CHECK_S = 15.0  # an idle watch notices within this that its client has disconnected
EVENTS_PER_WRITE = 200
LARGE_BYTES = 128 * 1024  # an object of more is written by the handler, and not copied
BUSY_S = 0.02  # a watch counts as busy for this long after a write
COALESCE_S = 0.012  # how long an event of a busy watch waits for more
COSTLY_BYTES = 16 * 1024  # likewise, of what has to be parsed
COSTLY_TERMS = 64  # likewise, of selectors, for all of some changes; each takes a microsecond
TERMS_A_TURN = 2000
_LATEST_CHUNKS_MAX = 8
_LATEST_LINES_MAX = 64
_LATEST_LINES_BYTES = 16 * 1024 * 1024

# By ids of the first and last change, namespace, and version; holding the changes keeps
# ids unique.
Chunks = dict[tuple[int, int, str, str], tuple[Change, Change, bytes]]
Write = Callable[[], None]


@dataclass(slots=True)
class Shared:
    """State shared by all watches of a server: the latest chunks and lines, and one timer for the
    writes of busy watches, because a timer for each would cost 2 µs per write.
    """

    latest_chunks: Chunks = field(default_factory=dict)
    calls: Calls = field(default_factory=Calls)
    _latest_lines: dict[tuple[object, ...], tuple[Event, bytes]] = field(default_factory=dict)
    _lines_bytes: int = 0
    _waiting: list[Write] = field(default_factory=list)

    def line(self, rendering: Rendering, event: Event, *, first: bool) -> bytes:
        """The line of an event; of one that has to be parsed for it, watches share it for a second:
        one change of a large object, watched 300 times as a table, took 2.4 s.
        """
        if rendering.is_stored:
            return render.render_event(rendering, event, first=first)
        form = rendering._replace(now=rendering.now.replace(microsecond=0))
        key = id(event.stored), event.type, event.revision, first, *form
        found = self._latest_lines.get(key)
        if found is not None:
            return found[1]
        line = render.render_event(rendering, event, first=first)
        too_large = self._lines_bytes + len(line) > _LATEST_LINES_BYTES
        if too_large or len(self._latest_lines) >= _LATEST_LINES_MAX:
            self._latest_lines.clear()
            self._lines_bytes = 0
        self._latest_lines[key] = event, line
        self._lines_bytes += len(line)
        return line

    def write_later(self, write: Write) -> None:
        """Call `write` within COALESCE_S; it must not raise."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(COALESCE_S, self._write)
        self._waiting.append(write)

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        for write in waiting:
            self.calls.soon(write)


COUNT_SENT = web.RequestKey("count_sent", Counter)  # of the events that a watch has sent


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The objects to watch, and the form in which to send them."""

    rendering: Rendering
    selection: Selection
    namespace: str
    options: ListOptions

    @property
    def is_common(self) -> bool:
        """Whether it sends every object, of one namespace or of all, in plain form."""
        return self.rendering.is_plain and self.selection.everything

    def lifetime_s(self) -> float:
        if self.options.timeout_s is not None:
            return self.options.timeout_s
        return MIN_LIFETIME_S * (1 + random.random())  # noqa: S311 - spreads reconnects


async def stream(
    request: web.Request, wanted: WatchRequest, opened: Opened, shared: Shared
) -> web.StreamResponse:
    """Answer with the events of an opened watch; returns when the stream has ended."""
    response = web.StreamResponse(headers=wanted.rendering.representation.headers)
    response.enable_chunked_encoding()
    for warning in warning_headers(request[NOTES].warnings):
        response.headers.add("Warning", warning)
    writer = _Writer(wanted, request, response, shared, opened.hold)
    feed = _Feed(request, opened.watch, writer, shared)
    try:
        await response.prepare(request)
        if request.method == "HEAD":  # the answer has no body: more bytes would corrupt the next
            return response
        await writer.write_batches(_beginning(opened.initial), held_bytes=opened.held_bytes)
        opened.initial = ()  # else they would be kept as long as the watch
        if wanted.options.send_initial_events:
            await writer.write(
                render.render_bookmark(wanted.rendering, opened.initial_revision, ends_initial=True)
            )
        await _follow(wanted, feed, writer)
        await response.write_eof()
    except ConnectionError:
        tcp.abort(request.transport)
    finally:
        opened.watch.close()
    return response


async def _follow(wanted: WatchRequest, feed: _Feed, writer: _Writer) -> None:
    """Write events as they arrive; bookmarks if requested, the last one at the timeout."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wanted.lifetime_s()
    bookmark_s = loop.time() + BOOKMARK_S
    try:
        while writer.is_open:
            changes = await feed.next_changes(
                min(deadline_s, bookmark_s, loop.time() + GONE_CHECK_S)
            )
            if changes is None:
                return
            await writer.write_changes(changes)
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
    """Passes the changes of a watch to its client.

    Usually a callback writes them, because switching to the handler's task costs more than the
    event itself. The handler takes over when writing may block or the stream ends: on many events
    at once, a slow or disconnected client, a watch that ended or fell behind. Only one of the two
    writes at a time: callbacks while `_handover` is pending, the handler otherwise.
    """

    def __init__(self, request: web.Request, watch: Watch, writer: _Writer, shared: Shared) -> None:
        self._request = request
        self._watch = watch
        self._writer = writer
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._written_s = 0.0
        self._rest: list[Change] = []  # taken from the watch, too many for a callback
        self._handover: asyncio.Future[None] = self._loop.create_future()

    @property
    def revision(self) -> int:
        """The revision that the watch has reached."""
        return self._watch.revision

    async def next_changes(self, until_s: float) -> list[Change] | None:
        """Wait for changes that the handler must write; [] at `until_s`, None at the end.

        Raises Compacted when the client fell behind the history.
        """
        if (changes := self._take()) is None or changes:
            return changes
        if self._watch.is_behind:
            await httpd.connection_of(self._request).take_turn()
            return []
        self._handover = self._loop.create_future()
        timer = self._loop.call_at(until_s, self._hand_over)
        self._watch.wake(self._on_change)
        try:
            await self._handover
        finally:
            timer.cancel()
            self._watch.wake(None)
        await self._request.writer.drain()
        return self._take()

    def _take(self) -> list[Change] | None:
        rest, self._rest = self._rest, []
        return rest or self._watch.take()

    def _on_change(self) -> None:
        if self._loop.time() - self._written_s < BUSY_S:
            self._shared.write_later(self._write)
        else:
            self._shared.calls.soon(self._write)  # with all changes of this loop turn

    def _write(self) -> None:
        if self._handover.done():
            return  # the handler writes
        try:
            changes = self._take() if self._writer.takes_more else None
            if changes and not self._writer.is_large(changes):
                if self._writer.write_now(changes):
                    self._written_s = self._loop.time()
                changes = self._watch.take()  # mostly nothing more
            if changes or changes is None or self._watch.is_behind:
                self._rest = changes or []
                self._hand_over()
            else:
                self._watch.wake(self._on_change)
        except Exception as error:  # raised by the handler, as a callback has no caller
            self._handover.set_exception(error)

    def _hand_over(self) -> None:
        if not self._handover.done():
            self._handover.set_result(None)


def _size_of(change: Change) -> int:
    stored = change.current or change.previous
    return 0 if stored is None else len(stored.data)


def _batches(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Neighbours for one write each; a large object alone."""
    start = size = 0
    for position, event in enumerate(events):
        size += len(event.stored.data)
        if position > start and (size > LARGE_BYTES or position - start == EVENTS_PER_WRITE):
            yield events[start:position]
            start, size = position, len(event.stored.data)
    yield events[start:]


def _beginning(found: Sequence[Stored]) -> Iterator[Sequence[Event]]:
    """What was there when a watch began; an event is made when it is its turn."""
    for start in range(0, len(found), EVENTS_PER_WRITE):
        part = found[start : start + EVENTS_PER_WRITE]
        yield from _batches([Event("ADDED", stored, stored.revision) for stored in part])


class _Writer:
    """Writes the lines of a stream, the columns of a table only once."""

    def __init__(
        self,
        wanted: WatchRequest,
        request: web.Request,
        response: web.StreamResponse,
        shared: Shared,
        hold: Hold,
    ) -> None:
        self._wanted = wanted
        self._rendering = wanted.rendering
        self._shown = wanted.rendering.api_version
        self._is_common = wanted.is_common
        self._terms = wanted.selection.terms
        self._request = request
        self._response = response
        self._shared = shared
        self._latest_chunks = shared.latest_chunks
        self._hold = hold
        self._count = request.get(COUNT_SENT)
        self._first = True

    @property
    def is_open(self) -> bool:
        transport = self._request.transport
        return transport is not None and not transport.is_closing()

    @property
    def takes_more(self) -> bool:
        """Whether the client is connected and keeps up."""
        return takes_more(self._request) and self.is_open

    def is_large(self, changes: Sequence[Change]) -> bool:
        """Whether the handler is to write them, in turn with others: an object of more than
        LARGE_BYTES, which a watch gives alone, some to be parsed, or held against many terms.
        """
        most = LARGE_BYTES if self._rendering.is_stored else COSTLY_BYTES
        large = changes[:1] if self._rendering.is_stored else changes
        return len(changes) * self._terms > COSTLY_TERMS or sum(map(_size_of, large)) > most

    async def write(self, line: Piece) -> None:
        await self._response.write(line)

    async def write_changes(self, changes: Sequence[Change]) -> None:
        """Write those that are for the client; looking for them takes turns with other watches."""
        some = max(TERMS_A_TURN // max(self._terms, 1), 1)
        for start in range(0, len(changes), some):
            if self._terms:
                await httpd.connection_of(self._request).take_turn()
            part = changes[start : start + some]
            if events := list_watch.events_of(part, self._wanted.selection):
                await self.write_batches(_batches(events))

    async def write_batches(self, batches: Iterable[Sequence[Event]], held_bytes: int = 0) -> None:
        """Write events, waiting while the client is slow; cuts one that is too slow."""
        release = self._hold(self._abort)
        try:
            for batch in batches:
                to, pieces = self._request.protocol, self._pieces(batch)
                await send(pieces, to, self.write, costly=True, held_bytes=held_bytes)
        finally:
            release()

    def _pieces(self, events: Sequence[Event]) -> Iterator[Piece]:
        """Each is made when it is asked for."""
        if self._rendering.is_stored and len(events[0].stored.data) > LARGE_BYTES:
            self._first = False
            if self._count is not None:
                self._count.inc()
            yield from render.event_parts(self._rendering, events[0])
        else:
            yield self._lines(events)

    def _abort(self) -> None:
        tcp.abort(self._request.transport)

    def write_now(self, changes: Sequence[Change]) -> bool:
        """Buffer the changes as one chunk; False when none of them is for the client."""
        chunk = self._common_chunk(changes) if self._is_common else self._chunk(changes)
        if chunk:
            write_chunk(self._request, chunk)
        return bool(chunk)

    def _common_chunk(self, changes: Sequence[Change]) -> bytes:
        """The chunk that several watches send: only the first builds it, which saves each of the
        others 2 µs, and 3 to 4 µs with two changes.
        """
        first, last = changes[0], changes[-1]
        key = id(first), id(last), self._wanted.namespace, self._shown
        cached = self._latest_chunks.get(key)
        if cached is not None and cached[0] is first and cached[1] is last:
            if self._count is not None:
                self._count.inc(len(changes))
            return cached[2]
        chunk = self._chunk(changes)
        if len(self._latest_chunks) >= _LATEST_CHUNKS_MAX:
            self._latest_chunks.clear()
        self._latest_chunks[key] = first, last, chunk
        return chunk

    def _chunk(self, changes: Sequence[Change]) -> bytes:
        """The events framed for the wire; b"" if there are none."""
        lines = self._lines(list_watch.events_of(changes, self._wanted.selection))
        return framed(lines) if lines else b""

    def _lines(self, events: Sequence[Event]) -> bytes:
        if not self._rendering.is_plain:  # ages grow meanwhile
            self._rendering = self._rendering._replace(now=clock.utc_now())
        lines = []
        for event in events:
            lines.append(self._shared.line(self._rendering, event, first=self._first))
            self._first = False
        if self._count is not None and events:
            self._count.inc(len(events))
        return b"".join(lines)
