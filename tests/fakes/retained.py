"""Finds texts that the product still holds in memory, to show that nothing of a pod is retained."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

_CONTAINERS = (list, tuple, set, frozenset, deque)
_PRODUCT = ("nodeagent.", "orch.")


def retained(root: object, words: Collection[str]) -> set[str]:
    """The words in texts reachable from `root` through containers and the product's objects."""
    texts: set[str] = set()
    visited: set[int] = set()
    pending = [root]
    while pending:
        found = pending.pop()
        if isinstance(found, str):
            texts.add(found)
        elif id(found) not in visited:
            visited.add(id(found))
            pending += _parts(found)
    return {word for word in words if any(word in text for text in texts)}


def _parts(found: object) -> list[object]:
    if isinstance(found, Mapping):
        return [*found.keys(), *found.values()]
    if isinstance(found, _CONTAINERS):
        return list(found)
    kind = type(found)
    if not kind.__module__.startswith(_PRODUCT):
        return []
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    values = [getattr(found, name) for name in slots if hasattr(found, name)]
    return [*values, *getattr(found, "__dict__", {}).values()]
