"""`orchctl man`: manual pages in roff, made from the definitions that also parse the words."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from orch.ctl import commands, parsing
from orch.ctl.commands import Entry
from orch.ctl.failures import WrongUsage, did_you_mean
from orch.wire.names import VERSION

EXAMPLES = """
orchctl man | man -l -
orchctl man get > orchctl-get.1
"""
_EXIT_CODES = (
    ("0", "done"),
    ("1", "failed: one line on standard error per failure, with what to do about it"),
    ("2", "the words of the command line do not fit together"),
    ("130", "interrupted"),
)
_ENVIRONMENT = (
    ("KUBECONFIG", "files with servers and credentials, apart by colons and read as one"),
    ("NO_COLOR", "no colours, also on a terminal"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="the page of this command")


def run(args: argparse.Namespace) -> int:
    print("\n".join(page(tuple(args.words))))
    return 0


def page(words: tuple[str, ...]) -> Iterator[str]:
    """The lines of a page: of one command, or with no words of the whole. WrongUsage."""
    known = dict(commands.walk())
    if not words:
        yield from _whole()
        return
    if words not in known:
        hint = did_you_mean(" ".join(words), [" ".join(one) for one in known])
        raise WrongUsage(f"there is no command {' '.join(words)!r}{hint}")
    yield from _one(words, known[words])


def _whole() -> Iterator[str]:
    yield from _title("orchctl", "ask and change a cluster through its API server")
    yield from (".SH SYNOPSIS", ".B orchctl", "COMMAND \\[u2026] [options]", ".SH COMMANDS")
    for words, entry in commands.walk():
        yield from _item(f"orchctl {' '.join(words)}", entry.text)
    parser = parsing.words_parser("orchctl", commands.COMMANDS, "", "")
    yield ".SH OPTIONS"
    yield from _options(parser)
    yield from _tail()


def _one(words: tuple[str, ...], entry: Entry) -> Iterator[str]:
    command = entry.load()
    parser = parsing.command_parser(" ".join(words), entry.text, command)
    yield from _title("-".join(("orchctl", *words)), entry.text)
    yield from (".SH SYNOPSIS", ".B " + _text(parser.whole_usage()))
    yield ".SH OPTIONS"
    yield from _options(parser)
    yield from (".SH EXAMPLES", ".nf", *map(_text, command.EXAMPLES.strip().splitlines()), ".fi")
    yield from _tail()


def _title(name: str, text: str) -> Iterator[str]:
    yield f'.TH {name.upper().replace("-", chr(92) + "-")} 1 "" "orchctl {VERSION}"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(text)}")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        metavar = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
        shown = "|".join(map(str, action.choices)) if action.choices else str(metavar)
        names = ", ".join(action.option_strings)
        yield from _item(
            f"{names} {shown}".strip() if action.nargs != 0 else names, action.help or ""
        )


def _tail() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code, text in _EXIT_CODES:
        yield from _item(code, text)
    yield ".SH ENVIRONMENT"
    for name, text in _ENVIRONMENT:
        yield from _item(name, text)


def _item(term: str, text: str) -> Iterator[str]:
    yield from (".TP", f".B {_text(term)}", _text(text))


def _text(text: str) -> str:
    """Text that roff shows as it is: no escapes, no requests, minus signs as such."""
    shown = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "\\[u2026]")
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown
