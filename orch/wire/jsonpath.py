"""JSONPath templates: `{range .items[*]}{.metadata.name}{"\\n"}{end}`; pure.

The dialect is that of client-go `util/jsonpath`, which operators' scripts are written in: a missing
field has no value, an index beyond a list's end is an error, several values are joined by blanks.
A path is parsed into steps, each a function from one value to those it finds.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

Step = Callable[[Any], list[Any]]

_FIELD = re.compile(r"(?:\\.|[^\\.\[\]{}()\s='\"<>!,|@$])+")
_QUOTED = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_SLICE = re.compile(r"\s*(-?[0-9]*)(?:(:)(-?[0-9]*)(?::(-?[0-9]+))?)?\s*")
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
_BLANKS = re.compile(r"\s*")
_ROOT = re.compile(r"\s*[$@]?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "is": operator.is_, "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip


class JsonPathError(ValueError):
    """A template that cannot be read, or does not fit an object."""


@dataclass(frozen=True, slots=True)
class Path:
    """`.items[0].name`: the steps in order."""

    steps: tuple[Step, ...]

    def find(self, record: Any) -> list[Any]:
        current = [record]
        for step in self.steps:
            current = [found for value in current for found in step(value)]
        return current


@dataclass(frozen=True, slots=True)
class Range:
    """`{range PATH}…{end}`: the body once for each value."""

    path: Path
    body: tuple[Node, ...]


Node = str | Path | Range


def parse(template: str) -> tuple[Node, ...]:
    """The parts of a template; JsonPathError quotes it and says where parsing stopped."""
    return tuple(_Parser(template).nodes(inside_range=False))


def relaxed(path: str) -> tuple[Node, ...]:
    """One path, with or without its braces and leading dot: `metadata.name`, `{.metadata.name}`."""
    bare = path[1:-1] if path.startswith("{") and path.endswith("}") else path
    return parse("{" + (bare if bare.startswith((".", "[", "$", "@")) else f".{bare}") + "}")


def render(nodes: Sequence[Node], record: Any) -> str:
    """The text of a template for one object."""
    return "".join(_rendered(nodes, record))


def _rendered(nodes: Sequence[Node], record: Any) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, str):
            yield node
        elif isinstance(node, Path):
            yield " ".join(map(text, node.find(record)))
        else:
            for value in node.path.find(record):
                yield from _rendered(node.body, value)


def values(nodes: Sequence[Node], record: Any) -> list[Any]:
    """The values the paths of a template find, in order."""
    return [found for node in nodes if isinstance(node, Path) for found in node.find(record)]


def text(value: Any) -> str:
    """One value as text: strings as they are, lists and objects as JSON."""
    if isinstance(value, str):
        return value
    shown = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "" if value is None else shown


def _field(name: str, value: Any) -> list[Any]:
    """`.name`; `*` stands for every member."""
    if name == "*":
        if isinstance(value, dict):
            return [value[key] for key in sorted(value)]
        return list(value) if isinstance(value, list) else []
    return [value[name]] if isinstance(value, dict) and name in value else []


def _everything(value: Any) -> list[Any]:
    """`..`: the value and everything below it."""
    below = value.values() if isinstance(value, dict) else value
    nested = below if isinstance(value, dict | list) else ()
    return [value, *(found for child in nested for found in _everything(child))]


def _index(index: int, value: Any) -> list[Any]:
    if not isinstance(value, list):
        return []
    if not -len(value) <= index < len(value):
        raise JsonPathError(f"the list has {len(value)} elements: there is no [{index}]")
    return [value[index]]


def _filter(left: Path, comparison: str, right: Path, value: Any) -> list[Any]:
    """`?(@.a == "b")`: the elements for which it holds."""
    holds = partial(_holds, left, comparison, right)
    return list(filter(holds, value)) if isinstance(value, list) else []


def _holds(left: Path, comparison: str, right: Path, element: Any) -> bool:
    first, second = left.find(element), right.find(element)
    try:
        return bool(first and second) and _COMPARISONS[comparison](first[0], second[0])
    except TypeError:
        return False  # of different types: no order, no match


class _Parser:
    def __init__(self, source: str) -> None:
        self._text = source
        self._at = 0

    def nodes(self, *, inside_range: bool) -> list[Node]:
        """Parts until the text ends, or until the `{end}` of a range."""
        found: list[Node] = []
        while self._at < len(self._text):
            begin = self._text.find("{", self._at)
            stop = len(self._text) if begin < 0 else begin
            if stop > self._at:
                found.append(self._text[self._at : stop])
            self._at = stop + 1
            if begin >= 0 and self._action(found):
                if inside_range:
                    return found
                raise self._error("{end} without {range}")
        if inside_range:
            raise self._error("{range} without {end}")
        return found

    def _action(self, found: list[Node]) -> bool:
        """The content of a pair of braces, appended; True for `{end}`."""
        while not self._took("}"):
            if self._at >= len(self._text):
                raise self._error("a brace is not closed")
            if self._took(" "):
                continue
            if self._took_word("end"):
                self._expect("}")
                return True
            if self._took_word("range"):
                path = self._path()
                self._expect("}")
                found.append(Range(path, tuple(self.nodes(inside_range=True))))
                return False
            quoted = self._match(_QUOTED)
            found.append(_unquoted(quoted) if quoted else self._path())
        return False

    def _path(self) -> Path:
        self._match(_ROOT)
        steps: list[Step] = []
        while self._at < len(self._text):
            if self._took(".."):
                steps.append(_everything)
                if self._peek() not in ("[", "}", " ", ")"):
                    steps.append(self._name())
            elif self._took("."):
                if self._peek() not in ("}", " ", ")", "["):
                    steps.append(self._name())
            elif self._took("["):
                steps.append(self._brackets())
            elif not steps and _FIELD.match(self._text, self._at):
                steps.append(self._name())
            else:
                break
        if not steps and self._text[self._at - 1 : self._at] not in ("$", "@", "."):
            raise self._error("a path is expected")
        return Path(tuple(steps))

    def _name(self) -> Step:
        found = self._match(_FIELD)
        if not found:
            raise self._error("a field name is expected")
        return partial(_field, re.sub(r"\\(.)", r"\1", found[0]))

    def _brackets(self) -> Step:
        if self._took("?("):
            step = self._condition()
            self._expect(")")
        else:
            members = [self._member()]
            while self._took(","):
                members.append(self._member())
            step = (
                members[0]
                if len(members) == 1
                else lambda value: [v for member in members for v in member(value)]
            )
        self._expect("]")
        return step

    def _member(self) -> Step:
        self._match(_BLANKS)
        if self._took("*"):
            return partial(_field, "*")
        if quoted := self._match(_QUOTED):
            return partial(_field, _unquoted(quoted))
        bounds = self._match(_SLICE)
        if not bounds or not bounds[0].strip():
            raise self._error("an index, a slice or a quoted name is expected")
        if not bounds[2]:
            return partial(_index, int(bounds[1]))
        start, end, step = (int(bounds[n]) if bounds[n] else None for n in (1, 3, 4))
        part = slice(start, end, step or None)
        return lambda value: value[part] if isinstance(value, list) else []

    def _condition(self) -> Step:
        left = self._operand()
        comparison = self._match(_COMPARISON)
        if not comparison:  # whether it exists
            return partial(_filter, left, "is", left)
        return partial(_filter, left, comparison[1], self._operand())

    def _operand(self) -> Path:
        """A path, or a literal as a path that finds just that."""
        self._match(_BLANKS)
        if quoted := self._match(_QUOTED):
            return _literal(_unquoted(quoted))
        if number := self._match(_NUMBER):
            return _literal(float(number[0]))
        for word, value in (("true", True), ("false", False)):
            if self._took_word(word):
                return _literal(value)
        return self._path()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _took(self, expected: str) -> bool:
        found = self._text.startswith(expected, self._at)
        self._at += len(expected) if found else 0
        return found

    def _took_word(self, word: str) -> bool:
        after = self._text[self._at + len(word) : self._at + len(word) + 1]
        return after in ("", " ", "}", ")") and self._took(word)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _expect(self, expected: str) -> None:
        self._match(_BLANKS)
        if not self._took(expected):
            raise self._error(f"{expected!r} is expected")

    def _error(self, what: str) -> JsonPathError:
        return JsonPathError(f"the JSONPath {self._text!r} breaks off at {self._at}: {what}")


def _literal(value: str | float | bool) -> Path:
    return Path((lambda _: [value],))


def _unquoted(found: re.Match[str]) -> str:
    quoted = found[1] if found[1] is not None else found[2]
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted or "")


def go_text(value: Any) -> str:
    """A value as Go's `%v` writes it, which kubectl's texts contain."""
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "<nil>" if value is None else str(value)
