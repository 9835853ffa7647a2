"""Events: occurrences about an object, kept for an hour; pure.

The core group and the events group have the same events, in other words. As in the reference, an
event with an `eventTime` has to say who reports what, and the events group takes no others, and
changes of nothing but the series.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from orch.server.strategy.base import Document, Strategy, text_at
from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.names import DEFAULT_NAMESPACE, SYSTEM_NAMESPACE
from orch.wire.records.kinds import EVENT_REPORTS, EVENTS
from orch.wire.tables import columns
from orch.wire.tables.layout import Cell, Layout, Record
from orch.wire.times import parse_time
from orch.wire.validation import qualified_name_problems

LIFETIME = timedelta(hours=1)
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_FOR_CLUSTER = (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE)  # where events about cluster-wide objects go
_WORD_MAX, _NOTE_MAX = 128, 1024  # bytes
_SERIES_MIN = 2
_TYPES = ("Normal", "Warning")
_DEPRECATED = (
    "deprecatedSource",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedCount",
)
_FIXED = (
    "regarding", "reason", "note", "type", "action", "related", "reportingController",
    "reportingInstance", *_DEPRECATED,
)  # fmt: skip
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
    yield from _common_causes(new, "involvedObject", "reportingComponent", "message")


def _common_causes(new: Document, about: str, reporter: str, text: str) -> Iterator[Cause]:
    """The last three are names of fields."""
    path, namespace = f"{about}.namespace", new["metadata"].get("namespace", "")
    involved = text_at(new, path)
    mismatch = causes.invalid_value(path, involved, "does not match event.namespace")
    if involved and involved != namespace:
        yield mismatch
    if not new.get("eventTime"):
        return
    if not involved and namespace not in _FOR_CLUSTER:
        yield mismatch
    reported_by = text_at(new, reporter)
    if not reported_by:
        yield causes.required(reporter)
    else:
        yield from causes.invalid_values(
            reporter, reported_by, qualified_name_problems(reported_by)
        )
    for field in ("reportingInstance", "action", "reason"):
        if not new.get(field):
            yield causes.required(field)
    for field in ("reportingInstance", "action", "reason", text):
        most = _NOTE_MAX if field == text else _WORD_MAX
        if len(text_at(new, field).encode()) > most:
            yield causes.invalid_value(field, "", f"can have at most {most} characters")


def _validate_report(new: Document, old: Document | None) -> Iterator[Cause]:
    yield from _common_causes(new, "regarding", "reportingController", "note")
    if old is None or new.get("series") != old.get("series"):
        yield from _series_causes(new)
    if old is not None:
        for field in _FIXED:
            if (new.get(field) or None) != (old.get(field) or None):
                yield causes.invalid_value(field, new.get(field), "field is immutable")
        if _moment(new, "eventTime") != _moment(old, "eventTime"):
            yield causes.invalid_value("eventTime", new.get("eventTime"), "field is immutable")
        return
    if not new.get("eventTime"):
        yield causes.required("eventTime")
    if new.get("type") not in _TYPES:
        yield causes.invalid_value("type", "", f"has invalid value: {text_at(new, 'type')}")
    for field in _DEPRECATED:
        if any(new[field].values()) if isinstance(new.get(field), dict) else new.get(field):
            yield causes.invalid_value(field, "", "needs to be unset")


def _series_causes(event: Document) -> Iterator[Cause]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < _SERIES_MIN:
        text = f"should be at least {_SERIES_MIN}"
        yield causes.invalid_value("series.count", series.get("count"), text)
    if not series.get("lastObservedTime"):
        yield causes.required("series.lastObservedTime")


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
    records_managers=False,
)


def _report_cells(record: Record, now: datetime) -> list[Cell]:
    """Those of the event that is stored."""
    form = EVENT_REPORTS.stored_form
    stored = form.to_stored(dict(record), EVENT_REPORTS.api_version) if form else record
    return _EVENT_LAYOUT.cells(stored, now)


_EVENT_LAYOUT = columns.layout_of(EVENTS.kind)
REPORT_STRATEGY = Strategy(
    EVENT_REPORTS,
    paths=(
        *(f"regarding.{name}" for name in _INVOLVED),
        "reason",
        "reportingController",
        "type",
    ),
    validate=_validate_report,
    records_managers=False,
    shown_as=Layout(_EVENT_LAYOUT.columns, _report_cells),
)
