"""Text in columns for `orchctl describe`, laid out like kubectl's (Go's `text/tabwriter`); pure.

A line is made of cells; a column is as wide as its cells in neighbouring lines, and the last cell
of a line is not padded. Times are local.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from orch.component.terminal import visible
from orch.wire import raw
from orch.wire.names import ANNOTATION_LAST_APPLIED
from orch.wire.tables.layout import NONE
from orch.wire.times import parse_time

_PADDING = 2
_MAX_ANNOTATION = 140
_HIDDEN_ANNOTATIONS = (
    ANNOTATION_LAST_APPLIED, "kubectl.kubernetes.io/last-applied-configuration",
)  # fmt: skip
_NEVER = "Mon, 01 Jan 0001 00:00:00 +0000"  # Go's zero time


class TabWriter:
    """Collects lines; `text` aligns them. `level` indents a line by two spaces each."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []

    def line(self, *cells: str, level: int = 0) -> None:
        """A last cell of several lines is as many rows, stacked in its column."""
        *before, last = ("  " * level + cells[0], *cells[1:])
        first, *more = last.split("\n")
        self._rows.append([*before, first])
        indent = "  " * level if not before else ""
        self._rows += [[*("" for _ in before), indent + text] for text in more]

    def field(self, title: str, value: str, level: int = 0) -> None:
        self.line(f"{title}:", value, level=level)

    def optional(self, title: str, value: str, level: int = 0) -> None:
        """A field that is left out when it is empty."""
        if value:
            self.field(title, value, level)

    def listed(self, title: str, values: Sequence[str]) -> None:
        """A field with a line per value; `<none>` without any."""
        first, *more = values or [NONE]
        self.field(title, first)
        for value in more:
            self.line("", value)

    def pairs(self, title: str, mapping: Mapping[str, Any]) -> None:
        """`key=value` lines, sorted: the form of labels and selectors."""
        self.listed(title, [f"{key}={value}" for key, value in sorted(mapping.items())])

    def header(self, names: Sequence[str], *, level: int = 1) -> None:
        """The head of a table, underlined."""
        self.line(*names, level=level)
        self.line(*("-" * len(name) for name in names), level=level)

    def labels(self, record: Mapping[str, Any]) -> None:
        """Labels and annotations, without those that only programs read."""
        metadata = raw.mapping(record, "metadata")
        shown = [
            text
            for key, value in sorted(raw.mapping(metadata, "annotations").items())
            if key not in _HIDDEN_ANNOTATIONS
            for text in _annotation(key, str(value).removesuffix("\n"))
        ]
        self.pairs("Labels", raw.mapping(metadata, "labels"))
        self.listed("Annotations", shown)

    def text(self) -> str:
        """The lines, safe for a terminal."""
        rows = [[visible(cell.replace("\x1b", "^[")) for cell in row] for row in self._rows]
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


def _annotation(key: str, value: str) -> Iterable[str]:
    """`key: value`; a long value has lines of its own, which are shortened."""
    if len(value) <= _MAX_ANNOTATION and "\n" not in value:
        return [f"{key}: {value}"]
    return [f"{key}:", *(f"  {_shortened(text.strip())}" for text in value.split("\n"))]


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_ANNOTATION else f"{text[:_MAX_ANNOTATION]}..."


def local_time(text: str) -> str:
    """`Sat, 31 Jan 2026 12:00:00 +0000`, in the local zone; what is no time, as it came."""
    if not text:
        return _NEVER
    try:
        return parse_time(text).astimezone().strftime("%a, %d %b %Y %H:%M:%S %z")
    except (ValueError, OverflowError):  # the latter for a time that is none in the local zone
        return text
