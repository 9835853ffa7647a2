"""List objects from memory: the newest, those of a past revision, and page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orch.server.resources.backend import Backend
from orch.server.resources.document import prefix_of
from orch.server.resources.options import Continue, ListOptions
from orch.server.resources.selection import Selection
from orch.server.storage.base import Compacted, Snapshot, Stored
from orch.wire.errors import ApiError, Cause, expired

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


def list_objects(
    backend: Backend, selection: Selection, namespace: str, options: ListOptions
) -> Page:
    """What is selected in a namespace (or, with "", everywhere); ApiError 410, 504."""
    prefix = prefix_of(selection.strategy.resource, namespace)
    snapshot = _snapshot(backend, prefix, options)
    items: Sequence[Stored] = snapshot.items
    if options.continuation:
        start = prefix + options.continuation.start
        items = [stored for stored in items if stored.key >= start]
    if not selection.everything:
        items = [stored for stored in items if selection.matches(stored)]
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


def _snapshot(backend: Backend, prefix: str, options: ListOptions) -> Snapshot:
    require_revision(backend, options.resource_version)
    revision = options.resource_version if options.exact else None
    if options.continuation:
        asked = options.continuation.revision
        require_revision(backend, asked)
        revision = asked if asked > 0 else None
    try:
        return backend.storage.list(prefix, revision)
    except Compacted as error:
        if options.continuation is None:
            raise expired(str(error)) from None
        rest = Continue(-1, options.continuation.start)
        raise expired(_CONTINUE_EXPIRED, rest.encode()) from None
