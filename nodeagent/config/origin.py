"""The file and line, or the flag, that set each field of the effective configuration; pure.

A leaf is a scalar, an empty map or a whole list, since lists are replaced whole. A field that no
file or flag set, or that a later file set to null, has its default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from nodeagent.config.layers import FlagValue, Layers
from orch.component.yaml_file import Document, FieldPath

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Origin:
    """`source` is a file or a flag; for a default, the file that reset the field with null."""

    kind: Literal["default", "file", "flag"]
    source: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        if self.kind == "default":
            return f"default, reset by {place}" if place else "default"
        return f"flag {place}" if self.kind == "flag" else place


@dataclass(frozen=True, slots=True)
class Leaf:
    path: FieldPath
    value: Any  # JSON data
    origin: Origin


DEFAULT = Origin("default")


def leaves(record: dict[str, Any], layers: Layers) -> list[Leaf]:
    """Every leaf of the effective record (as JSON data), in its order, with its origin."""
    return [Leaf(path, value, origin_of(path, layers)) for path, value in _walk(record, ())]


def origin_of(path: FieldPath, layers: Layers) -> Origin:
    """The last layer that set the field at a path."""
    for flag in reversed(layers.flags):
        if _sets(flag, path):
            return Origin("flag", flag.flag)
    for document in reversed(layers.documents):
        found = _origin_in(document, path)
        if found is not None:
            return found
    return DEFAULT


def nearest_origin(path: FieldPath, layers: Layers) -> Origin:
    """The origin of the field at a path or, by default, of the structure around it."""
    for end in range(len(path), 0, -1):
        found = origin_of(path[:end], layers)
        if found.kind != "default":
            return found
    return DEFAULT


def _walk(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _walk(child, (*path, key))
    else:
        yield path, value


def _sets(flag: FlagValue, path: FieldPath) -> bool:
    length = len(flag.path)
    if path[:length] != flag.path:
        return False
    if isinstance(flag.value, dict) and len(path) > length:
        return path[length] in flag.value
    return True


def _origin_in(document: Document, path: FieldPath) -> Origin | None:
    """Of a value at the path, or of a null on the way to it; None when the document has neither."""
    value = document.value
    for depth, part in enumerate(path):
        value = _step(value, part)
        if value is _MISSING:
            return None
        if value is None:
            return Origin("default", document.source, document.lines.get(path[: depth + 1]))
    return Origin("file", document.source, document.lines.get(path))


def _step(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(part, _MISSING)
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return _MISSING
