"""Access to raw JSON records, where any field may be missing or of the wrong type.

For code that displays objects; code that acts on them uses the typed records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def value(record: Any, *path: str) -> Any:
    """The value at a path of field names; None when any part of it is missing."""
    for name in path:
        if not isinstance(record, Mapping):
            return None
        record = record.get(name)
    return record


def text(record: Any, *path: str) -> str:
    """The text at a path; "" when there is none."""
    found = value(record, *path)
    return found if isinstance(found, str) else ""


def texts(record: Any, *path: str) -> tuple[str, ...]:
    """The texts of the list at a path; () when there is none."""
    found = value(record, *path)
    return tuple(t for t in found if isinstance(t, str)) if isinstance(found, list) else ()


def number(record: Any, *path: str) -> int:
    """The whole number at a path; 0 when there is none."""
    found = value(record, *path)
    return found if isinstance(found, int) else 0


def mapping(record: Any, *path: str) -> Mapping[str, Any]:
    """The object at a path; an empty one when there is none."""
    found = value(record, *path)
    return found if isinstance(found, Mapping) else {}


def records(record: Any, *path: str) -> list[Mapping[str, Any]]:
    """The objects of the list at a path; [] when there is none."""
    found = value(record, *path)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
