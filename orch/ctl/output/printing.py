"""Text for standard output: aligned columns, the server's tables, YAML and JSON."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from orch.component.process.clock import utc_now
from orch.component.terminal import visible
from orch.ctl.discovery import Resource
from orch.ctl.failures import WrongUsage
from orch.ctl.selection import Selected
from orch.wire import jsonpath, raw
from orch.wire.quantity import to_milli

T = TypeVar("T")
_PADDING = 3
_MIN_WIDTH = 6  # of a column with its padding


def columns(rows: Iterable[Sequence[str]], widths: list[int] | None = None) -> list[str]:
    """Rows aligned in columns, without blanks at the end of a line.

    `widths` are those of the lines before; they are updated, so that the rows of a table that
    arrives piece by piece stay aligned.
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
    """Which parts of a Table to show; `prefix` stands before each name (`pod/`)."""

    wide: bool = False
    namespaces: bool = False
    headers: bool = True
    prefix: str = ""
    label_columns: tuple[str, ...] = ()
    labels: bool = False


def table_rows(table: Mapping[str, Any], options: TableOptions) -> list[list[str]]:
    """The cells of a Table, below its header unless the options leave that out."""
    definitions = raw.records(table, "columnDefinitions")
    kept = [n for n, c in enumerate(definitions) if options.wide or not raw.number(c, "priority")]
    rows = []
    if options.headers:
        names = [raw.text(definitions[n], "name").upper() for n in kept]
        keys = [key.rpartition("/")[2].upper() for key in options.label_columns]
        rows.append(_row(options, "NAMESPACE", [*names, *keys], "LABELS"))
    for record in raw.records(table, "rows"):
        cells = raw.value(record, "cells")
        shown = [
            (options.prefix if raw.text(definitions[n], "format") == "name" else "")
            + _cell(cells, n)
            for n in kept
        ]
        metadata = raw.mapping(record, "object", "metadata")
        labels = raw.mapping(metadata, "labels")
        shown += [str(labels.get(key, "")) for key in options.label_columns]
        every = ",".join(f"{k}={v}" for k, v in sorted(labels.items())) or "<none>"
        rows.append(_row(options, raw.text(metadata, "namespace"), shown, every))
    return rows


def _row(options: TableOptions, namespace: str, cells: list[str], labels: str) -> list[str]:
    before, after = [namespace] if options.namespaces else [], [labels] if options.labels else []
    return [*before, *cells, *after]


def _cell(cells: Any, number: int) -> str:
    """A cell as text; the first of several lines, as other clients show them."""
    value = cells[number] if isinstance(cells, list) and number < len(cells) else None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    first, *more = ("<none>" if value is None else text).splitlines() or [""]
    return f"{first}..." if more else first


def as_table(answer: Mapping[str, Any], target: Selected) -> dict[str, Any]:
    """The server's Table; one made here when the server sent plain objects."""
    if answer.get("kind") == "Table":
        return {**answer, "rows": answer.get("rows") or []}
    from orch.wire.tables.tables import table_of  # slow to import, and seldom needed

    objects = [answer] if target.name else raw.records(answer, "items")
    metadata = raw.mapping(answer, "metadata")
    return table_of(target.resource.kind, objects, utc_now(), list_metadata=metadata)


def table_options(resource: Resource, args: argparse.Namespace, *, several: bool) -> TableOptions:
    """How the options of `get` want the table of a type to look."""
    return TableOptions(
        wide=args.output.name == "wide",
        namespaces=args.all_namespaces and resource.namespaced,
        headers=not args.no_headers,
        prefix=f"{resource.label()}/" if several or args.show_kind else "",
        label_columns=tuple(key for text in args.label_columns for key in text.split(",") if key),
        labels=args.show_labels,
    )


def items_of(answer: Mapping[str, Any], target: Selected) -> list[dict[str, Any]]:
    """The objects of an answer, each with its apiVersion and kind, which lists leave out."""
    if target.name:
        return [dict(answer)]
    kind = {"apiVersion": target.resource.api_version, "kind": target.resource.kind}
    return [{**kind, **item} for item in raw.records(answer, "items")]


def report_nothing(found: Sequence[Selected]) -> None:
    """Say on standard error that there was nothing to show."""
    namespace = next((target.namespace for target in found if target.namespace), "")
    note(f"No resources found{f' in {namespace} namespace.' if namespace else ''}")


def sort_by_path(items: Iterable[T], path: str, *, record_of: Callable[[T], Any]) -> list[T]:
    """The items by the first value at a JSONPath of their records; those without a value first.

    Numbers and quantities are ordered by their amount, everything else as text.
    """
    try:
        nodes = jsonpath.relaxed(path)
    except jsonpath.JsonPathError as error:
        raise WrongUsage(f"--sort-by: {error}") from None
    return sorted(items, key=lambda item: _sort_key(nodes, record_of(item)))


def _sort_key(nodes: tuple[jsonpath.Node, ...], record: Any) -> tuple[int, float, str]:
    try:
        value = next(iter(jsonpath.values(nodes, record)), None)
    except jsonpath.JsonPathError:
        value = None
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    if not isinstance(value, str):
        return (3, 0.0, jsonpath.text(value))
    try:
        return (1, to_milli(value) / 1000, "")
    except ValueError:
        return (2, 0.0, value)


# What JSON or YAML leaves as it is, and terminals obey: C1 controls, and what turns text round.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def as_json(value: Any) -> str:
    text = json.dumps(value, indent=4, ensure_ascii=False, sort_keys=True)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_yaml(value: Any) -> str:
    from orch.component import yaml_file  # slow to import, and only needed when asked for

    text = yaml_file.dump(value)
    return yaml_file.dump(value, only_ascii=True) if _OBEYED.search(text) else text


def shown(record: Mapping[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """An object without the record of who set which field, unless --show-managed-fields."""
    if args.show_managed_fields or "metadata" not in record:
        return dict(record)
    metadata = {k: v for k, v in raw.mapping(record, "metadata").items() if k != "managedFields"}
    return {**record, "metadata": metadata}


def list_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several objects as one `List`."""
    metadata = {"resourceVersion": ""}
    return {"apiVersion": "v1", "items": list(records), "kind": "List", "metadata": metadata}


def note(text: str) -> None:
    """A line for people on standard error: standard output is for what scripts read."""
    print(visible(text), file=sys.stderr)
