"""The layout of `orchctl describe`: lines of cells, aligned in columns when they are shown.

It is that of kubectl's describers: a cell ends with a tab, a column reaches as far as its cells
follow one another line by line (Go's `text/tabwriter`), times are local. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from orch.ctl.failures import visible
from orch.wire import raw
from orch.wire.names import ANNOTATION_LAST_APPLIED
from orch.wire.tables.layout import NONE
from orch.wire.times import parse_time

_PADDING = 2
_MAX_ANNOTATION = 140  # bytes; longer ones have lines of their own, cut there
_HIDDEN_ANNOTATIONS = (
    ANNOTATION_LAST_APPLIED, "kubectl.kubernetes.io/last-applied-configuration",
)  # fmt: skip
_NEVER = "Mon, 01 Jan 0001 00:00:00 +0000"  # Go's zero time


def line(*cells: str, level: int = 0) -> str:
    """A line of cells; all but the last are padded to the width of their column."""
    return "  " * level + "\t".join(cells)


def field(title: str, value: str, level: int = 0) -> str:
    return line(f"{title}:", value, level=level)


def optional(title: str, value: str, level: int = 0) -> list[str]:
    """A field that is left out when it is empty."""
    return [field(title, value, level)] if value else []


def listed(title: str, values: Sequence[str]) -> list[str]:
    """A field of several lines; `<none>` without any."""
    first, *more = values or [NONE]
    return [field(title, first), *(line("", value) for value in more)]


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A titled table with a line under its header, also when it has no rows."""
    rule = ["-" * len(name) for name in header]
    return [f"{title}:", *(line(*row, level=1) for row in (header, rule, *rows))]


def pairs(title: str, mapping: Mapping[str, Any]) -> list[str]:
    """`key=value` lines, sorted: the form of labels and selectors."""
    return listed(title, [f"{key}={value}" for key, value in sorted(mapping.items())])


def head(record: Mapping[str, Any], *, namespaced: bool = True) -> list[str]:
    """Name, namespace, labels and annotations."""
    metadata = raw.mapping(record, "metadata")
    namespace = [field("Namespace", raw.text(metadata, "namespace"))] if namespaced else []
    return [field("Name", raw.text(metadata, "name")), *namespace, *marks(record)]


def marks(record: Mapping[str, Any]) -> list[str]:
    """Labels and annotations, without what only programs read."""
    metadata = raw.mapping(record, "metadata")
    told = [
        text
        for key, value in sorted(raw.mapping(metadata, "annotations").items())
        if key not in _HIDDEN_ANNOTATIONS
        for text in _annotation(key, str(value).removesuffix("\n"))
    ]
    return [*pairs("Labels", raw.mapping(metadata, "labels")), *listed("Annotations", told)]


def _annotation(key: str, value: str) -> list[str]:
    if len(f"{key}: {value}".encode()) <= _MAX_ANNOTATION and "\n" not in value:
        return [f"{key}: {value}"]
    return [f"{key}:", *(f"  {shortened(text, _MAX_ANNOTATION - 2)}" for text in value.split("\n"))]


def shortened(text: str, bound_bytes: int) -> str:
    """A text with `...` in the place of what is beyond a bound; no character is cut in two."""
    encoded = text.encode()
    if len(encoded) <= bound_bytes:
        return text
    return f"{encoded[:bound_bytes].decode(errors='ignore')}..."


def moment(text: str) -> str:
    """`Sat, 31 Jan 2026 12:00:00 +0000`, in the local zone; what is no time, as it came."""
    if not text:
        return _NEVER
    try:
        return parse_time(text).astimezone().strftime("%a, %d %b %Y %H:%M:%S %z")
    except ValueError:
        return text


def aligned(lines: Iterable[str]) -> str:
    """The text to print, safe for a terminal; texts of several lines are as many lines."""
    rows = [[_safe(cell) for cell in row.split("\t")] for row in "\n".join(lines).split("\n")]
    for column in range(max(map(len, rows)) - 1):
        _align(rows, column)
    return "\n".join("".join(row).rstrip() for row in rows)


def _align(rows: list[list[str]], column: int) -> None:
    for is_block, run in groupby(rows, key=lambda row: len(row) - 1 > column):
        if is_block:
            block = list(run)
            width = max(len(row[column]) for row in block) + _PADDING
            for row in block:
                row[column] = row[column].ljust(width)


def _safe(text: str) -> str:
    return visible(text.replace("\x1b", "^["))
