"""What a JSONPath template gives for an object; pure.

The syntax is in `jsonpath_syntax`. As in kubectl, a field that is missing gives nothing, an index
beyond a list's end is an error, and several values are joined by blanks.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orch.ctl.jsonpath_syntax import (
    Field,
    Filter,
    JsonPathError,
    Literal_,
    Node,
    Path,
    Range,
    Recursive,
    Slice,
    Step,
    Text,
    Union,
    parse,
    relaxed,
)

__all__ = ["JsonPathError", "Node", "parse", "relaxed", "render", "shown", "values"]

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip


def render(nodes: Sequence[Node], record: Any) -> str:
    """The text of a template for one object."""
    return "".join(_rendered(nodes, record))


def values(nodes: Sequence[Node], record: Any) -> list[Any]:
    """The values the paths of a template find, in order."""
    return [found for node in nodes if isinstance(node, Path) for found in _found(node, record)]


def shown(value: Any) -> str:
    """One value as text: strings as they are, lists and objects as JSON."""
    if isinstance(value, str):
        return value
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "" if value is None else text


def _rendered(nodes: Sequence[Node], record: Any) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Text):
            yield node.text
        elif isinstance(node, Path):
            yield " ".join(shown(value) for value in _found(node, record))
        else:
            yield from _repeated(node, record)


def _repeated(node: Range, record: Any) -> Iterator[str]:
    for value in _found(node.path, record):
        yield from _rendered(node.body, value)


def _found(path: Path, record: Any) -> list[Any]:
    current = [record]
    for step in path.steps:
        current = [found for value in current for found in _stepped(step, value)]
    return current


def _stepped(step: Step, value: Any) -> list[Any]:
    match step:
        case Field():
            return _members(step.name, value)
        case Recursive():
            return list(_everything(value))
        case Slice():
            return _elements(step, value)
        case Union():
            return [found for one in step.steps for found in _stepped(one, value)]
        case Filter():
            return [e for e in value if _holds(step, e)] if isinstance(value, list) else []


def _members(name: str, value: Any) -> list[Any]:
    if name == "*":
        if isinstance(value, dict):
            return [value[key] for key in sorted(value)]
        return list(value) if isinstance(value, list) else []
    return [value[name]] if isinstance(value, dict) and name in value else []


def _everything(value: Any) -> Iterator[Any]:
    yield value
    below = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for one in below:
            yield from _everything(one)


def _elements(step: Slice, value: Any) -> list[Any]:
    if not isinstance(value, list):
        return []
    if not step.exact:
        return value[step.start : step.end : step.step]
    index = step.start or 0
    if not -len(value) <= index < len(value):
        raise JsonPathError(f"the list has {len(value)} elements: there is no [{index}]")
    return [value[index]]


def _holds(test: Filter, element: Any) -> bool:
    left = _operand(test.left, element)
    if test.operator == "exists":
        return bool(left)
    right = _operand(test.right, element)
    if not left or not right:
        return False
    try:
        return _COMPARISONS[test.operator](left[0], right[0])
    except TypeError:
        return False  # of different types: no order, no match


def _operand(operand: Path | Literal_, element: Any) -> list[Any]:
    return [operand.value] if isinstance(operand, Literal_) else _found(operand, element)
