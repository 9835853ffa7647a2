"""Events: asking for them, the order they happened in, and how long ago that was."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orch.ctl.api import Api, given, segment
from orch.wire import raw
from orch.wire.tables.layout import since

Event = Mapping[str, Any]


def collection(namespace: str) -> str:
    """The path of the events of a namespace, or with "" of all."""
    return f"/api/v1/namespaces/{segment(namespace)}/events" if namespace else "/api/v1/events"


async def about(api: Api, namespace: str, fields: Mapping[str, str]) -> list[Event]:
    """The events whose fields have these values, the latest last; empty values do not count."""
    selector = ",".join(f"{key}={value}" for key, value in given(**fields).items())
    listed = await api.items(collection(namespace), given(fieldSelector=selector))
    return sorted(listed, key=last_seen)


def last_seen(event: Event) -> str:
    """When it was last seen, as RFC 3339 text, which sorts by time."""
    return (
        raw.text(event, "series", "lastObservedTime")
        or raw.text(event, "lastTimestamp")
        or raw.text(event, "eventTime")
    )


def seen(event: Event, now: datetime) -> str:
    """The age; of one that was seen often also how often: `5s (x3 over 2m)`."""
    age = since(last_seen(event), now)
    count = raw.number(event, "series", "count") or raw.number(event, "count")
    if count < 2:
        return age
    first = raw.text(event, "firstTimestamp") or raw.text(event, "eventTime")
    return f"{age} (x{count} over {since(first, now)})"
