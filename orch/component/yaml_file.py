"""YAML and JSON files: read strictly, with the line of every value, and written as `kubectl` does.

Duplicate keys are refused, the old implicit types (`on`, `0755`, `1:30`, dates) stay text or
decimal numbers, and neither aliases nor `%TAG` can expand a small file into a large value. Errors
name `file:line: field`. Written text has sorted keys and block scalars for several lines.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FieldPath = tuple[str | int, ...]
MAX_BYTES = 10 * 1024 * 1024
_MAX_VALUES = 200_000
_MAX_DEPTH = 100
_ALIASED_MAX = 1024 * 1024  # characters that aliases may add
_SHOWN_MAX = 200  # characters of a field path
_LONG = 128  # characters of a text that no pattern is tried on
_TEXT, _INTEGER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:int"
# Own tags are refused anyway; libyaml compares each directive with all before it, and gives each
# value a copy of its prefix.
_TAG_DIRECTIVE = re.compile(rb"(?:\A|[\n\r\x85\xa8\xa9\xbf])%TAG")


class YamlError(Exception):
    """The file does not parse; the text begins with `source:line:`."""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: plain JSON data, and for each field path the line it starts on."""

    source: str
    value: Any
    lines: Mapping[FieldPath, int] = field(default_factory=dict)

    def place(self, path: FieldPath) -> str:
        """`source:line` of the nearest known ancestor of a path."""
        for end in range(len(path), -1, -1):
            line = self.lines.get(path[:end])
            if line is not None:
                return f"{self.source}:{line}"
        return self.source


def show_path(path: FieldPath) -> str:
    """`a.b[0].c`, the way errors name a field."""
    shown = ""
    for part in path:
        shown += f"[{part}]" if isinstance(part, int) else f".{part}" if shown else part
    return shown


def read_yaml_file(path: Path) -> Document:
    """Read and parse one file; OSError is the caller's, YamlError names the place."""
    return parse_yaml(read_content(path), source=str(path))


def read_content(path: Path) -> bytes:
    """The file up to just beyond MAX_BYTES, which `parse_yaml` refuses. OSError."""
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def parse_yaml(raw: str | bytes, *, source: str, most: int = _MAX_VALUES) -> Document:
    """Parse one document of JSON data with at most so many values; an empty document is None."""
    if len(raw) > MAX_BYTES:
        raise YamlError(f"{source}: larger than {MAX_BYTES // 2**20} MiB")
    try:
        raw = _utf8(raw)
        _check_bounds(raw, source, most)
        root = yaml.compose(raw, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise YamlError(f"{source}:{line}: {_problem(error)}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError(f"{source}: {' '.join(str(error).split())}") from None
    if root is None:
        return Document(source, None)
    builder = _Builder(source, most, len(raw) + _ALIASED_MAX)
    return Document(source, builder.build(root, ()), builder.lines)


def _utf8(raw: str | bytes) -> bytes:
    if isinstance(raw, str):
        return raw.encode()
    is_utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16").encode() if is_utf16 else raw


def _problem(error: yaml.MarkedYAMLError) -> str:
    """The problem; for a second document PyYAML's own text is only half a sentence."""
    if (error.problem or "").startswith("but "):
        return f"{error.context}, {error.problem}"
    return error.problem or error.context or "it cannot be read"


def _check_bounds(raw: bytes, source: str, most: int) -> None:
    """Refuse before composing: the C composer recurses until it crashes and keeps every node."""
    if directive := _TAG_DIRECTIVE.search(raw):
        line = raw.count(b"\n", 0, directive.end()) + 1
        raise YamlError(f"{source}:{line}: %TAG is not supported")
    depth = values = 0
    for event in yaml.parse(raw, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        values += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > _MAX_DEPTH or values > 2 * most:  # keys count too
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise YamlError(f"{source}:{line}: too many or too deeply nested values")


class _Loader(yaml.CSafeLoader):
    """The C loader with JSON's scalar types instead of YAML 1.1's."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        """Patterns take long on a long text: no number but a whole one, which is refused."""
        if kind is yaml.ScalarNode and len(value) > _LONG:
            is_number = implicit[0] and value.lstrip("+-").isdecimal()
            return _INTEGER if is_number else _TEXT
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))
_Loader.yaml_implicit_resolvers.setdefault("", []).append(
    ("tag:yaml.org,2002:null", re.compile(r"^$"))
)


class _Builder:
    """`most` values of `length` characters in all."""

    def __init__(self, source: str, most: int, length: int) -> None:
        self.source = source
        self._most = most
        self._length = length
        self.lines: dict[FieldPath, int] = {}
        self._values = 0

    def build(self, node: yaml.Node, path: FieldPath) -> Any:
        line = node.start_mark.line + 1
        self._values += 1
        if self._values > self._most or len(path) > _MAX_DEPTH:
            raise YamlError(f"{self.source}:{line}: too many or too deeply nested values")
        self.lines[path] = line
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, line)

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlError(f"{self.source}:{line}: a key must be text")
            key = self._text(key_node, line)
            if key in built:
                shown = show_path((*path, key))[:_SHOWN_MAX]
                raise YamlError(f"{self.source}:{line}: {shown}: the key is given twice")
            built[key] = self.build(value_node, (*path, key))
            self.lines[(*path, key)] = line
        return built

    def _text(self, node: yaml.Node, line: int) -> str:
        text = str(node.value)
        self._length -= len(text)
        if self._length < 0:
            raise YamlError(f"{self.source}:{line}: aliases make it too large")
        return text

    def _scalar(self, node: yaml.Node, line: int) -> Any:
        text = self._text(node, line)
        kind = node.tag.rpartition(":")[2]
        match kind:
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" | "float":
                return self._number(kind, text, line)
        raise YamlError(
            f"{self.source}:{line}: tags are not supported; quote a text with ! in front"
        )

    def _number(self, kind: str, text: str, line: int) -> int | float:
        """The text is not quoted in errors: it may be a secret without quotes."""
        if kind == "int" and len(text) > 40:
            raise YamlError(f"{self.source}:{line}: the number is too long; quote a text")
        try:
            number = int(text) if kind == "int" else float(text)
        except ValueError:
            raise YamlError(
                f"{self.source}:{line}: it has the tag of a number and is none"
            ) from None
        if not math.isfinite(number):  # JSON has no such number
            raise YamlError(f"{self.source}:{line}: the number is too large; quote a text")
        return number


_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Texts that other readers take for a boolean or a number, beyond those that PyYAML quotes.
_AMBIGUOUS = re.compile(
    r"[yYnN]|[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9_]+)?"
    r"|[-+]?0[xXoObB][0-9a-fA-F_]+"
)


class _Dumper(_BASE):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        """No name of a type is long: only what begins like a number could be one."""
        if kind is yaml.ScalarNode and len(value) > _LONG:
            return _TEXT
        return str(super().resolve(kind, value, implicit))


def _represent(dumper: Any, text: str) -> Any:
    if "\n" in text:
        style = "|"
    elif _looks_like_a_value(dumper, text):
        style = '"'
    else:
        style = None
    return dumper.represent_scalar(_TEXT, text, style=style)


def _looks_like_a_value(dumper: Any, text: str) -> bool:
    if len(text) > _LONG:
        return text[0] in "-+.0123456789"
    return bool(
        _AMBIGUOUS.fullmatch(text) or dumper.resolve(yaml.ScalarNode, text, (True, False)) != _TEXT
    )


_Dumper.add_representer(str, _represent)


def dump(value: Any, *, only_ascii: bool = False) -> str:
    """The YAML text, without the final line break; ambiguous text is quoted."""
    text = str(yaml.dump(value, Dumper=_Dumper, allow_unicode=not only_ascii, width=2**31 - 1))
    return text.removesuffix("\n")
