"""Reading a Go template (`{{range .items}}{{.metadata.name}} {{end}}`) into its parts; pure.

The language is that of Go's `text/template`, without `define`, `template` and `block`: a template
of the command line has no others to call. What it gives for an object is `gotemplate`'s business.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from orch.ctl.failures import did_you_mean


class GoTemplateError(ValueError):
    """A template that cannot be read, or does not fit an object."""


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Constant:
    value: Any


@dataclass(frozen=True, slots=True)
class Function:
    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Fields of the dot (base ""), of a variable (`$x`), or of what a pipe in brackets gives."""

    base: str | Pipe
    fields: tuple[str, ...] = ()


Operand = Constant | Function | Chain


@dataclass(frozen=True, slots=True)
class Pipe:
    """Commands, each given the value of the one before; `variables` take the last one's value."""

    commands: tuple[tuple[Operand, ...], ...]
    variables: tuple[str, ...] = ()
    declares: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """`if`, `with` or `range`, and what stands behind its `else`."""

    word: str
    pipe: Pipe
    body: tuple[Node, ...]
    other: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """`break` or `continue`."""

    word: str


Node = Text | Pipe | Block | Leave

_ACTION = re.compile(
    r"\{\{(?P<left>-(?=\s))?\s*(?P<inner>/\*.*?\*/|"
    r'(?:"(?:\\.|[^"\\\n])*"|`[^`]*`|[^"`}]|\}(?!\}))*?)\s*(?P<right>(?<=\s)-)?\}\}',
    re.DOTALL,
)
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<string>"(?:\\.|[^"\\])*"|`[^`]*`)|(?P<number>[-+]?\d+(?:\.\d+)?)"""
    r"""|(?P<variable>\$\w*(?:\.\w+)*)|(?P<field>(?:\.[^\W\d]\w*)+|\.)|(?P<word>[^\W\d]\w*)"""
    r"""|(?P<sign>:=|[=|(),])"""
)
_BLOCKS = ("if", "with", "range")
_CONSTANTS = {"true": True, "false": False, "nil": None}


class _Token(NamedTuple):
    kind: str
    text: str
    glued: bool  # nothing stands between it and the token before


def parse(text: str, functions: Collection[str]) -> tuple[Node, ...]:
    """The parts of a template that may call these functions; GoTemplateError says what is wrong."""
    try:
        reader = _Reader(_pieces(text), functions)
        nodes, end = reader.nodes()
    except RecursionError:
        raise GoTemplateError("the template is nested too deeply") from None
    if end:
        raise GoTemplateError(f"the template has {{{{{end}}}}} without a beginning")
    return nodes


def _pieces(text: str) -> list[str | list[_Token]]:
    """Text and actions in turn, the blanks cut that `{{-` and `-}}` cut."""
    pieces: list[str | list[_Token]] = []
    at, cut = 0, False
    for match in _ACTION.finditer(text):
        pieces.append(_plain(text[at : match.start()], cut=cut, end=bool(match["left"])))
        if not match["inner"].startswith("/*"):
            pieces.append(_tokens(match["inner"]))
        at, cut = match.end(), bool(match["right"])
    pieces.append(_plain(text[at:], cut=cut, end=False))
    return pieces


def _plain(text: str, *, cut: bool, end: bool) -> str:
    if "{{" in text:
        shown = text[text.index("{{") :][:30]
        raise GoTemplateError(f"the template breaks off: {shown!r} is not closed")
    text = text.lstrip() if cut else text
    return text.rstrip() if end else text


def _tokens(inner: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, glued = 0, False
    while at < len(inner):
        match = _TOKEN.match(inner, at)
        if match is None:
            raise GoTemplateError(f"the template has {inner[at]!r} where nothing like it may stand")
        at = match.end()
        if match.lastgroup != "space":
            tokens.append(_Token(str(match.lastgroup), match.group(), glued))
        glued = match.lastgroup != "space"
    return tokens


class _Reader:
    """Takes pieces, and of an action its tokens, from the front."""

    def __init__(self, pieces: list[str | list[_Token]], functions: Collection[str]) -> None:
        self._pieces = pieces[::-1]
        self._tokens: list[_Token] = []
        self._functions = functions

    def nodes(self) -> tuple[tuple[Node, ...], str]:
        """What stands before the next `end` or `else`, and which it is; "" at the end of all."""
        found: list[Node] = []
        while self._pieces:
            piece = self._pieces.pop()
            if isinstance(piece, str):
                found += [Text(piece)] if piece else []
                continue
            self._tokens = piece[::-1]
            word = self._next().text if self._is_word("end", "else") else ""
            if word:
                if word == "end":
                    self._finished()
                return tuple(found), word
            found.append(self._node())
        return tuple(found), ""

    def _node(self) -> Node:
        if self._is_word("break", "continue"):
            leave = Leave(self._next().text)
            self._finished()
            return leave
        return self._block() if self._is_word(*_BLOCKS) else self._whole_pipe()

    def _block(self) -> Block:
        word = self._next().text
        pipe = self._whole_pipe()
        body, end = self.nodes()
        other: tuple[Node, ...] = ()
        if end == "else" and self._is_word(*_BLOCKS):
            return Block(word, pipe, body, (self._block(),))
        if end == "else":
            self._finished()
            other, end = self.nodes()
        if end != "end":
            raise GoTemplateError(f"the template breaks off: {{{{{word}}}}} has no {{{{end}}}}")
        return Block(word, pipe, body, other)

    def _whole_pipe(self) -> Pipe:
        pipe = self._pipe()
        self._finished()
        return pipe

    def _pipe(self) -> Pipe:
        variables, declares = self._variables()
        commands = [self._command()]
        while self._is("|"):
            self._next()
            commands.append(self._command())
        return Pipe(tuple(commands), variables, declares)

    def _variables(self) -> tuple[tuple[str, ...], bool]:
        """`$x :=`, `$x =` and `$k, $v :=`."""
        ahead = [token.text for token in self._tokens[::-1][:4]]
        for names in (ahead[:1], ahead[:3:2]):
            used = 2 * len(names)
            sign = ahead[used - 1] if len(ahead) >= used > 0 else ""
            if sign in (":=", "=") and names[0].startswith("$"):
                del self._tokens[-used:]
                return tuple(names), sign == ":="
        return (), False

    def _command(self) -> tuple[Operand, ...]:
        operands = []
        while self._tokens and not self._is("|") and not self._is(")"):
            operands.append(self._operand())
        if not operands:
            raise GoTemplateError("the template has {{ }} or a | with nothing to show")
        return tuple(operands)

    def _operand(self) -> Operand:
        token = self._next()
        if token.kind == "string":
            return Constant(_unquoted(token.text))
        if token.kind == "number":
            return Constant(float(token.text) if "." in token.text else int(token.text))
        if token.kind in ("variable", "field"):
            base, *fields = token.text.split(".")
            return Chain(base, tuple(field for field in fields if field))
        if token.kind == "word":
            return self._named(token.text)
        if token.text == "(":
            return self._bracket()
        raise GoTemplateError(f"the template has an unexpected {token.text!r}")

    def _named(self, word: str) -> Operand:
        if word in _CONSTANTS:
            return Constant(_CONSTANTS[word])
        if word not in self._functions:
            hint = did_you_mean(word, self._functions)
            raise GoTemplateError(f"the template calls {word!r}, which is no function{hint}")
        return Function(word)

    def _bracket(self) -> Chain:
        pipe = self._pipe()
        if not self._is(")"):
            raise GoTemplateError("the template has a bracket that is not closed")
        self._next()
        fields: tuple[str, ...] = ()
        if self._tokens and self._tokens[-1].kind == "field" and self._tokens[-1].glued:
            fields = tuple(self._next().text.split(".")[1:])
        return Chain(pipe, fields)

    def _finished(self) -> None:
        if self._tokens:
            raise GoTemplateError(f"the template has an unexpected {self._tokens[-1].text!r}")

    def _is(self, sign: str) -> bool:
        return bool(self._tokens) and self._tokens[-1][:2] == ("sign", sign)

    def _is_word(self, *words: str) -> bool:
        return bool(self._tokens) and self._tokens[-1].text in words

    def _next(self) -> _Token:
        return self._tokens.pop()


def _unquoted(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        raise GoTemplateError(f"the template has {text}, which is no text") from None
