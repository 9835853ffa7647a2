"""Events: occurrences about an object, kept for an hour; pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from orch.server.strategy.base import Document, Strategy, text_at
from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.records.kinds import EVENTS
from orch.wire.times import parse_time

LIFETIME = timedelta(hours=1)
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_SEEN_AT = (
    "series.lastObservedTime",
    "lastTimestamp",
    "eventTime",
    "firstTimestamp",
    "metadata.creationTimestamp",
)


def last_seen(event: Document, now: datetime) -> datetime | None:
    """The last occurrence; None without a readable time. A time to come is the reporter's mistake,
    or its way to have the event kept: it counts as `now`.
    """
    moments = [moment for path in _SEEN_AT if (moment := _moment(event, path))]
    return min(now, max(moments)) if moments else None


def _moment(event: Document, path: str) -> datetime | None:
    try:
        return parse_time(text_at(event, path))
    except ValueError:
        return None


def _validate(new: Document, _old: Document | None) -> Iterator[Cause]:
    path = "involvedObject.namespace"
    involved = text_at(new, path)
    if involved and involved != new["metadata"].get("namespace", ""):
        yield causes.invalid_value(path, involved, "does not match event.namespace")


STRATEGY = Strategy(
    EVENTS,
    paths=(
        *(f"involvedObject.{name}" for name in _INVOLVED),
        "reason",
        "reportingComponent",
        "source.component",
        "type",
    ),
    aliases={"source": "source.component"},
    validate=_validate,
)
