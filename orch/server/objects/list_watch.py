"""List and watch objects from memory: pages, past revisions, and changes as one client's events.

A change passes the client's selectors: an object that comes to match is ADDED, an object that no
longer matches is DELETED, whatever happened to it. Writing events out is the caller's business.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Literal

from orch.server import turns
from orch.server.objects.backend import Backend
from orch.server.objects.document import key_of, prefix_of
from orch.server.objects.options import Continue, ListOptions
from orch.server.objects.selection import Selection, concern_of
from orch.server.storage.base import Change, Compacted, Hold, Snapshot, Stored, Watch
from orch.wire.errors import ApiError, Cause, expired
from orch.wire.records.kinds import NAMESPACES

_REFERENCE_BYTES = 8  # to an object that is to be sent
_START = "\0"  # after a key, and before the next one
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result."
    " You can start a new list without the continue parameter, or use the continue token in this"
    " response to retrieve the remainder of the results; the latter is not consistent."
)


@dataclass(frozen=True, slots=True)
class Page:
    """`remaining` None: not known, or nothing remains."""

    items: Sequence[Stored]
    revision: int
    continuation: str = ""
    remaining: int | None = None

    @property
    def held_bytes(self) -> int:
        """What it takes at most until it is sent, beside the objects."""
        return _REFERENCE_BYTES * len(self.items)


async def list_objects(
    backend: Backend, selection: Selection, namespace: str, options: ListOptions
) -> Page:
    """The selected objects of a namespace (or, with "", of all); ApiError 410, 504."""
    prefix = prefix_of(selection.strategy.resource, namespace)
    snapshot = await _snapshot(backend, prefix, namespace, options)
    items: Sequence[Stored] = snapshot.items
    if options.continuation:
        start = prefix + options.continuation.start
        items = items[bisect_left(items, start, key=attrgetter("key")) :]
    if not selection.everything:
        items = [stored async for stored in turns.in_turns(items) if selection.matches(stored)]
    if not options.limit or len(items) <= options.limit:
        return Page(items, snapshot.revision)
    shown = items[: options.limit]
    start = shown[-1].key[len(prefix) :] + _START
    remaining = len(items) - len(shown) if selection.everything else None
    return Page(shown, snapshot.revision, Continue(snapshot.revision, start).encode(), remaining)


def require_revision(backend: Backend, revision: int | None) -> None:
    """ApiError 504 for a revision that storage has not reached."""
    newest = backend.storage.revision
    if revision is not None and revision > newest:
        text = f"Too large resource version: {revision}, current: {newest}"
        cause = Cause("ResourceVersionTooLarge", "Too large resource version")
        raise ApiError(504, "Timeout", text, causes=(cause,), retry_after_s=1)


def _require_same(backend: Backend, namespace: str, revision: int) -> None:
    """ApiError 410 where it was deleted since: its name may be somebody else's now. Compacted."""
    key = key_of(NAMESPACES, "", namespace)
    changes = backend.storage.past(key, revision).changes if namespace else ()
    if any(change.key == key and change.current is None for change in changes):
        raise expired(f"the namespace {namespace} was another one at revision {revision}")


async def _snapshot(backend: Backend, prefix: str, within: str, options: ListOptions) -> Snapshot:
    require_revision(backend, options.resource_version)
    revision = options.resource_version if options.exact else None
    if options.continuation:
        asked = options.continuation.revision
        require_revision(backend, asked)
        revision = asked if asked > 0 else None
    try:
        if revision is None or revision == backend.storage.revision:
            return backend.storage.list(prefix)
        _require_same(backend, within, revision)
        past = backend.storage.past(prefix, revision)
    except Compacted as error:
        if options.continuation is None:
            raise expired(str(error)) from None
        rest = Continue(-1, options.continuation.start)
        raise expired(_CONTINUE_EXPIRED, rest.encode()) from None
    return past.snapshot() if past.size <= turns.SMALL else await turns.aside(past.snapshot)


EventType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Event:
    """`revision` is that of the change, at which `stored` is served."""

    type: EventType
    stored: Stored
    revision: int


@dataclass(slots=True)
class Opened:
    """An open watch: the objects that are there already, then the changes of `watch`."""

    initial: Sequence[Stored]
    initial_revision: int
    watch: Watch
    hold: Hold  # storage's, for whoever sends events to a slow client

    @property
    def held_bytes(self) -> int:
        """What `initial` takes at most, beside the objects."""
        return _REFERENCE_BYTES * len(self.initial)


async def open_watch(
    backend: Backend, selection: Selection, namespace: str, options: ListOptions
) -> Opened:
    """ApiError 410 when the revision is no longer held, 504 when it is in the future."""
    require_revision(backend, options.resource_version)
    prefix = prefix_of(selection.strategy.resource, namespace)
    from_revision = options.resource_version
    existing: Sequence[Stored] = ()
    wants_initial = options.send_initial_events
    if wants_initial or (wants_initial is None and from_revision is None):
        snapshot = backend.storage.list(prefix)
        existing, from_revision = snapshot.items, snapshot.revision
    elif from_revision is None:
        from_revision = backend.storage.revision
    try:
        _require_same(backend, namespace, from_revision)
        watch = backend.storage.watch(prefix, from_revision, concern_of(selection))
    except Compacted as error:
        raise expired(str(error)) from None
    try:
        initial = existing
        if not selection.everything:
            initial = [s async for s in turns.in_turns(existing) if selection.matches(s)]
    except BaseException:
        watch.close()
        raise
    return Opened(initial, from_revision, watch, partial(backend.storage.hold, prefix))


def events_of(changes: Sequence[Change], selection: Selection) -> list[Event]:
    """The changes as events for a client with these selectors."""
    return [event for change in changes if (event := as_event(change, selection))]


def as_event(change: Change, selection: Selection) -> Event | None:
    """A change as an event for a client with these selectors; None when it is not concerned."""
    current, previous = change.current, change.previous
    is_in = current is not None and selection.matches(current)
    was_in = previous is not None and selection.matches(previous)
    if is_in and current is not None:
        return Event("MODIFIED" if was_in else "ADDED", current, change.revision)
    if was_in and previous is not None:
        return Event("DELETED", previous, change.revision)
    return None
