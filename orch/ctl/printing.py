"""What commands write to standard output: aligned columns, YAML, JSON, names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from orch.ctl.discovery import Resource
from orch.ctl.failures import visible
from orch.wire import raw

FORMATS = ("wide", "json", "yaml", "name")
_PADDING = 3
_MIN_WIDTH = 6  # of a column with its padding


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows aligned in columns, without blanks at the end of a line."""
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(_MIN_WIDTH, max(map(len, c)) + _PADDING) for c in zip(*shown, strict=True)]
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]


def table_lines(
    table: Mapping[str, Any], *, wide: bool = False, namespaces: bool = False, prefix: str = ""
) -> list[str]:
    """The lines of a Table; `prefix` stands before each name (`pod/`)."""
    definitions = raw.records(table, "columnDefinitions")
    chosen = [n for n, c in enumerate(definitions) if wide or not raw.number(c, "priority")]
    rows = [[raw.text(definitions[n], "name").upper() for n in chosen]]
    if namespaces:
        rows[0].insert(0, "NAMESPACE")
    for record in raw.records(table, "rows"):
        cells = raw.value(record, "cells") or []
        row = [
            (prefix if raw.text(definitions[n], "format") == "name" else "") + _cell(cells, n)
            for n in chosen
        ]
        if namespaces:
            row.insert(0, raw.text(record, "object", "metadata", "namespace"))
        rows.append(row)
    return columns(rows)


def _cell(cells: Sequence[Any], number: int) -> str:
    """A cell as text; of several lines the first, as clients show them."""
    value = cells[number] if number < len(cells) else None
    first, *more = str("<none>" if value is None else value).splitlines() or [""]
    return f"{first}..." if more else first


def as_json(value: Any) -> str:
    import json  # four spaces, which orjson does not write

    return json.dumps(value, indent=4, ensure_ascii=False)


def as_yaml(value: Any) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(value, Dumper=dumper, allow_unicode=True, width=2**31 - 1)).rstrip("\n")


def print_object(record: Mapping[str, Any], resource: Resource, output: str, done: str) -> None:
    """One object in the form asked for; without a form, `kind/name done`."""
    shown = resource.shown(raw.text(record, "metadata", "name"))
    if output == "json":
        print(as_json(record))
    elif output == "yaml":
        print(as_yaml(record))
    else:
        print(visible(shown if output == "name" else f"{shown} {done}"))


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
