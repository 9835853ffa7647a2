"""A structural schema at work: unknown fields dropped, defaults set, lists held against their keys,
and the type by which objects are merged; pure.

Values are never changed, but copied where they differ. Each step is linear in the value; what
defaults add is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.managed import kinds
from orch.wire.managed.typed import (
    SCALAR,
    UNKNOWN,
    ListType,
    MapType,
    Type,
    record,
)
from orch.wire.patch.patch import copied, count_values
from orch.wire.records.meta import ObjectMeta
from orch.wire.structural import rules
from orch.wire.structural.validator import Validator, compile_schema, path_text

DEFAULTED_MAX = 20_000  # values that defaults may add to an object
_ROOT = ("apiVersion", "kind", "metadata")  # of every object, and of what is embedded

Path = tuple[str | int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """What is known of the values at one place; `others` are fields that are not named."""

    fields: dict[str, Node] = field(default_factory=dict)
    others: Node | None = None
    items: Node | None = None
    open: bool = False  # fields that are not known are kept
    defaults: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    is_set: bool = False


_ANY = Node(open=True)


def node_of(schema: Mapping[str, Any], *, root: bool = False) -> Node:
    """The schema in the form that is gone through with each value."""
    described = schema.get("properties") or {}
    made = Node({name: node_of(below) for name, below in described.items()})
    made.defaults = {n: below["default"] for n, below in described.items() if "default" in below}
    if root or schema.get(rules.EMBEDDED):
        made.fields |= dict.fromkeys(_ROOT, _ANY)
    others = schema.get("additionalProperties")
    made.others = node_of(others) if isinstance(others, dict) else None
    made.open = bool(schema.get(rules.PRESERVE) or others is True)
    if isinstance(schema.get("items"), dict):
        made.items = node_of(schema["items"])
    made.keys = tuple(schema.get(rules.LIST_KEYS) or ())
    made.is_set = schema.get(rules.LIST_TYPE) == "set"
    return made


def pruned(node: Node, value: Any, dropped: list[Path], path: Path = ()) -> Any:
    """The value without unknown fields, whose paths are added to `dropped`."""
    if isinstance(value, dict):
        if node is _ANY:
            return value
        result = {}
        for name, item in value.items():
            below = node.fields.get(name) or node.others
            if below is not None:
                plain = not isinstance(item, dict | list)
                result[name] = item if plain else pruned(below, item, dropped, (*path, name))
            elif node.open:
                result[name] = item
            else:
                dropped.append((*path, name))
        return result
    if isinstance(value, list) and node.items is not None:
        items = node.items
        return [pruned(items, item, dropped, (*path, index)) for index, item in enumerate(value)]
    return value


class TooManyDefaults(ValueError):
    """An object would grow beyond its bound by defaults."""


class _Defaults:
    def __init__(self) -> None:
        self._left = DEFAULTED_MAX

    def set(self, node: Node, value: Any) -> Any:
        if isinstance(value, dict):
            result = dict(value)
            for name, default in node.defaults.items():
                if name not in result:
                    self._take(default)
                    result[name] = copied(default)
            for name, item in result.items():
                below = node.fields.get(name) or node.others
                if below is not None and isinstance(item, dict | list):
                    result[name] = self.set(below, item)
            return result
        if isinstance(value, list) and node.items is not None:
            return [self.set(node.items, item) for item in value]
        return value

    def _take(self, default: Any) -> None:
        self._left -= count_values(default)
        if self._left < 0:
            raise TooManyDefaults(f"its defaults add more than {DEFAULTED_MAX} values")


def defaulted(node: Node, value: Any) -> Any:
    """The value with the defaults of missing fields; TooManyDefaults."""
    return _Defaults().set(node, value)


def duplicates(node: Node, value: Any, path: Path = ()) -> Iterator[Cause]:
    """Elements of lists that cannot be told from others."""
    if isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, dict | list):
                below = node.fields.get(name) or node.others
                if below is not None:
                    yield from duplicates(below, item, (*path, name))
    elif isinstance(value, list) and node.items is not None:
        if node.keys or node.is_set:
            yield from _repeated(node, value, path)
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from duplicates(node.items, item, (*path, index))


def _repeated(node: Node, values: list[Any], path: Path) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, value in enumerate(values):
        shown = value
        if node.keys:
            if not isinstance(value, dict):
                continue  # refused for its type
            shown = {key: value.get(key) for key in node.keys}
        text = json.dumps(shown, sort_keys=True)
        if text in seen:
            yield causes.duplicate(path_text((*path, index)), shown)
        seen.add(text)


# ---- merging


def merged_type(schema: Mapping[str, Any], *, root: bool = False) -> Type:
    """How apply merges values of this schema."""
    if schema.get(rules.INT_OR_STRING):
        return SCALAR
    match schema.get("type"):
        case "object":
            return _object_type(schema, root=root)
        case "array":
            items = merged_type(schema.get("items") or {})
            merged = schema.get(rules.LIST_TYPE)
            keys = tuple(schema.get(rules.LIST_KEYS) or ()) if merged == "map" else ()
            return Type(list=ListType(items, merged not in ("map", "set"), keys))
        case "string":
            return Type(scalar="string")
        case "boolean":
            return Type(scalar="boolean")
        case "integer" | "number":
            return Type(scalar="numeric")
    return UNKNOWN


def _object_type(schema: Mapping[str, Any], *, root: bool) -> Type:
    described = schema.get("properties") or {}
    fields = {name: merged_type(below) for name, below in described.items()}
    others = schema.get("additionalProperties")
    element = merged_type(others) if isinstance(others, dict) else None
    if schema.get(rules.PRESERVE) or others is True:
        element = UNKNOWN
    if root or schema.get(rules.EMBEDDED):
        meta = kinds.type_of(ObjectMeta)
        fields |= {"apiVersion": SCALAR, "kind": SCALAR, "metadata": meta}
    defaults = {
        name: below["default"]
        for name, below in described.items()
        if "default" in below and not isinstance(below["default"], dict | list)
    }
    atomic = schema.get(rules.MAP_TYPE) == "atomic"
    if not fields and element is None:
        return Type(map=MapType(atomic=atomic))
    return record(fields, element=element, atomic=atomic, defaults=defaults)


# ---- the whole


class Schema:
    """The schema of one version of a kind, ready for its objects."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.described = schema
        self.type = merged_type(schema, root=True)
        self._node = node_of(schema, root=True)
        self._validator: Validator = compile_schema(schema)

    @property
    def fields(self) -> frozenset[str]:
        """The names of its top-level fields."""
        return frozenset(self._node.fields)

    @property
    def has_patterns(self) -> bool:
        """Whether texts are held against patterns, which takes long for long ones."""
        return self._validator.has_patterns

    def completed(self, document: dict[str, Any]) -> dict[str, Any]:
        """The object without unknown fields, with its defaults; TooManyDefaults."""
        made: dict[str, Any] = defaulted(self._node, pruned(self._node, document, []))
        return made

    def unknown_fields(self, document: Mapping[str, Any]) -> list[Path]:
        """The paths of the fields that `completed` drops."""
        dropped: list[Path] = []
        pruned(self._node, dict(document), dropped)
        return dropped

    def problems(self, document: Mapping[str, Any]) -> Iterator[Cause]:
        """What does not fit the schema."""
        yield from self._validator.problems(document)
        yield from duplicates(self._node, document)


def default_problems(schema: Any, path: str) -> Iterator[Cause]:
    """The defaults of a structural schema that do not fit it themselves."""
    if not isinstance(schema, dict):
        return
    if "default" in schema:
        node, value = node_of(schema), schema["default"]
        dropped: list[Path] = []
        pruned(node, value, dropped)
        for below in dropped[:1]:
            text = f"has the unknown field {path_text(below)}"
            yield causes.invalid_value(f"{path}.default", causes.json_type(value), text)
        for cause in compile_schema(schema).problems(value):
            at = f"{path}.default.{cause.field}" if cause.field else f"{path}.default"
            yield Cause(cause.reason, cause.message, at)
            break
    for name, below in (schema.get("properties") or {}).items():
        yield from default_problems(below, causes.at_key(f"{path}.properties", name))
    for name in ("items", "additionalProperties"):
        yield from default_problems(schema.get(name), f"{path}.{name}")
