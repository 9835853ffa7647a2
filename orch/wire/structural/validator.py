"""Values held against a structural schema, by the library `jsonschema_rs`: the only door to it.

Its patterns are matched in linear time, without backtracking. It holds the interpreter while it
works, so a large schema is compiled in parts of few nodes, a text that is held against a pattern is
bounded, each such text is matched by a call of its own, between which others have their turn, and
of a large object only the first problem of each part is looked for. Each problem that it tells
comes with copies of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import jsonschema_rs
import orjson

from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.patch.patch import count_values

Schema = Mapping[str, Any]

PATTERN_MAX = 2000  # characters
_PATTERN_BYTES = 50_000  # compiled
# How many characters are held against a pattern that compiled takes so many bytes: the slowest that
# were found take 0.03, 2, 2 and 5 µs for each when they are first met, so a text takes 10 to 15 ms
# at most. (With a bound on the automaton that is made meanwhile, every text took that.)
_TEXT_BOUNDS = ((1_000, 65_536), (5_000, 8_192), (20_000, 4_096), (_PATTERN_BYTES, 2_048))
_PATTERN_FORMAT = "pattern "  # a format of that name stands for the pattern that follows
_ESCAPES = re.compile(r"\\[dDsSwWc]")
_ESCAPES_MAX = 50  # the library takes time with the square of their number: 9 ms for these
_PART_NODES = 150  # about 5 ms to compile
# Values, or 200 bytes of JSON, in a copy for each node: beyond, only the first problem is told.
_COPIED_MAX = 20_000

_COPIED = ("maxLength", "minLength", "maxItems", "minItems", "multipleOf", "enum", "required",
           "maxProperties", "minProperties")  # fmt: skip
_FORMATS = ("date", "date-time", "email", "hostname", "ipv4", "ipv6", "uri")
_LIMITS = (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum"))
_INT_OR_STRING = "x-kubernetes-int-or-string"
_EMBEDDED = "x-kubernetes-embedded-resource"
_TEXTS = {
    "maximum": "should be less than or equal to {limit}",
    "minimum": "should be greater than or equal to {limit}",
    "exclusiveMaximum": "should be less than {limit}",
    "exclusiveMinimum": "should be greater than {limit}",
    "maxLength": "should be at most {limit} chars long",
    "minLength": "should be at least {limit} chars long",
    "maxItems": "should have at most {limit} items",
    "minItems": "should have at least {limit} items",
    "maxProperties": "should have at most {limit} properties",
    "minProperties": "should have at least {limit} properties",
    "multipleOf": "should be a multiple of {multiple_of}",
    "format": "should be in the format {format}",
    "falseSchema": "is too long to be held against its pattern ("
                   f"{_TEXT_BOUNDS[0][1]} characters, {_TEXT_BOUNDS[-1][1]} where that is complex)",
    "anyOf": "must fit one of the alternatives in anyOf",
    "oneOf": "must fit exactly one of the alternatives in oneOf",
    "not": "must not fit the schema in not",
}  # fmt: skip
_ALTERNATIVES = ("anyOf", "oneOf")


Formats = dict[str, Callable[[str], bool]]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A compiled pattern, and how long a text may be that is held against it."""

    text_bound: int
    compiled: jsonschema_rs.Draft7Validator

    def fits(self, text: str) -> bool:
        return self.compiled.is_valid(text)


@lru_cache(maxsize=2048)
def _pattern(pattern: str) -> _Pattern | str:
    """What is wrong with a pattern that cannot be used."""
    if len(pattern) > PATTERN_MAX:
        return f"may not be longer than {PATTERN_MAX} characters"
    if len(_ESCAPES.findall(pattern)) > _ESCAPES_MAX:
        return f"may not have more than {_ESCAPES_MAX} escapes of classes such as \\d"
    for size, text_bound in _TEXT_BOUNDS:
        options = jsonschema_rs.RegexOptions(size_limit=size)
        try:
            compiled = jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=options)
        except ValueError:
            continue
        return _Pattern(text_bound, compiled)
    return "must be a regular expression without look-around and back-references, and small"


def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern; "" for one that can be used."""
    made = _pattern(pattern)
    return made if isinstance(made, str) else ""


@dataclass(slots=True, eq=False)
class Validator:
    """One part of a schema, and the parts below it that are compiled by themselves."""

    own: jsonschema_rs.Draft7Validator
    nodes: int  # how many problems a value may have
    has_patterns: bool  # here or below
    fields: dict[str, Validator] = field(default_factory=dict)
    others: Validator | None = None
    items: Validator | None = None

    def problems(self, value: Any, path: tuple[str | int, ...] = ()) -> Iterator[Cause]:
        """What does not fit, with its path."""
        if not self.own.is_valid(value):
            yield from self._told(value, path)
        if isinstance(value, dict) and (self.fields or self.others):
            for name, item in value.items():
                if (below := self.fields.get(name) or self.others) is not None:
                    yield from below.problems(item, (*path, name))
        elif isinstance(value, list) and self.items is not None:
            for index, item in enumerate(value):
                yield from self.items.problems(item, (*path, index))

    def _told(self, value: Any, path: tuple[str | int, ...]) -> Iterator[Cause]:
        size = max(count_values(value), len(orjson.dumps(value)) // 200)
        if size * max(self.nodes, 20) <= _COPIED_MAX:
            for error in self.own.iter_errors(value):
                yield _cause(error, value, path)
            return
        try:
            self.own.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield _cause(error, value, path)


def compile_schema(schema: Schema) -> Validator:
    """ValueError for a schema that the library does not take, or would take long with."""
    if _nodes(schema) <= _PART_NODES:
        return _part(schema)
    inside = ("properties", "items", "additionalProperties")
    own = {name: rule for name, rule in schema.items() if name not in inside}
    if _of_items(own) > _PART_NODES:
        raise ValueError("allOf, anyOf, oneOf and not hold items of a list against too much")
    made = _part(own)
    for name, below in (schema.get("properties") or {}).items():
        made.fields[name] = compile_schema(below)
    if isinstance(schema.get("items"), dict):
        made.items = compile_schema(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        made.others = compile_schema(schema["additionalProperties"])
    parts = [*made.fields.values(), *filter(None, (made.items, made.others))]
    made.has_patterns |= any(part.has_patterns for part in parts)
    return made


def _part(schema: Schema) -> Validator:
    formats: Formats = {}
    translated = _translated(schema, formats)
    compiled = jsonschema_rs.Draft7Validator(
        translated, formats=formats, validate_formats=True, ignore_unknown_formats=True
    )
    return Validator(compiled, _nodes(schema), bool(formats))


def _below(schema: Schema) -> list[Schema]:
    members = (schema.get(name) or () for name in ("allOf", *_ALTERNATIVES))
    below = [*(schema.get("properties") or {}).values(), *chain.from_iterable(members),
             *(schema.get(name) for name in ("items", "additionalProperties", "not"))]  # fmt: skip
    return [each for each in below if isinstance(each, dict)]


def _nodes(schema: Schema) -> int:
    """The nodes that a value is held against, and the fields it must have; quadratic in the depth.

    Multiples, and options that are no strings, take 1 to 25 µs each: one value in a call.
    """
    is_slow = "multipleOf" in schema or {*map(type, schema.get("enum", ()))} - {str}
    own = 1 + len(schema.get("required", ())) + (_PART_NODES if is_slow else 0)
    return own + sum(map(_nodes, _below(schema)))


def _of_items(schema: Schema) -> int:
    """The nodes that each item of a list is held against, all in one call."""
    items = schema.get("items")
    return sum(_nodes(each) if each is items else _of_items(each) for each in _below(schema))


def _translated(schema: Schema, formats: Formats) -> dict[str, Any]:
    """The same rules as JSON Schema draft 7, without what is no rule about a value; patterns become
    `formats`.
    """
    below = partial(_translated, formats=formats)
    made = {name: schema[name] for name in _COPIED if name in schema} | _own_rules(schema, formats)
    joined = [*made.get("allOf", ()), *map(below, schema.get("allOf") or ())]
    for name in _ALTERNATIVES:
        if name in schema:  # by itself it tells a copy of the value for each: 5 GB of a 3 MB text
            fits = {name: [*map(below, schema[name])]}
            joined.append({"if": fits, "else": {"not": {"title": name}}})
    if joined:
        made["allOf"] = joined
    for name in ("not", "items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            made[name] = below(schema[name])
    if "properties" in schema:
        made["properties"] = {name: below(each) for name, each in schema["properties"].items()}
    if schema.get(_EMBEDDED):
        made["required"] = sorted({*made.get("required", ()), "apiVersion", "kind"})
    return made


def _own_rules(schema: Schema, formats: Formats) -> dict[str, Any]:
    """The rules that are written in another way."""
    made: dict[str, Any] = {}
    kinds = ["integer", "string"] if schema.get(_INT_OR_STRING) else [schema.get("type")]
    if kinds != [None]:
        made["type"] = [*kinds, "null"] if schema.get("nullable") else kinds
    for limit, exclusive in _LIMITS:
        if limit in schema:
            made[exclusive if schema.get(exclusive) else limit] = schema[limit]
    if schema.get("format") in _FORMATS:
        made["format"] = schema["format"]
    if "pattern" in schema:
        pattern = _pattern(schema["pattern"])
        if isinstance(pattern, str):
            raise ValueError(f"the pattern {schema['pattern']!r} {pattern}")
        name = f"{_PATTERN_FORMAT}{schema['pattern']}"
        formats[name] = pattern.fits
        rule = {"if": {"maxLength": pattern.text_bound}, "then": {"format": name}, "else": False}
        made["allOf"] = [rule]
    return made


def _cause(error: jsonschema_rs.ValidationError, value: Any, path: tuple[str | int, ...]) -> Cause:
    """The library's error with this server's text: its own may hold all of a large value."""
    for part in error.instance_path:
        value = value[part]
    at = path_text((*path, *error.instance_path))
    kind: Any = error.kind
    match kind.name:
        case "required":
            return causes.required(f"{at}.{kind.property}" if at else kind.property)
        case "type":
            return causes.wrong_type(at, value, " or ".join(kind.types))
        case "enum":
            options = kind.options if isinstance(kind.options, list) else [kind.options]
            return causes.not_supported(at, value, map(str, options[:100]))
    name = kind.schema.get("title", "not") if kind.name == "not" else kind.name
    text = _TEXTS.get(name, f"does not fit {name}").format_map(_Told(kind))
    if kind.name == "format" and kind.format.startswith(_PATTERN_FORMAT):
        text = f"should match '{kind.format.removeprefix(_PATTERN_FORMAT)}'"
    return causes.invalid_value(at, value if isinstance(value, str | int | float) else
                                causes.json_type(value), text)  # fmt: skip


class _Told(dict[str, Any]):
    """What an error tells, by name."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, name: str) -> Any:
        return getattr(self._kind, name, "")


def path_text(path: tuple[str | int, ...]) -> str:
    """`spec.items[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]
