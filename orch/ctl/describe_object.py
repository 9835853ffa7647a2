"""The text of `orchctl describe` for kinds without a form of their own: every field; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orch.ctl import sheet
from orch.ctl.gotemplate_functions import text

# Not told: what the head shows already, and what only programs read.
_TOLD = ("name", "namespace", "labels", "annotations", "managedFields")
_ACRONYMS = ("API", "URL", "UID", "OSB", "GUID")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|-+")


def lines(record: Mapping[str, Any]) -> list[str]:
    """Everything but the events."""
    metadata = record.get("metadata")
    rest = {**record}
    if isinstance(metadata, Mapping):
        rest["metadata"] = {k: v for k, v in metadata.items() if k not in _TOLD}
    return [*sheet.head(record), *_members(rest, 0)]


def _members(record: Mapping[str, Any], level: int) -> list[str]:
    found: list[str] = []
    for name, value in sorted(record.items()):
        if isinstance(value, Mapping | list):
            found.append(sheet.line(f"{title(name)}:", level=level))
            found += _nested(value, level + 1)
        else:
            found.append(sheet.field(title(name), text(value), level))
    return found


def _nested(value: Mapping[str, Any] | list[Any], level: int) -> list[str]:
    if isinstance(value, Mapping):
        return _members(value, level)
    return [
        line
        for item in value
        for line in (
            _members(item, level)
            if isinstance(item, Mapping)
            else [sheet.line(text(item), level=level)]
        )
    ]


def title(name: str) -> str:
    """The words of a field's name apart, each with a capital: `startTime` is `Start Time`."""
    if not re.fullmatch(r"[A-Za-z-]+", name):
        return name
    words = _WORD.findall(name)
    return " ".join(
        word.upper() if word.upper() in _ACRONYMS else word[:1].upper() + word[1:] for word in words
    )
