"""The layout of `orchctl describe`: titled fields in aligned columns, indented tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orch.ctl import printing
from orch.ctl.failures import visible
from orch.wire.table_layout import NONE

Value = str | Sequence[str]


def fields(pairs: Iterable[tuple[str, Value]], *, indent: int = 0) -> list[str]:
    """`Key:  value` lines, values aligned; a value of several lines continues below itself."""
    listed = [(key, [value] if isinstance(value, str) else list(value)) for key, value in pairs]
    width = max((len(key) for key, _ in listed), default=0) + 3
    lines = []
    for key, values in listed:
        head, *more = [visible(value) for value in values] or [NONE]
        lines.append(f"{f'{key}:':{width}}{head or NONE}".rstrip())
        lines += [" " * width + value for value in more]
    return indented(lines, indent)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A titled table with a line under its header; `Title:  <none>` without rows."""
    if not rows:
        return [f"{title}:  {NONE}"]
    rule = ["-" * len(name) for name in header]
    return [f"{title}:", *indented(printing.columns([header, rule, *rows]), 2)]


def titled(title: str, pairs: Iterable[tuple[str, Value]]) -> list[str]:
    """Fields under a title."""
    lines = fields(pairs, indent=2)
    return [f"{title}:", *lines] if lines else [f"{title}:  {NONE}"]


def pairs_of(mapping: Mapping[str, Any]) -> list[str]:
    """`key=value`, sorted: the form of labels and annotations."""
    return [f"{key}={value}" for key, value in sorted(mapping.items())]


def title(name: str) -> str:
    """The words of a field's name apart, each with a capital: `startTime` is `Start Time`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name[:1].upper() + name[1:])


def shown_lines(text: str) -> list[str]:
    """The lines of a text, safe for a terminal."""
    return [visible(line) for line in text.splitlines()]


def indented(lines: Iterable[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]
