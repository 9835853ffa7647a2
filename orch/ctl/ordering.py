"""The order of `--sort-by`: by a field of the objects, quantities and times by their meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from orch.ctl import jsonpath
from orch.ctl.failures import WrongUsage
from orch.wire.quantity import to_milli

T = TypeVar("T")
_Key = tuple[int, float, str]


def by_path(items: Iterable[T], path: str, *, record_of: Callable[[T], Any]) -> list[T]:
    """The items by the first value at a JSONPath of their records; those without one first."""
    try:
        nodes = jsonpath.relaxed(path)
    except jsonpath.JsonPathError as error:
        raise WrongUsage(f"--sort-by: {error}") from None
    return sorted(items, key=lambda item: _key(nodes, record_of(item)))


def _key(nodes: tuple[jsonpath.Node, ...], record: Any) -> _Key:
    try:
        found = jsonpath.values(nodes, record)
    except jsonpath.JsonPathError:
        found = []
    value = found[0] if found else None
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    if not isinstance(value, str):
        return (3, 0.0, jsonpath.shown(value))
    try:
        return (1, to_milli(value) / 1000, "")
    except ValueError:
        return (2, 0.0, value)
