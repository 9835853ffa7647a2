"""JSON data as patches handle it: bounded copies, equality, and the error every patch raises.

Depth is bounded so that no document, however deep, ends in a RecursionError; a copy shares
nothing mutable with what it was made from.
"""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 100  # objects and lists inside one another; the deepest real object has about 20


class PatchError(Exception):
    """A patch that cannot be applied; `code` is the HTTP status a server answers with.

    400: the patch itself is malformed; 422: it does not fit the object; 413: it is too large.
    """

    def __init__(self, message: str, *, code: int = 422) -> None:
        super().__init__(message)
        self.code = code


def copied(value: Any, depth: int = 0) -> Any:
    """A deep copy of JSON data that lies `depth` levels below the root; PatchError when deeper."""
    if isinstance(value, dict):
        check_depth(depth)
        return {key: copied(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        check_depth(depth)
        return [copied(item, depth + 1) for item in value]
    return value


def check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise PatchError(f"the patch or its result is nested deeper than {MAX_DEPTH} levels")


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
    """What JSON calls the type of a value, for error texts."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else "a number"
