"""Objects as a `Table`: rows and columns that a client prints without knowing the kind.

The shape is that of `meta.k8s.io/v1`, the group clients have compiled in. The columns of the kinds
are in `columns`; records are raw JSON and may lack any field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from orch.wire import raw
from orch.wire.names import TABLE_API_VERSION
from orch.wire.tables import columns
from orch.wire.tables.layout import Layout

IncludeObject = Literal["Metadata", "Object", "None"]


def table_of(
    layout: Layout | str,
    objects: Sequence[Mapping[str, Any]],
    now: datetime,
    *,
    include_object: IncludeObject = "Metadata",
    list_metadata: Mapping[str, Any] | None = None,
    with_columns: bool = True,
) -> dict[str, Any]:
    """The Table of objects of the same kind, as JSON data that shares parts with the objects.

    `layout` is that of a kind, or the name of a kind that has one. `list_metadata` is the list's
    (`resourceVersion`, `continue`, …). A watch passes `with_columns=False` after its first event.
    """
    if isinstance(layout, str):
        layout = columns.layout_of(layout)
    return {
        "kind": "Table",
        "apiVersion": TABLE_API_VERSION,
        "metadata": dict(list_metadata or {}),
        "columnDefinitions": [column.to_wire() for column in layout.columns]
        if with_columns
        else [],
        "rows": [_row(layout, record, now, include_object) for record in objects],
    }


def _row(
    layout: Layout, record: Mapping[str, Any], now: datetime, include_object: IncludeObject
) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": layout.cells(record, now)}
    conditions = layout.conditions(record)
    if conditions:
        row["conditions"] = conditions
    if include_object == "Metadata":
        row["object"] = _for_row(partial_metadata(record))
    elif include_object == "Object":
        row["object"] = record
    return row


def _for_row(partial: dict[str, Any]) -> dict[str, Any]:
    """Without the record of who set which field, which is longer than all else of a row."""
    metadata = {n: value for n, value in partial["metadata"].items() if n != "managedFields"}
    return {**partial, "metadata": metadata}


def partial_metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    """An object reduced to its metadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": TABLE_API_VERSION,
        "metadata": raw.mapping(record, "metadata"),
    }
