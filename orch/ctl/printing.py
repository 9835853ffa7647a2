"""What commands write to standard output: aligned columns, YAML, JSON, names."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from orch.ctl.failures import visible
from orch.wire import raw

_PADDING = 3
_MIN_WIDTH = 6  # of a column with its padding


def columns(rows: Iterable[Sequence[str]], widths: list[int] | None = None) -> list[str]:
    """Rows aligned in columns, without blanks at the end of a line.

    `widths` are those of the lines before; they are brought up to date, so that rows of a table
    that comes bit by bit stay aligned.
    """
    shown = [[visible(cell) for cell in row] for row in rows]
    needed = [max(_MIN_WIDTH, max(map(len, c)) + _PADDING) for c in zip(*shown, strict=True)]
    if widths:
        needed = [max(pair) for pair in zip(widths, needed, strict=True)]
    if widths is not None:
        widths[:] = needed
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, needed, strict=True)).rstrip()
        for row in shown
    ]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What of a Table to show; `prefix` stands before each name (`pod/`)."""

    wide: bool = False
    namespaces: bool = False
    headers: bool = True
    prefix: str = ""
    label_columns: tuple[str, ...] = ()
    labels: bool = False


def table_rows(table: Mapping[str, Any], options: TableOptions) -> list[list[str]]:
    """The cells of a Table, with its header unless that is not wanted."""
    definitions = raw.records(table, "columnDefinitions")
    chosen = [n for n, c in enumerate(definitions) if options.wide or not raw.number(c, "priority")]
    rows = []
    if options.headers:
        rows.append(_header([raw.text(definitions[n], "name").upper() for n in chosen], options))
    for record in raw.records(table, "rows"):
        cells = raw.value(record, "cells") or []
        shown = [
            (options.prefix if raw.text(definitions[n], "format") == "name" else "")
            + _cell(cells, n)
            for n in chosen
        ]
        rows.append(_extended(shown, raw.mapping(record, "object", "metadata"), options))
    return rows


def _header(names: list[str], options: TableOptions) -> list[str]:
    keys = [key.rpartition("/")[2].upper() for key in options.label_columns]
    every = ["LABELS"] if options.labels else []
    return [*(["NAMESPACE"] if options.namespaces else []), *names, *keys, *every]


def _extended(shown: list[str], metadata: Mapping[str, Any], options: TableOptions) -> list[str]:
    labels = raw.mapping(metadata, "labels")
    row = [raw.text(metadata, "namespace")] if options.namespaces else []
    row += [*shown, *(str(labels.get(key, "")) for key in options.label_columns)]
    if options.labels:
        row.append(",".join(f"{k}={v}" for k, v in sorted(labels.items())) or "<none>")
    return row


def _cell(cells: Sequence[Any], number: int) -> str:
    """A cell as text; of several lines the first, as clients show them."""
    value = cells[number] if number < len(cells) else None
    first, *more = str("<none>" if value is None else value).splitlines() or [""]
    return f"{first}..." if more else first


def as_json(value: Any) -> str:
    import json  # four spaces, which orjson does not write

    return json.dumps(value, indent=4, ensure_ascii=False, sort_keys=True)


def as_yaml(value: Any) -> str:
    from orch.component import yaml_file  # slow to import, and needed when asked for only

    return yaml_file.dump(value)


def unmanaged(record: Mapping[str, Any]) -> dict[str, Any]:
    """An object without the bookkeeping of who set which field."""
    metadata = {k: v for k, v in raw.mapping(record, "metadata").items() if k != "managedFields"}
    return {**record, "metadata": metadata} if "metadata" in record else dict(record)


def list_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several objects as one `List`."""
    return {
        "apiVersion": "v1",
        "items": list(records),
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }


def canonical(value: Any) -> bytes:
    """JSON text that is the same for equal values."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def note(text: str) -> None:
    """A line for people on standard error, so that what scripts read stays clean."""
    print(text, file=sys.stderr)
