"""The output formats, `-o`: reading the option, and printing objects in the format asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orch.component.terminal import visible
from orch.ctl.failures import CommandFailed, did_you_mean
from orch.ctl.output import printing
from orch.wire import jsonpath
from orch.wire.jsonpath import Node

DATA = ("json", "yaml", "jsonpath")
OF_CHANGES = (*DATA, "name", "wide")
OF_OBJECTS = (*OF_CHANGES, "custom-columns")
_TEMPLATED = ("jsonpath", "custom-columns")
_NO_VALUE = "<none>"


@dataclass(frozen=True, slots=True)
class Format:
    """A format; `name` is "" for the command's own, `template` that of jsonpath."""

    name: str = ""
    template: tuple[Node, ...] = ()
    columns: tuple[tuple[str, tuple[Node, ...]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.name)

    @property
    def is_table(self) -> bool:
        """Whether to show the server's own table."""
        return self.name in ("", "wide")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the value of `-o`: one of the formats named."""

    names: Sequence[str]

    @property
    def spellings(self) -> list[str]:
        """The names, with an equals sign where a template follows."""
        return [f"{name}=" if name in _TEMPLATED else name for name in self.names]

    def __call__(self, text: str) -> Format:
        name, equals, template = text.partition("=")
        if not text:
            return Format()
        if name not in self.names:
            hint = did_you_mean(name, self.names)
            known = ", ".join(self.names)
            raise argparse.ArgumentTypeError(f"{name!r} is not a format{hint}: use {known}")
        if bool(equals) != (name in _TEMPLATED):
            fault = f"{name} takes no value" if equals else f"{name} needs a template"
            raise argparse.ArgumentTypeError(f"{fault}: see --help")
        return _templated(name, template) if equals else Format(name)


def add_to(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add `-o` with some of the formats."""
    reader = Reader(names)
    shown = ", ".join(name.replace("=", "=…") for name in reader.spellings)
    parser.add_argument(
        "-o", "--output", type=reader, default="", metavar="FORMAT", help=f"output format: {shown}"
    )


def _templated(name: str, text: str) -> Format:
    try:
        if name == "jsonpath":
            return Format(name, template=jsonpath.parse(text))
        return Format(name, columns=tuple(_column(part) for part in text.split(",")))
    except jsonpath.JsonPathError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _column(text: str) -> tuple[str, tuple[Node, ...]]:
    header, _, path = text.partition(":")
    if not header or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not a column: write HEADER:.path.of.field")
    return header, jsonpath.relaxed(path)


def show(wanted: Format, value: Any) -> None:
    """Print data (an object, or a `List`) as JSON, YAML or by a template."""
    if wanted.name == "json":
        print(printing.as_json(value))
    elif wanted.name == "yaml":
        print(printing.as_yaml(value))
    else:
        _show_template(wanted.template, value)


def _show_template(template: tuple[Node, ...], value: Any) -> None:
    try:
        text = jsonpath.render(template, value)
    except jsonpath.JsonPathError as error:
        raise CommandFailed(str(error)) from None
    # No line break is added for scripts; on a terminal the prompt begins on a new line.
    breaks = text and not text.endswith("\n") and sys.stdout.isatty()
    print(text, end="\n" if breaks else "")


def column_rows(
    wanted: Format, records: Sequence[Mapping[str, Any]], *, headers: bool
) -> list[list[str]]:
    """The rows of custom columns."""
    rows = [[_cell(nodes, record) for _, nodes in wanted.columns] for record in records]
    return [[name for name, _ in wanted.columns], *rows] if headers else rows


def _cell(nodes: tuple[Node, ...], record: Mapping[str, Any]) -> str:
    try:
        found = jsonpath.values(nodes, record)
    except jsonpath.JsonPathError:
        found = []
    return visible(",".join(map(jsonpath.go_text, found))) or _NO_VALUE
