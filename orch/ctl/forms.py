"""The forms of output, `-o`: reading the option, and showing objects in the form asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orch.ctl import printing
from orch.ctl.failures import CommandFailed, did_you_mean, visible

if TYPE_CHECKING:
    from orch.ctl import gotemplate
    from orch.ctl.jsonpath import Node

DATA = ("json", "yaml")
_JSONPATH = ("jsonpath", "jsonpath-file", "jsonpath-as-json")
_GO = ("go-template", "go-template-file")
OF_CHANGES = ("json", "yaml", "name", "wide", *_JSONPATH, *_GO)
OF_OBJECTS = (*OF_CHANGES, "custom-columns", "custom-columns-file")
_NEEDS_MORE = ("jsonpath", "custom-columns", "go-template")
_ALIASES = {"template": "go-template", "templatefile": "go-template-file"}
_NO_VALUE = "<none>"


@dataclass(frozen=True, slots=True)
class Form:
    """A form; `name` is "" for the command's own, `template` that of jsonpath, `go` of Go."""

    name: str = ""
    template: tuple[Node, ...] = ()
    columns: tuple[tuple[str, tuple[Node, ...]], ...] = ()
    go: tuple[gotemplate.Node, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.name)

    @property
    def is_table(self) -> bool:
        """Whether the server's own table is what to show."""
        return self.name in ("", "wide")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the value of `-o`, one of the forms named."""

    names: Sequence[str]

    def __call__(self, text: str) -> Form:
        return _read(text, self.names)


def takes_template(name: str) -> bool:
    """Whether a form is written `name=template`."""
    return name.startswith(_NEEDS_MORE)


def add_to(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add `-o` for some of the forms."""
    shown = [f"{n}=…" if takes_template(n) else n for n in names]
    parser.add_argument(
        "-o", "--output", type=Reader(names), default="", metavar="FORM",
        help=f"form of the output: {', '.join(shown)}",
    )  # fmt: skip


def _read(text: str, names: Sequence[str]) -> Form:
    name, equals, rest = text.partition("=")
    if not text:
        return Form()
    name = _ALIASES.get(name, name)
    if name not in names:
        hint = did_you_mean(name, names)
        raise argparse.ArgumentTypeError(f"{name!r} is no form{hint}: use {', '.join(names)}")
    if bool(equals) != takes_template(name):
        want = f"{name} needs a template" if not equals else f"{name} takes no value"
        raise argparse.ArgumentTypeError(f"{want}: see --help")
    if name.endswith("-file"):
        keep = name.startswith("go-")  # its text is the output, a line break at the end too
        name, rest = name.removesuffix("-file"), _file(rest, keep_end=keep)
    return _templated(name, rest) if equals else Form(name)


def _templated(name: str, text: str) -> Form:
    from orch.ctl import gotemplate, jsonpath

    try:
        if name == "go-template":
            return Form(name, go=gotemplate.parse(text))
        if name.startswith("jsonpath"):
            return Form(name, template=jsonpath.parse(text))
        return Form(name, columns=tuple(_column(part) for part in _column_texts(text)))
    except (jsonpath.JsonPathError, gotemplate.GoTemplateError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _column_texts(text: str) -> list[str]:
    """`A:.x,B:.y`; or of a file a line of headers and one of paths."""
    lines = text.splitlines()
    if len(lines) < 2:
        return text.split(",")
    headers, paths = lines[0].split(), lines[1].split()
    if len(headers) != len(paths):
        raise argparse.ArgumentTypeError(
            f"the file of columns has {len(headers)} headers and {len(paths)} paths"
        )
    return [f"{header}:{path}" for header, path in zip(headers, paths, strict=True)]


def _column(text: str) -> tuple[str, tuple[Node, ...]]:
    from orch.ctl import jsonpath

    header, colon, path = text.partition(":")
    if not header or not colon or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is no column: write HEADER:.path.of.field")
    return header, jsonpath.relaxed(path)


def _file(name: str, *, keep_end: bool) -> str:
    try:
        text = Path(name).read_text(encoding="utf-8")
        return text if keep_end else text.rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise argparse.ArgumentTypeError(f"cannot read {name}: {why}") from None


def show(form: Form, value: Any) -> None:
    """Print data (an object, or a `List`) as JSON, YAML or by a template."""
    if form.name == "json":
        print(printing.as_json(value))
    elif form.name == "yaml":
        print(printing.as_yaml(value))
    elif form.name == "jsonpath-as-json":
        from orch.ctl import jsonpath

        print(printing.as_json(jsonpath.values(form.template, value)))
    elif form.name in ("jsonpath", "go-template"):
        _show_template(form, value)
    else:
        raise AssertionError(f"{form.name} is not a form of data")


def _show_template(form: Form, value: Any) -> None:
    from orch.ctl import gotemplate, jsonpath

    try:
        is_go = form.name == "go-template"
        text = gotemplate.render(form.go, value) if is_go else jsonpath.render(form.template, value)
    except (jsonpath.JsonPathError, gotemplate.GoTemplateError) as error:
        raise CommandFailed(str(error)) from None
    # Without a line break of its own, as scripts expect; a person gets their prompt on a new line.
    breaks = text and not text.endswith("\n") and sys.stdout.isatty()
    print(text, end="\n" if breaks else "")


def column_rows(form: Form, records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The rows of custom columns, without their header."""
    return [[_cell(nodes, record) for _, nodes in form.columns] for record in records]


def _cell(nodes: tuple[Node, ...], record: Mapping[str, Any]) -> str:
    from orch.ctl import gotemplate, jsonpath

    try:
        found = jsonpath.values(nodes, record)
    except jsonpath.JsonPathError:
        found = []
    return visible(",".join(map(gotemplate.text, found))) or _NO_VALUE
