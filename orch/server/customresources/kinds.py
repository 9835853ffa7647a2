"""The strategies of a kind that users define, one for each served version; pure.

What differs from a kind of the table is all here: fields and their rules come from a structural
schema instead of a record. No other room knows which of the kinds are such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from orch.server.request.bodies import too_large
from orch.server.strategy.base import Document, Strategy, keep
from orch.server.strategy.definitions import storage_version
from orch.wire import jsonpath
from orch.wire.errors import Cause
from orch.wire.managed.field_sets import NOTHING
from orch.wire.patch.patch import count_values
from orch.wire.records.configuration import CustomObject
from orch.wire.records.kinds import ALL_VERBS, Resource
from orch.wire.structural.schema import Schema, TooManyDefaults
from orch.wire.structural.validator import path_text
from orch.wire.tables.layout import NAME, Cell, Column, Layout, Record, name, since

_FIELDS_SHOWN = 100
_PATH_MAX = 1000  # characters
_TEXT_MAX = 1000  # of a cell
_WALKED_MAX = 60_000  # values that columns of a row go through, or 50 bytes they write, at 0.4 µs
_WHOLE_MAX = 2**63
_WARNING_MAX = 256  # characters, as in the reference


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where objects have their replicas: names of fields from the root."""

    replicas: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...]  # () for none


@dataclass(frozen=True, slots=True)
class CustomStrategy(Strategy):
    """`scale`: the kind has that subresource."""

    scale: ScalePaths | None = None


def strategies_of(
    document: Document, accepted: Mapping[str, Any], schemas: Mapping[str, Schema]
) -> tuple[CustomStrategy, ...]:
    """The version of storage comes first. While the definition is being deleted, nothing more is
    created; `accepted` are the names under which the kind is served.
    """
    stored = storage_version(document)
    versions = sorted(document["spec"]["versions"], key=lambda v: bool(v["name"] != stored))
    return tuple(
        _strategy(document, accepted, version, schemas[version["name"]])
        for version in versions
        if version["served"]
    )


def _strategy(
    document: Document, accepted: Mapping[str, Any], version: Document, schema: Schema
) -> CustomStrategy:
    spec, parts = document["spec"], version.get("subresources") or {}
    stored = (document.get("status") or {}).get("storedVersions") or []
    is_going = bool(document["metadata"].get("deletionTimestamp"))
    has_status = parts.get("status") is not None
    resource = Resource(
        spec["group"],
        version["name"],
        accepted["plural"],
        accepted["singular"],
        CustomObject,
        spec["scope"] == "Namespaced",
        tuple(accepted.get("shortNames") or ()),
        tuple(part for part in ("status", "scale") if parts.get(part) is not None),
        tuple(accepted.get("categories") or ()),
        tuple(verb for verb in ALL_VERBS if not (is_going and verb == "create")),
        unconditional_update=False,
        own_kind=accepted["kind"],
        own_list_kind=accepted.get("listKind") or "",
        stored_version=_version_kept(document, stored),
        other_versions=tuple(
            each["name"] for each in spec["versions"] if each["served"] and each is not version
        ),
        schema=schema.described,
    )
    kept = schema.fields | {"metadata"}
    return CustomStrategy(
        resource,
        prepare_create=partial(_prepare_create, schema, has_status),
        prepare_update=partial(_prepare_update, schema, has_status),
        prepare_status=partial(_prepare_status, schema),
        validate=partial(_validate, schema),
        kept_by_status={f"f:{field}": NOTHING for field in kept - {"status"}},
        merged_as=schema.type,
        shown_as=_layout(version.get("additionalPrinterColumns") or ()),
        unknown_fields=partial(_unknown_fields, schema),
        is_patched_by_keys=False,
        is_costly=schema.has_patterns,
        qualifies_finalizers=False,
        scale=_scale_paths(parts.get("scale")),
        deprecation=_deprecation(resource, version),
    )


def _deprecation(resource: Resource, version: Document) -> str:
    if not version.get("deprecated"):
        return ""
    given = version.get("deprecationWarning")
    return (given or "")[:_WARNING_MAX] or f"{resource.api_version} {resource.kind} is deprecated"


def _version_kept(document: Document, stored: list[str]) -> str:
    """The version of storage; "" where all objects were always of the only version."""
    version = storage_version(document)
    alone = len(document["spec"]["versions"]) == 1 and stored in ([], [version])
    return "" if alone else version


# ---- rules


def _complete(schema: Schema, document: Document) -> None:
    try:
        completed = schema.completed(document)
    except TooManyDefaults as error:
        raise too_large(f"is too large: {error}") from None
    document.clear()
    document.update(completed)


def _prepare_create(schema: Schema, has_status: bool, document: Document) -> None:
    if has_status:
        document.pop("status", None)
    _complete(schema, document)
    document["metadata"]["generation"] = 1


def _prepare_update(schema: Schema, has_status: bool, new: Document, old: Document) -> None:
    if has_status:
        keep(new, old, "status")
    _complete(schema, new)
    apart = ("metadata", "status") if has_status else ("metadata",)
    if _without(new, apart) != _without(old, apart):
        new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1


def _prepare_status(schema: Schema, new: Document, old: Document) -> None:
    status = {"status": new["status"]} if "status" in new else {}
    new.clear()
    new.update({**_without(old, ("status",)), **status, "metadata": dict(old["metadata"])})
    _complete(schema, new)


def _without(document: Document, fields: tuple[str, ...]) -> Document:
    return {name: value for name, value in document.items() if name not in fields}


def _validate(schema: Schema, new: Document, old: Document | None) -> Iterable[Cause]:
    """An object that a newer schema would refuse can still get other metadata: a finalizer goes."""
    if old is not None and _without(new, ("metadata",)) == _without(old, ("metadata",)):
        return ()
    return schema.problems(new)


def _unknown_fields(schema: Schema, document: Document) -> list[str]:
    found = schema.unknown_fields(document)[:_FIELDS_SHOWN]
    return [f'unknown field "{path_text(path)[:_PATH_MAX]}"' for path in found]


def _scale_paths(scale: Mapping[str, str] | None) -> ScalePaths | None:
    if scale is None:
        return None
    names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    found = (tuple((scale.get(name) or "").split(".")[1:]) for name in names)
    return ScalePaths(*found)


# ---- tables


def _layout(columns: Iterable[Mapping[str, Any]]) -> Layout | None:
    """None: name and age."""
    listed = tuple(columns)
    if not listed:
        return None
    shown = tuple(
        Column(
            column["name"],
            column.get("description") or "",
            column.get("priority") or 0,
            column.get("format") or "",
            column["type"],
        )
        for column in listed
    )
    readers = [partial(_cell, c["type"], jsonpath.parse(f"{{{c['jsonPath']}}}")) for c in listed]
    walks = [_walks(column["jsonPath"]) for column in listed]

    def cells(record: Record, now: datetime) -> list[Cell]:
        left, size = _WALKED_MAX, count_values(record) if any(walks) else 0
        row: list[Cell] = [name(record)]
        for read, walked in zip(readers, walks, strict=True):
            left -= walked * size
            cell = "" if walked and left < 0 else read(record, now)
            if isinstance(cell, dict | list):
                left -= count_values(cell) if left >= 0 else 0
                shown = orjson.dumps(cell, option=orjson.OPT_SORT_KEYS) if left >= 0 else b""
                left -= len(shown) // 50
                cell = shown[: 4 * _TEXT_MAX].decode(errors="ignore")[:_TEXT_MAX]
            row.append(cell)
        return row

    return Layout((NAME, *shown), cells)


def _walks(path: str) -> int:
    """How often it may go through all values of an object; 0 where it only descends by names."""
    return (path.count("[") << path.count(",")) or int("*" in path)


def _cell(kind: str, path: tuple[jsonpath.Node, ...], record: Record, now: datetime) -> Any:
    """The first value; "" for none, and for one of another type. Lists and objects as they are."""
    try:
        found = jsonpath.values(path, record)
    except jsonpath.JsonPathError:
        return ""
    if not found or found[0] is None:
        return ""
    value = found[0]
    match kind:
        case "string":
            is_cell = not isinstance(value, dict | list)
            return jsonpath.text(value)[:_TEXT_MAX] if is_cell else value
        case "date":
            return since(value, now) if isinstance(value, str) else ""
        case "boolean":
            return value if isinstance(value, bool) else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if kind == "integer" and abs(value) < _WHOLE_MAX:  # beyond, JSON has no whole number
        return int(value)
    return value
