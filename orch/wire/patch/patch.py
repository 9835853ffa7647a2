"""Patches of JSON data: bounded copies, equality, the error of all forms, and JSON merge patch.

Merge patch is RFC 7386; `json_patch` holds RFC 6902, `strategic_patch` the form with merge keys.
Pure: inputs stay untouched, and results share nothing mutable with them. Depth is bounded so that
no document ends in a RecursionError.
"""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 100  # objects and lists inside one another; the deepest real object has about 20


class PatchError(Exception):
    """A patch that cannot be applied; `code` is the HTTP status of the response.

    400: the patch is malformed; 422: it does not fit the object; 413: it is too large.
    """

    def __init__(self, message: str, *, code: int = 422) -> None:
        super().__init__(message)
        self.code = code


def copied(value: Any, depth: int = 0) -> Any:
    """A deep copy of JSON data that is `depth` levels below the root; PatchError when too deep."""
    if isinstance(value, dict):
        check_depth(depth)
        return {
            key: item if type(item) is str else copied(item, depth + 1)  # most are texts
            for key, item in value.items()
        }
    if isinstance(value, list):
        check_depth(depth)
        return [item if type(item) is str else copied(item, depth + 1) for item in value]
    return value


def check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise PatchError(f"the patch or its result is nested deeper than {MAX_DEPTH} levels")


def count_values(value: Any, depth: int = 0) -> int:
    """The values in JSON data, itself included; PatchError when too deep."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return 1
    check_depth(depth)
    return 1 + sum(count_values(item, depth + 1) for item in value)


def equal(left: Any, right: Any, depth: int = 0) -> bool:
    """JSON equality: numbers by value, but true is not 1 and false is not 0; PatchError if deep."""
    if isinstance(left, dict) and isinstance(right, dict):
        check_depth(depth)
        return left.keys() == right.keys() and all(
            equal(left[key], right[key], depth + 1) for key in left
        )
    if isinstance(left, list) and isinstance(right, list):
        check_depth(depth)
        return len(left) == len(right) and all(
            equal(*pair, depth + 1) for pair in zip(left, right, strict=True)
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def type_name(value: Any) -> str:
    """The JSON type of a value, for error texts."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else "a number"


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, everything else replaces."""
    return _merged(target, patch, 0)


def _merged(target: Any, patch: Any, depth: int) -> Any:
    if not isinstance(patch, dict):
        return copied(patch, depth)
    check_depth(depth)
    old = target if isinstance(target, dict) else {}
    result = {k: copied(v, depth + 1) for k, v in old.items() if k not in patch}
    for key, value in patch.items():
        if value is not None:
            result[key] = _merged(old.get(key), value, depth + 1)
    return {key: result[key] for key in (*old, *patch) if key in result}


def create_merge_patch(old: Any, new: Any) -> Any:
    """The smallest merge patch that turns `old` into `new`; {} when nothing differs.

    A null inside `new` cannot be expressed and is left out, as the format demands.
    """
    return _difference(old, new, 0)


def _difference(old: Any, new: Any, depth: int) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return copied(new, depth)
    check_depth(depth)
    removed = {key: None for key in old if new.get(key) is None}
    changed = {
        key: _difference(old.get(key), value, depth + 1)
        for key, value in new.items()
        if value is not None and not (key in old and equal(old[key], value))
    }
    return {**removed, **changed}
