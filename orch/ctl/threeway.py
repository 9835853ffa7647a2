"""What an object should become when a file is applied to it; pure.

Three states decide: the file now, the file as it was applied last, and the object as it stands.
What the file no longer says is removed, what others set stays. Lists with merge keys are merged by
element, all others are the file's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch.wire.patch.merge_keys import schema_of
from orch.wire.patch.patch import PatchError, equal
from orch.wire.patch.strategic_patch import (
    DELETE_PREFIX,
    ORDER_PREFIX,
    PATCH,
    Schema,
    apply_strategic_patch,
)

_NOT_APPLIED = ("status",)  # belongs to controllers, whatever a file says


def applied(
    live: Mapping[str, Any], last: Mapping[str, Any], wanted: Mapping[str, Any]
) -> dict[str, Any]:
    """The object after applying; `last` is {} when nothing was applied before. PatchError."""
    schema = schema_of(str(wanted.get("apiVersion")), str(wanted.get("kind")))
    wanted = {key: value for key, value in wanted.items() if key not in _NOT_APPLIED}
    kept = apply_strategic_patch(dict(live), _removals(last, wanted, schema), schema)
    result = apply_strategic_patch(kept, _ordered(wanted, schema), schema)
    if not isinstance(result, dict):
        raise PatchError("the file does not make an object")
    return result


def _removals(old: Mapping[str, Any], new: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The strategic patch that removes what `old` has and `new` has no more."""
    patch: dict[str, Any] = {}
    for name, value in old.items():
        if name in _NOT_APPLIED:
            continue
        if name not in new or new[name] is None:
            patch[name] = None
        elif isinstance(value, dict) and isinstance(new[name], dict):
            if inner := _removals(value, new[name], schema.of(name)):
                patch[name] = inner
        elif isinstance(value, list) and isinstance(new[name], list):
            patch |= _list_removals(name, value, new[name], schema.of(name))
    return patch


def _list_removals(name: str, old: list[Any], new: list[Any], schema: Schema) -> dict[str, Any]:
    if schema.merge_set:
        gone = [value for value in old if not any(equal(value, other) for other in new)]
        return {DELETE_PREFIX + name: gone} if gone else {}
    if not schema.merge_key:
        return {}
    elements = [_element_removal(element, new, schema) for element in old]
    removals = [element for element in elements if element is not None]
    return {name: removals} if removals else {}


def _element_removal(element: Any, new: list[Any], schema: Schema) -> dict[str, Any] | None:
    key = schema.merge_key
    if not isinstance(element, dict) or key not in element:
        return None
    for other in new:
        if isinstance(other, dict) and equal(other.get(key), element[key]):
            inner = _removals(element, other, schema)
            return {**inner, key: element[key]} if inner else None
    return {PATCH: "delete", key: element[key]}


def _ordered(wanted: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """A file as a patch that also gives its lists the file's order."""
    patch: dict[str, Any] = {}
    for name, value in wanted.items():
        inner = schema.of(name)
        if isinstance(value, dict):
            patch[name] = _ordered(value, inner)
        elif isinstance(value, list) and inner.merges_lists:
            patch[name] = [_ordered(v, inner) if isinstance(v, dict) else v for v in value]
            patch[ORDER_PREFIX + name] = [_key_only(v, inner.merge_key) for v in value]
        else:
            patch[name] = value
    return patch


def _key_only(element: Any, key: str) -> Any:
    return {key: element.get(key)} if key and isinstance(element, dict) else element
