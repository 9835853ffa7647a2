"""The causes of a 422 in the reference's wording (reference/apiserver.md §4.3); pure.

They show what was sent, but not all of it: an answer may have a hundred causes, and is kept in
memory and in audit logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from orch.wire.errors import Cause

_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (str, "string"), (bool, "boolean"), (int, "integer"), (float, "number"), (list, "array"),
    (dict, "object"), (object, "null"),
)  # fmt: skip
_SHOWN_MAX = 1000  # characters of a value, or of a path


def required(path: str, detail: str = "") -> Cause:
    return _cause("FieldValueRequired", _text("Required value", detail), path)


def invalid_value(path: str, value: Any, detail: str) -> Cause:
    return _cause("FieldValueInvalid", f"Invalid value: {_json(value)}: {detail}", path)


def wrong_type(path: str, value: Any, wanted: str, detail: str = "") -> Cause:
    """`wanted` is the JSON type that the field has; of the value only its own is shown."""
    text = f"Invalid value: {_json(json_type(value))}: must be of type {wanted}"
    return _cause("FieldValueTypeInvalid", _text(text, detail), path)


def json_type(value: Any) -> str:
    """`string`, `boolean`, … `null`."""
    return next(name for kind, name in _JSON_TYPES if isinstance(value, kind))


def not_supported(path: str, value: Any, supported: Iterable[str]) -> Cause:
    shown = ", ".join(f'"{choice}"' for choice in sorted(supported))
    text = f"Unsupported value: {_json(value)}: supported values: {shown}"
    return _cause("FieldValueNotSupported", text, path)


def forbidden(path: str, detail: str) -> Cause:
    return _cause("FieldValueForbidden", _text("Forbidden", detail), path)


def duplicate(path: str, value: Any) -> Cause:
    return _cause("FieldValueDuplicate", f"Duplicate value: {_json(value)}", path)


def not_found(path: str, value: Any) -> Cause:
    return _cause("FieldValueNotFound", f"Not found: {_json(value)}", path)


def too_long(path: str, detail: str) -> Cause:
    return _cause("FieldValueTooLong", f"Too long: {detail}", path)


def too_many(path: str, count: int, most: int) -> Cause:
    return _cause("FieldValueTooMany", f"Too many: {count}: must have at most {most} items", path)


def at_key(path: str, key: str) -> str:
    """The path of a value in a map: `spec.x[key]`."""
    return f"{path}[{key}]"


def invalid_values(path: str, value: Any, details: Iterable[str]) -> Iterator[Cause]:
    """One cause for each problem of a value."""
    return (invalid_value(path, value, detail) for detail in details)


def unless_given(record: Mapping[str, Any], path: str, *names: str) -> Iterator[Cause]:
    """The fields that are missing or empty."""
    return (required(f"{path}.{name}") for name in names if not record.get(name))


def unless_one_of(
    record: Mapping[str, Any], name: str, choices: Iterable[str], path: str
) -> Iterator[Cause]:
    """A choice that there is not; an empty text means: the default."""
    if record.get(name) and record[name] not in choices:
        yield not_supported(f"{path}.{name}", record[name], choices)


def _text(kind: str, detail: str) -> str:
    return f"{kind}: {detail}" if detail else kind


def _json(value: Any) -> str:
    if isinstance(value, str):
        value = value[: _SHOWN_MAX + 1]  # one long text may be the matter of a hundred causes
    try:
        shown = orjson.dumps(value).decode()
    except TypeError:  # a whole number above 64 bits, which YAML may have
        shown = str(value)
    return _cut(shown)


def _cause(reason: str, message: str, path: str) -> Cause:
    return Cause(reason, message, _cut(path))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
