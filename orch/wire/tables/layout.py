"""The parts of a table: columns, the layout of a kind, and the cells that all kinds share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orch.wire import raw
from orch.wire.times import human_age, parse_time

Cell = str | int
Record = Mapping[str, Any]
UNKNOWN = "<unknown>"
NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `priority` 1 is shown only in the wide form."""

    name: str
    description: str
    priority: int = 0
    format: str = ""
    type: str = "string"

    def to_wire(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def _no_conditions(record: Record) -> list[dict[str, Any]]:
    return []


@dataclass(frozen=True, slots=True)
class Layout:
    """The table of a kind; `cells` returns a value per column, `conditions` those of the row."""

    columns: tuple[Column, ...]
    cells: Callable[[Record, datetime], list[Cell]]
    conditions: Callable[[Record], list[dict[str, Any]]] = _no_conditions


NAME = Column("Name", "Name of the object, unique within its kind and namespace.", format="name")
AGE = Column("Age", "Time since the object was created.")


def name(record: Record) -> str:
    return raw.text(record, "metadata", "name")


def age(record: Record, now: datetime) -> str:
    return since(raw.text(record, "metadata", "creationTimestamp"), now)


def since(moment: str, now: datetime) -> str:
    """The age of a time on the wire; `<unknown>` when it is missing or cannot be read."""
    try:
        return human_age((now - parse_time(moment)).total_seconds())
    except ValueError:
        return UNKNOWN


def last_seen(event: Mapping[str, Any]) -> str:
    """When it was last seen, as RFC 3339 text, which sorts by time."""
    return (
        raw.text(event, "series", "lastObservedTime")
        or raw.text(event, "lastTimestamp")
        or raw.text(event, "eventTime")
    )


def seen(event: Mapping[str, Any], now: datetime) -> str:
    """The age, and of a repeated event the count: `5s (x3 over 2m)`."""
    age = since(last_seen(event), now)
    count = raw.number(event, "series", "count") or raw.number(event, "count")
    if count < 2:
        return age
    first = raw.text(event, "firstTimestamp") or raw.text(event, "eventTime")
    return f"{age} (x{count} over {since(first, now)})"
