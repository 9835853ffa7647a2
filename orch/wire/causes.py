"""The causes of a 422 in the reference's wording (reference/apiserver.md §4.3); pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from orch.wire.errors import Cause

_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (str, "string"), (bool, "boolean"), (int, "integer"), (float, "number"), (list, "array"),
    (dict, "object"), (object, "null"),
)  # fmt: skip


def required(path: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", _text("Required value", detail), path)


def invalid_value(path: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {_json(value)}: {detail}", path)


def wrong_type(path: str, value: Any, wanted: str) -> Cause:
    """`wanted` is the JSON type that the field has; of the value only its own is shown."""
    given = next(name for kind, name in _JSON_TYPES if isinstance(value, kind))
    text = f"Invalid value: {_json(given)}: must be of type {wanted}"
    return Cause("FieldValueTypeInvalid", text, path)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> Cause:
    shown = ", ".join(f'"{choice}"' for choice in sorted(supported))
    text = f"Unsupported value: {_json(value)}: supported values: {shown}"
    return Cause("FieldValueNotSupported", text, path)


def forbidden(path: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", _text("Forbidden", detail), path)


def duplicate(path: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {_json(value)}", path)


def not_found(path: str, value: Any) -> Cause:
    return Cause("FieldValueNotFound", f"Not found: {_json(value)}", path)


def too_long(path: str, detail: str) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: {detail}", path)


def too_many(path: str, count: int, most: int) -> Cause:
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {most} items", path)


def _text(kind: str, detail: str) -> str:
    return f"{kind}: {detail}" if detail else kind


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
