"""Label and field selectors: parsed from `?labelSelector=` and `?fieldSelector=`, and matched.

Grammar and meaning follow apimachinery `labels/selector.go` and `fields/selector.go`. Which field
paths a resource supports is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from orch.wire.validation import label_value_problems, qualified_name_problems

Operator = Literal["in", "notin", "exists", "!", ">", "<"]
_BINARY: dict[str, Operator] = {
    "=": "in", "==": "in", "in": "in", "!=": "notin", "notin": "notin", ">": ">", "<": "<",
}  # fmt: skip
_RECORD_OPERATORS: dict[str, Operator] = {
    "In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!",
}  # fmt: skip
_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+)")
MAX_LENGTH = 16 * 1024  # a request line has at most half of it
MAX_REQUIREMENTS = 100  # each is compared with every object of a list
_INT64 = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One condition; `values` is empty for `exists` and `!`, one number's text for `>` and `<`."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        number = _int64(value)
        (limit,) = (_int64(v) for v in self.values)
        if number is None or limit is None:
            return False
        return number > limit if self.operator == ">" else number < limit


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; none at all matches everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


class FieldRequirement(NamedTuple):
    """`path` `op` `value`; `==` is read as `=`."""

    path: str
    op: Literal["=", "!="]
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All requirements must hold; none at all matches everything."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, get: Callable[[str], str]) -> bool:
        """`get` gives the text of a field path, "" when the object does not have it."""
        return all((get(r.path) == r.value) == (r.op == "=") for r in self.requirements)

    def exact(self, path: str) -> str | None:
        """The only value of `path` that the selector allows; None if it does not fix the value."""
        for requirement in self.requirements:
            if requirement.path == path and requirement.op == "=":
                return requirement.value
        return None


def parse_label_selector(text: str) -> LabelSelector:
    """Read `a=b,c!=d,e in (f,g),!h,i>5`; ValueError quotes the invalid part."""
    selector = _LabelParser(_bounded(text)).parse()
    _require_few(selector.requirements)
    return selector


def label_selector_of(record: Mapping[str, Any]) -> LabelSelector:
    """The selector of a `LabelSelector` record (`matchLabels`, `matchExpressions`); ValueError."""
    requirements = [
        _requirement(str(key), "in", {str(value)})
        for key, value in (record.get("matchLabels") or {}).items()
    ]
    for expression in record.get("matchExpressions") or ():
        name = str(expression.get("operator", ""))
        if name not in _RECORD_OPERATORS:
            raise ValueError(
                f"{name!r} is not a label selector operator: use {', '.join(_RECORD_OPERATORS)}"
            )
        values = {str(value) for value in expression.get("values") or ()}
        key = str(expression.get("key", ""))
        requirements.append(_requirement(key, _RECORD_OPERATORS[name], values))
    return LabelSelector(tuple(requirements))


def parse_field_selector(text: str) -> FieldSelector:
    r"""Read `path=value,path!=value` with the escapes `\\`, `\,` and `\=`; ValueError."""
    terms = re.findall(r"(?:\\.|[^,\\]|\\$)+", _bounded(text), re.DOTALL)
    _require_few(terms)
    return FieldSelector(tuple(_field_requirement(text, term) for term in terms))


def _bounded(text: str) -> str:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a selector may have at most {MAX_LENGTH} characters, not {len(text)}")
    return text


def _require_few(requirements: Sized) -> None:
    if len(requirements) > MAX_REQUIREMENTS:
        raise ValueError(
            f"a selector may have at most {MAX_REQUIREMENTS} requirements, not {len(requirements)}"
        )


def _field_requirement(text: str, term: str) -> FieldRequirement:
    parts = re.match(r"(.*?)(!=|==|=)(.*)", term, re.DOTALL)
    if parts is None:
        raise ValueError(
            f"invalid field selector {text!r}: can't understand {term!r}; write path=value"
        )
    value = parts[3]
    if not re.fullmatch(r"(?:[^\\,=]|\\[\\,=])*", value, re.DOTALL):
        raise ValueError(
            f"invalid field selector {text!r}: in {value!r} write \\\\, \\, and \\= "
            "for a backslash, a comma and an equals sign"
        )
    plain = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
    return FieldRequirement(parts[1], "!=" if parts[2] == "!=" else "=", plain)


def _int64(text: str) -> int | None:
    number = int(text) if _INT64.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _requirement(key: str, operator: Operator, values: set[str]) -> LabelRequirement:
    for problem in qualified_name_problems(key):
        raise ValueError(f"the label key {key!r} is not valid: {problem}")
    if bool(values) != (operator not in ("exists", "!")):
        raise ValueError(f"the operator of the label {key!r} does not fit its {len(values)} values")
    for value in sorted(values):
        if operator in (">", "<") and _int64(value) is None:
            raise ValueError(f"the label value {value!r} is not valid: > and < need an integer")
        for problem in label_value_problems(value):
            raise ValueError(f"the label value {value!r} is not valid: {problem}")
    return LabelRequirement(key, operator, frozenset(values))


class _LabelParser:
    """Recursive descent over the tokens; "" is the end of the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Iterator[str] = iter(_TOKEN.findall(text.rstrip(" \t\r\n")))
        self._next = ""
        self._advance()

    def _advance(self) -> str:
        token, self._next = self._next, next(self._tokens, "")
        return token

    def _fail(self, expected: str) -> ValueError:
        found = self._next or "end of text"
        return ValueError(
            f"unable to parse the label selector {self._text!r}: found {found!r}, "
            f"expected: {expected}"
        )

    def parse(self) -> LabelSelector:
        requirements = []
        while self._next:
            requirements.append(self._parse_requirement())
            if self._next not in (",", ""):
                raise self._fail("',' or end of text")
            if self._advance() and not self._next:
                raise self._fail("a label key after ','")
        return LabelSelector(tuple(requirements))

    def _parse_requirement(self) -> LabelRequirement:
        negated = self._next == "!"
        if negated:
            self._advance()
        if not self._is_identifier():
            raise self._fail("a label key")
        key = self._advance()
        if negated:
            return _requirement(key, "!", set())
        if self._next in (",", ""):
            return _requirement(key, "exists", set())
        if self._next not in _BINARY:
            raise self._fail("in, notin, =, ==, !=, >, <")
        symbol = self._advance()
        values = self._parse_set() if symbol in ("in", "notin") else {self._parse_value()}
        return _requirement(key, _BINARY[symbol], values)

    def _is_identifier(self) -> bool:
        return self._next != "" and self._next[0] not in "=!(),<>"

    def _parse_value(self) -> str:
        if self._next in (",", ""):
            return ""
        if not self._is_identifier():
            raise self._fail("a label value")
        return self._advance()

    def _parse_set(self) -> set[str]:
        """`(a,b)`; nothing between two commas is the empty value."""
        if self._next != "(":
            raise self._fail("'('")
        values: set[str] = set()
        while self._next != ")":
            self._advance()
            values.add(self._advance() if self._is_identifier() else "")
            if self._next not in (",", ")"):
                raise self._fail("',' or ')'")
        self._advance()
        return values
