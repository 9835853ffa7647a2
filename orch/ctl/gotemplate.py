"""What a Go template gives for an object; pure. The syntax is in `gotemplate_syntax`.

As in kubectl, a field that is missing shows as `<no value>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from orch.ctl import gotemplate_syntax
from orch.ctl.gotemplate_functions import FUNCTIONS, text
from orch.ctl.gotemplate_syntax import (
    Block,
    Chain,
    Constant,
    Function,
    GoTemplateError,
    Leave,
    Node,
    Operand,
    Pipe,
    Text,
)

__all__ = ["GoTemplateError", "Node", "parse", "render", "text"]

_LAZY = ("and", "or")
_NOTHING: Any = object()  # no value comes from a command before


def parse(template: str) -> tuple[Node, ...]:
    """The parts of a template; GoTemplateError says what is wrong with it."""
    return gotemplate_syntax.parse(template, [*FUNCTIONS, *_LAZY])


def render(nodes: Sequence[Node], record: Any) -> str:
    """The text of a template for one object; GoTemplateError when they do not fit."""
    try:
        return "".join(_Run(record).shown(nodes, record))
    except _Left as left:
        raise GoTemplateError(f"the template has a {left} outside of range") from None


class _Left(Exception):
    """A `break` or `continue`, on its way to its loop."""


class _Run:
    """One rendering: the variables, the innermost scope last."""

    def __init__(self, record: Any) -> None:
        self._scopes: list[dict[str, Any]] = [{"$": record}]

    def shown(self, nodes: Sequence[Node], dot: Any) -> Iterator[str]:
        for node in nodes:
            match node:
                case Text():
                    yield node.text
                case Leave():
                    raise _Left(node.word)
                case Block():
                    yield from self._block(node, dot)
                case Pipe():
                    value = self._value(node, dot)
                    if not node.variables:
                        yield "<no value>" if value is None else text(value)

    def _block(self, block: Block, dot: Any) -> Iterator[str]:
        self._scopes.append({})
        try:
            if block.word == "range":
                yield from self._loop(block, dot)
                return
            value = self._value(block.pipe, dot)
            inner = value if value and block.word == "with" else dot
            yield from self.shown(block.body if value else block.other, inner)
        finally:
            self._scopes.pop()

    def _loop(self, block: Block, dot: Any) -> Iterator[str]:
        pairs = list(_pairs(self._piped(block.pipe, dot)))
        if not pairs:
            yield from self.shown(block.other, dot)
        depth = len(self._scopes)
        for pair in pairs:
            names = block.pipe.variables
            values = pair if len(names) == 2 else pair[1:]
            self._scopes.append(dict(zip(names, values, strict=False)))
            try:
                yield from self.shown(block.body, pair[1])
            except _Left as left:
                if str(left) == "break":
                    return
            finally:
                del self._scopes[depth:]

    def _value(self, pipe: Pipe, dot: Any) -> Any:
        """What a pipe gives; its variable is set."""
        value = self._piped(pipe, dot)
        for name in pipe.variables:
            self._scope(name, declares=pipe.declares)[name] = value
        return value

    def _piped(self, pipe: Pipe, dot: Any) -> Any:
        value = _NOTHING
        for command in pipe.commands:
            value = self._command(command, dot, value)
        return value

    def _scope(self, name: str, *, declares: bool = False) -> dict[str, Any]:
        if declares:
            return self._scopes[-1]
        for scope in self._scopes[::-1]:
            if name in scope:
                return scope
        raise GoTemplateError(f"the template has no variable {name}")

    def _command(self, command: tuple[Operand, ...], dot: Any, before: Any) -> Any:
        first, *rest = command
        if not isinstance(first, Function):
            if rest or before is not _NOTHING:
                raise GoTemplateError("the template gives values to what is no function")
            return self._operand(first, dot)
        arguments = (self._operand(operand, dot) for operand in rest)
        if first.name in _LAZY:
            return _first(first.name, arguments, before)
        return _called(first.name, [*arguments, *([] if before is _NOTHING else [before])])

    def _operand(self, operand: Operand, dot: Any) -> Any:
        match operand:
            case Constant():
                return operand.value
            case Function():
                return _called(operand.name, [])
            case Chain(base=Pipe() as pipe):
                value = self._piped(pipe, dot)
            case Chain(base=""):
                value = dot
            case Chain():
                value = self._scope(str(operand.base))[str(operand.base)]
        for field in operand.fields:
            if value is not None and not isinstance(value, dict):
                raise GoTemplateError(f"the template wants .{field} of {text(value)}, no object")
            value = None if value is None else value.get(field)
        return value


def _called(name: str, arguments: list[Any]) -> Any:
    try:
        return FUNCTIONS[name](*arguments)
    except (TypeError, KeyError, AttributeError):
        shown = ", ".join(map(text, arguments)) or "nothing"
        raise GoTemplateError(f"{name} cannot be called with {shown}") from None


def _first(name: str, arguments: Iterable[Any], before: Any) -> Any:
    """The first value that decides `and` or `or`, else the last one."""
    value = _NOTHING
    for value in arguments:
        if bool(value) is (name == "or"):
            return value
    value = value if before is _NOTHING else before
    if value is _NOTHING:
        raise GoTemplateError(f"{name} needs a value")
    return value


def _pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from ((key, value[key]) for key in sorted(value))
    elif isinstance(value, list):
        yield from enumerate(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((number, number) for number in range(value))
    elif value is not None:
        raise GoTemplateError(f"the template cannot range over {text(value)}")
