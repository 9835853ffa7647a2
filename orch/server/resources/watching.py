"""Watch objects: storage's changes made into the events one client asked for.

A change is looked at through the client's selectors: an object that comes to match is ADDED, one
that no longer does is DELETED, whatever happened to it. How an event is written is the caller's
business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from orch.server.resources.backend import Backend
from orch.server.resources.document import prefix_of
from orch.server.resources.listing import require_revision
from orch.server.resources.options import ListOptions
from orch.server.resources.selection import Selection, concern_of
from orch.server.storage.base import Change, Compacted, Stored, Watch
from orch.wire.errors import expired

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Event:
    """`revision` is the change's own, which is what `stored` is served at."""

    type: EventType
    stored: Stored
    revision: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A started watch: what is there already, then what `watch` brings."""

    initial: list[Event]
    initial_revision: int
    watch: Watch


def open_watch(
    backend: Backend, selection: Selection, namespace: str, options: ListOptions
) -> Opened:
    """ApiError 410 when the asked revision is no longer held, 504 when it is yet to come."""
    require_revision(backend, options.resource_version)
    prefix = prefix_of(selection.strategy.resource, namespace)
    from_revision = options.resource_version
    initial: list[Event] = []
    wants_initial = options.send_initial_events
    if wants_initial or (wants_initial is None and from_revision is None):
        snapshot = backend.storage.list(prefix)
        initial = [
            Event("ADDED", stored, stored.revision)
            for stored in snapshot.items
            if selection.matches(stored)
        ]
        from_revision = snapshot.revision
    elif from_revision is None:
        from_revision = backend.storage.revision
    try:
        watch = backend.storage.watch(prefix, from_revision, concern_of(selection))
    except Compacted as error:
        raise expired(str(error)) from None
    return Opened(initial, from_revision, watch)


def events_of(changes: Sequence[Change], selection: Selection) -> list[Event]:
    """What changes are to a client with these selectors."""
    return [event for change in changes if (event := as_event(change, selection))]


def as_event(change: Change, selection: Selection) -> Event | None:
    """What a change is to a client with these selectors; None when nothing."""
    current, previous = change.current, change.previous
    is_in = current is not None and selection.matches(current)
    was_in = previous is not None and selection.matches(previous)
    if is_in and current is not None:
        return Event("MODIFIED" if was_in else "ADDED", current, change.revision)
    if was_in and previous is not None:
        return Event("DELETED", previous, change.revision)
    return None
