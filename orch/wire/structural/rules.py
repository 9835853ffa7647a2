"""The rules that a structural schema keeps, each violation named by its path; pure.

As the reference's pkg/apiextensions-apiserver/pkg/apis/apiextensions/validation: every value has a
type, logical junctors only restrict what is described outside of them, and whatever would need
another document, or would be evaluated by nobody here, is refused. Also bounds what validating
costs: by depth, by nodes, and by the alternatives that one value may be compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.structural.validator import pattern_problem

Schema = Mapping[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
RULES = "x-kubernetes-validations"

MAX_DEPTH = 40
MAX_NODES = 10_000
MAX_PATTERNS = 500  # different ones: each takes up to 25 ms to compile
MAX_ALTERNATIVES = 500  # all members of allOf, anyOf, oneOf and not

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCALARS = ("boolean", "integer", "number", "string")
_NUMBER, _COUNT, _TEXT = (int, float), int, str
_FORMS: Mapping[str, Any] = {
    "type": _TEXT, "format": _TEXT, "title": _TEXT, "description": _TEXT, "pattern": _TEXT,
    "maximum": _NUMBER, "minimum": _NUMBER, "multipleOf": _NUMBER,
    "exclusiveMaximum": bool, "exclusiveMinimum": bool, "nullable": bool,
    "maxLength": _COUNT, "minLength": _COUNT, "maxItems": _COUNT, "minItems": _COUNT,
    "maxProperties": _COUNT, "minProperties": _COUNT,
    "enum": list, "required": list, "allOf": list, "anyOf": list, "oneOf": list,
    "items": dict, "properties": dict, "not": dict, "additionalProperties": (dict, bool),
    "externalDocs": dict, "default": object, "example": object, "uniqueItems": bool,
    PRESERVE: bool, INT_OR_STRING: bool, EMBEDDED: bool,
    LIST_TYPE: _TEXT, LIST_KEYS: list, MAP_TYPE: _TEXT,
}  # fmt: skip
_NAMES = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object",
          (int, float): "number", (dict, bool): "object"}  # fmt: skip
_JUNCTORS = ("allOf", "anyOf", "oneOf")
_OUTSIDE = ("description", "type", "default", "additionalProperties", "nullable", "title",
            PRESERVE, INT_OR_STRING, EMBEDDED, LIST_TYPE, LIST_KEYS, MAP_TYPE)  # fmt: skip
_CHOICES: Mapping[str, tuple[str, ...]] = {
    LIST_TYPE: ("atomic", "map", "set"),
    MAP_TYPE: ("atomic", "granular"),
}
_EITHER = ({"type": "integer"}, {"type": "string"})


class _Walk:
    """Counts what is bounded while it looks for violations."""

    def __init__(self) -> None:
        self._nodes = 0
        self._alternatives = 0
        self._patterns: set[str] = set()

    def node(self, schema: Any, path: str, depth: int) -> Iterator[Cause]:
        """The violations of a node that describes values, and of those below it."""
        if unreadable := self._unreadable(schema, path, depth):
            yield from unreadable
            return
        yield from _described(schema, path)
        yield from _lists(schema, path)
        for name, below in (schema.get("properties") or {}).items():
            yield from self.node(below, causes.at_key(f"{path}.properties", name), depth + 1)
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                yield from self.node(schema[name], f"{path}.{name}", depth + 1)
        yield from self._junctors(schema, schema, path, depth)

    def _unreadable(self, schema: Any, path: str, depth: int) -> list[Cause]:
        """The violations for which nothing below the node is looked at."""
        if not isinstance(schema, dict):
            return [causes.wrong_type(path, schema, "object")]
        self._nodes += 1
        if depth > MAX_DEPTH:
            return [causes.too_long(path, f"may not be nested deeper than {MAX_DEPTH} levels")]
        if self._nodes >= MAX_NODES:
            return [causes.too_many(path, self._nodes, MAX_NODES)]
        if isinstance(pattern := schema.get("pattern"), str):
            self._patterns.add(pattern)
            if len(self._patterns) > MAX_PATTERNS:
                return [causes.too_many(f"{path}.pattern", len(self._patterns), MAX_PATTERNS)]
        return [*_misshapen(schema, path)]

    def _junctors(self, schema: Schema, outer: Any, path: str, depth: int) -> Iterator[Cause]:
        members = [
            (f"{path}.{name}[{index}]", member)
            for name in _JUNCTORS
            for index, member in enumerate(schema.get(name) or ())
        ]
        if "not" in schema:
            members.append((f"{path}.not", schema["not"]))
        for at, member in members:
            self._alternatives += 1
            if self._alternatives > MAX_ALTERNATIVES:
                yield causes.too_many(at, self._alternatives, MAX_ALTERNATIVES)
                return
            either = outer.get(INT_OR_STRING) if isinstance(outer, dict) else False
            if not (either and member in _EITHER):
                yield from self._restricting(member, outer, at, depth + 1)

    def _restricting(self, schema: Any, outer: Any, path: str, depth: int) -> Iterator[Cause]:
        """A part of a junctor: it only restricts what `outer`, outside of it, describes."""
        if unreadable := self._unreadable(schema, path, depth):
            yield from unreadable
            return
        for name in _OUTSIDE:
            if schema.get(name) not in (None, False, ""):
                why = "must be set outside of allOf, anyOf, oneOf and not"
                yield causes.forbidden(f"{path}.{name}", why)
        for at, below, described in _inside(schema, outer, path):
            if isinstance(described, dict):
                yield from self._restricting(below, described, at, depth + 1)
            else:
                yield causes.required(at, "must also be described outside of the junctor")
        yield from self._junctors(schema, outer, path, depth)


def _inside(schema: Schema, outer: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The parts of a part of a junctor: path, schema, and what describes the same outside."""
    described = outer if isinstance(outer, dict) else {}
    known = described.get("properties") or {}
    for name, below in (schema.get("properties") or {}).items():
        at = causes.at_key(f"{path}.properties", name)
        yield at, below, known.get(name) or described.get("additionalProperties")
    if "items" in schema:
        yield f"{path}.items", schema["items"], described.get("items")


def violations(schema: Any, path: str) -> Iterator[Cause]:
    """What keeps a schema from being structural; its root is that of an object of the API."""
    found = False
    for cause in islice(_Walk().node(schema, path, 0), 100):
        found = True
        yield cause
    if found:
        return
    if schema.get("type") != "object":
        yield causes.invalid_value(f"{path}.type", schema.get("type", ""), "must be object")
    for name in (EMBEDDED, "nullable"):
        if schema.get(name):
            yield causes.forbidden(f"{path}.{name}", "must not be set at the root")
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    beyond = (metadata.get("properties") or {}).keys() - {"name", "generateName"}
    for name in sorted(beyond):
        at = causes.at_key(f"{path}.properties[metadata].properties", name)
        yield causes.forbidden(at, "only name and generateName may be restricted")


def _misshapen(schema: Schema, path: str) -> Iterator[Cause]:
    """Keywords that there are not, and values of a wrong form."""
    for name, value in schema.items():
        at = f"{path}.{name}"
        if name == RULES:
            why = "this server evaluates no CEL: restrict the value by the schema, or have the"
            yield causes.forbidden(at, f"{why} operator check it")
        elif name not in _FORMS:
            yield causes.forbidden(at, "is not a keyword of a structural schema")
        elif not _fits(value, _FORMS[name]):
            yield causes.wrong_type(at, value, _NAMES.get(_FORMS[name], "object"))
        else:
            yield from _misused(name, value, at)


def _misused(name: str, value: Any, at: str) -> Iterator[Cause]:
    """A keyword whose value has its form, but no meaning."""
    if name in ("required", LIST_KEYS) and not all(isinstance(item, str) for item in value):
        yield causes.wrong_type(at, value, "array of strings")
    elif name == "pattern" and (problem := pattern_problem(value)):
        yield causes.invalid_value(at, value, problem)
    elif name == "uniqueItems" and value:
        yield causes.forbidden(at, "takes too long: use x-kubernetes-list-type set")
    elif name in _JUNCTORS and not value:
        yield causes.required(at, "must have a member")
    elif _FORMS[name] is _COUNT and value < 0:
        yield causes.invalid_value(at, value, "must not be negative")
    elif name == "multipleOf" and value <= 0:
        yield causes.invalid_value(at, value, "must be greater than 0")


def _fits(value: Any, form: Any) -> bool:
    if isinstance(value, bool):
        return form in (bool, object, (dict, bool))
    return isinstance(value, form)


def _described(schema: Schema, path: str) -> Iterator[Cause]:
    """Whether the node says what its values are."""
    kind, either = schema.get("type", ""), schema.get(INT_OR_STRING)
    if either and kind:
        yield causes.forbidden(f"{path}.type", f"must be empty with {INT_OR_STRING}")
    elif not (kind or either or schema.get(PRESERVE)):
        yield causes.required(f"{path}.type", "must not be empty")
    elif kind and kind not in _TYPES:
        yield causes.not_supported(f"{path}.type", kind, _TYPES)
    if kind == "array" and "items" not in schema:
        yield causes.required(f"{path}.items", "must be described")
    if schema.get(PRESERVE) is False:
        yield causes.invalid_value(f"{path}.{PRESERVE}", False, "must be true or missing")
    yield from _maps(schema, path)
    if schema.get(EMBEDDED):
        if kind != "object":
            yield causes.invalid_value(f"{path}.type", kind, f"must be object with {EMBEDDED}")
        if not (schema.get(PRESERVE) or schema.get("properties")):
            yield causes.required(f"{path}.properties", f"or {PRESERVE}, with {EMBEDDED}")


def _maps(schema: Schema, path: str) -> Iterator[Cause]:
    others, at = schema.get("additionalProperties"), f"{path}.additionalProperties"
    if others is False:
        yield causes.forbidden(at, "must not be false")
    elif isinstance(others, dict) and schema.get("properties"):
        yield causes.forbidden(at, "excludes properties: an object is a map or a record")


def _lists(schema: Schema, path: str) -> Iterator[Cause]:
    """How lists and objects are merged."""
    for name, choices in _CHOICES.items():
        if schema.get(name) and schema[name] not in choices:
            yield causes.not_supported(f"{path}.{name}", schema[name], choices)
    kind, merged = schema.get("type"), schema.get(LIST_TYPE)
    if merged and kind != "array":
        yield causes.invalid_value(f"{path}.type", kind or "", f"must be array with {LIST_TYPE}")
    if schema.get(MAP_TYPE) and kind != "object":
        yield causes.invalid_value(f"{path}.type", kind or "", f"must be object with {MAP_TYPE}")
    keys = schema.get(LIST_KEYS) or ()
    if (merged == "map") != bool(keys):
        yield causes.required(f"{path}.{LIST_KEYS}", f"exactly where {LIST_TYPE} is map")
    items = schema.get("items")
    if not isinstance(items, dict):
        return
    if merged == "set" and items.get("type") not in _SCALARS and not _is_atomic(items):
        yield causes.invalid_value(f"{path}.items.type", items.get("type") or "",
                                   "must be plain or atomic in a set")  # fmt: skip
    if merged == "map":
        yield from _keys(keys, items, path)


def _keys(keys: Any, items: Schema, path: str) -> Iterator[Cause]:
    described = items.get("properties") or {}
    if len(set(keys)) != len(keys):
        yield causes.duplicate(f"{path}.{LIST_KEYS}", list(keys))
    for index, key in enumerate(keys):
        at = f"{path}.{LIST_KEYS}[{index}]"
        found = described.get(key) if isinstance(described, dict) else None
        if not isinstance(found, dict):
            yield causes.invalid_value(at, key, "must be a field of the items")
        elif found.get("type") not in _SCALARS and not found.get(INT_OR_STRING):
            yield causes.invalid_value(at, key, "must be a plain field")
        elif "default" not in found and key not in _words(items.get("required")):
            yield causes.required(at, "must be required, or have a default")


def _words(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # a wrong kind is told elsewhere


def _is_atomic(items: Schema) -> bool:
    return (items.get(LIST_TYPE, "atomic") == "atomic" and items.get("type") == "array") or (
        items.get(MAP_TYPE) == "atomic"
    )
