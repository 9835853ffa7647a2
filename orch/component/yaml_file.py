"""YAML and JSON files: read strictly, with the line of every value, and written as `kubectl` does.

Duplicate keys are refused, the old implicit types (`on`, `0755`, `1:30`, dates) stay text or
decimal numbers, and aliases cannot expand a small file into a large value. Errors name
`file:line: field`. Written text has sorted keys and block scalars for several lines.
"""

from __future__ import annotations

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
        _check_bounds(raw, source, most)
        root = yaml.compose(raw, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise YamlError(f"{source}:{line}: {_problem(error)}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlError(f"{source}: {' '.join(str(error).split())}") from None
    if root is None:
        return Document(source, None)
    builder = _Builder(source, most)
    return Document(source, builder.build(root, ()), builder.lines)


def _problem(error: yaml.MarkedYAMLError) -> str:
    """The problem; for a second document PyYAML's own text is only half a sentence."""
    if (error.problem or "").startswith("but "):
        return f"{error.context}, {error.problem}"
    return error.problem or error.context or "it cannot be read"


def _check_bounds(raw: str | bytes, source: str, most: int) -> None:
    """Refuse before composing: the C composer recurses until it crashes and keeps every node."""
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
    def __init__(self, source: str, most: int) -> None:
        self.source = source
        self._most = most
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
            key = str(key_node.value)
            if key in built:
                shown = show_path((*path, key))
                raise YamlError(f"{self.source}:{line}: {shown}: the key is given twice")
            built[key] = self.build(value_node, (*path, key))
            self.lines[(*path, key)] = line
        return built

    def _scalar(self, node: yaml.Node, line: int) -> Any:
        text = str(node.value)
        match node.tag.rpartition(":")[2]:
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                if len(text) > 40:  # not quoted, nor is a tag: it may be a secret without quotes
                    raise YamlError(f"{self.source}:{line}: the number is too long; quote a text")
                return int(text)
            case "float":
                return float(text)
        raise YamlError(
            f"{self.source}:{line}: tags are not supported; quote a text with ! in front"
        )


_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Texts that other readers take for a boolean or a number, beyond those that PyYAML quotes.
_AMBIGUOUS = re.compile(
    r"[yYnN]|[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9_]+)?"
    r"|[-+]?0[xXoObB][0-9a-fA-F_]+"
)


class _Dumper(_BASE):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(dumper: Any, text: str) -> Any:
    tag = "tag:yaml.org,2002:str"
    if "\n" in text:
        style = "|"
    elif _AMBIGUOUS.fullmatch(text) or dumper.resolve(yaml.ScalarNode, text, (True, False)) != tag:
        style = '"'
    else:
        style = None
    return dumper.represent_scalar(tag, text, style=style)


_Dumper.add_representer(str, _represent)


def dump(value: Any) -> str:
    """The YAML text, without the final line break; ambiguous text is quoted."""
    text = str(yaml.dump(value, Dumper=_Dumper, allow_unicode=True, width=2**31 - 1))
    return text.removesuffix("\n")
