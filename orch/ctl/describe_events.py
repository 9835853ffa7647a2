"""The events of an object in the text of `orchctl describe`; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from orch.ctl import sheet
from orch.wire import raw
from orch.wire.tables.layout import NONE, since

_HEADER = ("Type", "Reason", "Age", "From", "Message")
_RULE = ("----", "------", "----", "----", "-------")


def lines(events: Iterable[Mapping[str, Any]], now: datetime) -> list[str]:
    """A table, the latest last."""
    listed = sorted(events, key=lambda event: raw.text(event, "lastTimestamp"))
    if not listed:
        return [sheet.field("Events", NONE)]
    rows = (_HEADER, _RULE, *(_row(event, now) for event in listed))
    return ["Events:", *(sheet.line(*row, level=1) for row in rows)]


def _row(event: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    component = raw.text(event, "source", "component") or raw.text(event, "reportingComponent")
    message = raw.text(event, "message").strip()
    kind, reason = raw.text(event, "type"), raw.text(event, "reason")
    return kind, reason, _age(event, now), component, message


def _age(event: Mapping[str, Any], now: datetime) -> str:
    """How long ago; of one that was seen often `5s (x3 over 2m)`."""
    first = since(raw.text(event, "eventTime") or raw.text(event, "firstTimestamp"), now)
    if series := raw.mapping(event, "series"):
        last = since(raw.text(series, "lastObservedTime"), now)
        return f"{last} (x{raw.number(series, 'count')} over {first})"
    count = raw.number(event, "count")
    if count > 1:
        return f"{since(raw.text(event, 'lastTimestamp'), now)} (x{count} over {first})"
    return first
