"""Reading a JSONPath template (`{range .items[*]}{.metadata.name}{"\\n"}{end}`) into its parts.

The dialect is that of client-go `util/jsonpath`, which operators' scripts are written in. What a
template gives for an object is `jsonpath`'s business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Operator = Literal["==", "!=", "<=", ">=", "<", ">", "exists"]


class JsonPathError(ValueError):
    """A template that cannot be read, or does not fit an object."""


@dataclass(frozen=True, slots=True)
class Field:
    """`.name` or `['name']`; `*` stands for every member."""

    name: str


@dataclass(frozen=True, slots=True)
class Recursive:
    """`..`: the value and everything below it."""


@dataclass(frozen=True, slots=True)
class Slice:
    """`[start:end:step]`; `[n]` is `exact`, and an error when there is no such element."""

    start: int | None
    end: int | None
    step: int | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Union:
    """`['a','b']` or `[0,2]`."""

    steps: tuple[Field | Slice, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """`?(@.a == "b")`: the elements for which it holds."""

    left: Path | Literal_
    operator: Operator
    right: Path | Literal_


@dataclass(frozen=True, slots=True)
class Literal_:
    value: str | float | bool


Step = Field | Recursive | Slice | Union | Filter


@dataclass(frozen=True, slots=True)
class Path:
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Range:
    """`{range PATH}…{end}`: the body once for each value."""

    path: Path
    body: tuple[Node, ...]


Node = Text | Path | Range

_FIELD = re.compile(r"(?:\\.|[^\\.\[\]{}()\s='\"<>!,|@$])+")
_QUOTED = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_SLICE = re.compile(r"\s*(-?[0-9]*)(?:(:)(-?[0-9]*)(?::(-?[0-9]+))?)?\s*")
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def parse(template: str) -> tuple[Node, ...]:
    """The parts of a template; JsonPathError quotes it and says where it breaks off."""
    reader = _Reader(template)
    nodes = reader.nodes(inside_range=False)
    return tuple(nodes)


def relaxed(path: str) -> tuple[Node, ...]:
    """One path, with or without its braces and leading dot: `metadata.name`, `{.metadata.name}`."""
    bare = path[1:-1] if path.startswith("{") and path.endswith("}") else path
    return parse("{" + (bare if bare.startswith((".", "[", "$", "@")) else f".{bare}") + "}")


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def nodes(self, *, inside_range: bool) -> list[Node]:
        """Parts until the text ends, or until the `{end}` of a range."""
        found: list[Node] = []
        while self._at < len(self._text):
            begin = self._text.find("{", self._at)
            stop = len(self._text) if begin < 0 else begin
            if stop > self._at:
                found.append(Text(self._text[self._at : stop]))
            self._at = stop + 1
            if begin >= 0 and self._action(found):
                if inside_range:
                    return found
                raise self._error("{end} without {range}")
        if inside_range:
            raise self._error("{range} without {end}")
        return found

    def _action(self, found: list[Node]) -> bool:
        """What stands between braces, appended; True for `{end}`."""
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
            found.append(self._text_or_path())
        return False

    def _text_or_path(self) -> Node:
        quoted = self._match(_QUOTED)
        return Text(_unquoted(quoted)) if quoted else self._path()

    def _path(self) -> Path:
        self._match(re.compile(r"\s*[$@]?"))
        steps: list[Step] = []
        while self._at < len(self._text):
            if self._took(".."):
                steps.append(Recursive())
                if self._peek() not in ("[", "}", " ", ")"):
                    steps.append(self._field())
            elif self._took("."):
                if self._peek() not in ("}", " ", ")", "["):
                    steps.append(self._field())
            elif self._took("["):
                steps.append(self._brackets())
            elif not steps and self._match_ahead(_FIELD):
                steps.append(self._field())
            else:
                break
        if not steps and self._text[self._at - 1 : self._at] not in ("$", "@", "."):
            raise self._error("a path is expected")
        return Path(tuple(steps))

    def _field(self) -> Field:
        found = self._match(_FIELD)
        if not found:
            raise self._error("a field name is expected")
        return Field(re.sub(r"\\(.)", r"\1", found[0]))

    def _brackets(self) -> Step:
        if self._took("?("):
            step: Step = self._filter()
            self._expect(")")
        else:
            members = [self._member()]
            while self._took(","):
                members.append(self._member())
            step = members[0] if len(members) == 1 else Union(tuple(members))
        self._expect("]")
        return step

    def _member(self) -> Field | Slice:
        self._match(re.compile(r"\s*"))
        if self._took("*"):
            return Field("*")
        quoted = self._match(_QUOTED)
        if quoted:
            return Field(_unquoted(quoted))
        bounds = self._match(_SLICE)
        if not bounds or not bounds[0].strip():
            raise self._error("an index, a slice or a quoted name is expected")
        start, colon, end, step = bounds.groups()
        if not colon:
            return Slice(int(start), None, exact=True)
        return Slice(_number(start), _number(end), _number(step))

    def _filter(self) -> Filter:
        left = self._operand()
        comparison = self._match(_COMPARISON)
        if not comparison:
            return Filter(left, "exists", left)
        operator: Operator = comparison[1]  # type: ignore[assignment]
        return Filter(left, operator, self._operand())

    def _operand(self) -> Path | Literal_:
        self._match(re.compile(r"\s*"))
        if quoted := self._match(_QUOTED):
            return Literal_(_unquoted(quoted))
        if number := self._match(_NUMBER):
            return Literal_(float(number[0]))
        for word, value in (("true", True), ("false", False)):
            if self._took_word(word):
                return Literal_(value)
        return self._path()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _took(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _took_word(self, word: str) -> bool:
        after = self._text[self._at + len(word) : self._at + len(word) + 1]
        return after in ("", " ", "}", ")") and self._took(word)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _match_ahead(self, pattern: re.Pattern[str]) -> bool:
        return pattern.match(self._text, self._at) is not None

    def _expect(self, text: str) -> None:
        self._match(re.compile(r"\s*"))
        if not self._took(text):
            raise self._error(f"{text!r} is expected")

    def _error(self, what: str) -> JsonPathError:
        return JsonPathError(f"the JSONPath {self._text!r} breaks off at {self._at}: {what}")


def _unquoted(found: re.Match[str]) -> str:
    text = found[1] if found[1] is not None else found[2]
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text or "")


def _number(text: str | None) -> int | None:
    return int(text) if text else None
