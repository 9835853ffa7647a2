"""The parsers of the command line, made from the table of commands.

`main` parses with them, completion and the manual read the same definitions.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from orch.ctl import failures, options, switches
from orch.ctl.commands import Command, Entry

_UNKNOWN = "unrecognized arguments: "
_NOT_OFFERED = {"--server-side": "server-side apply is not offered: leave it out"}
_VALUE = "ignored explicit argument"  # of an option that takes none


class Parser(argparse.ArgumentParser):
    """Errors are one line: what does not fit, what may have been meant, where to read on.

    `own` are the arguments that the usage shows; of the global options it says only that they are.
    """

    own: Sequence[argparse.Action] = ()

    def format_help(self) -> str:
        if self.own:
            self.usage = self.whole_usage()
        return super().format_help()

    def whole_usage(self) -> str:
        """Every argument of its own, on one line."""
        shown = [copy.copy(action) for action in self.own]
        for action in shown:  # argparse hides those of words while it reads the options
            action.nargs = getattr(action, "save_nargs", action.nargs)
        formatter = argparse.HelpFormatter(self.prog)
        formatter.add_usage(None, shown, [], prefix="")
        return f"{' '.join(formatter.format_help().split())} [options]"

    def error(self, message: str) -> NoReturn:
        message = failures.one_line(self._explained(message))
        self.exit(failures.USAGE, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            hint = failures.did_you_mean(str(value), known)
            raise argparse.ArgumentError(action, f"{value!r} is none of {', '.join(known)}{hint}")

    def _explained(self, message: str) -> str:
        """Without the values of options that are unknown: one may be a misspelt `--token=…`."""
        if not message.startswith(_UNKNOWN):
            return message.replace(_VALUE, "takes true, false or nothing, not")
        words = message.removeprefix(_UNKNOWN).split()
        shown = [w.partition("=")[0] for w in words if w.startswith("-")] or words
        if shown[0] in _NOT_OFFERED:
            return _NOT_OFFERED[shown[0]]
        known = [name for name in self._option_string_actions if "=" not in name]
        hint = failures.did_you_mean(shown[0], known)
        return f"{_UNKNOWN}{' '.join(shown)}{hint}"


def defaults() -> argparse.Namespace:
    """The global options as they are when none is given."""
    parser = argparse.ArgumentParser(add_help=False)
    options.add_to(parser, defaults=True)
    return parser.parse_args([])


def words_parser(prog: str, table: Mapping[str, Entry], description: str, epilog: str) -> Parser:
    """A parser that takes global options, one word of the table, and leaves the rest."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} COMMAND … [options]",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=description,
        epilog=epilog,
    )
    options.add_to(parser, defaults=False)
    switches.take_values(parser)
    parser.add_argument("command", metavar="COMMAND", help=f"one of {', '.join(table)}")
    rest = parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False  # nothing that a message should name
    return parser


def command_parser(words: str, text: str, command: Command) -> Parser:
    """The parser of one command: its own arguments and the global options."""
    parser = Parser(
        prog=f"orchctl {words}",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=text,
        epilog=f"examples:\n{_indented(command.EXAMPLES)}",
    )
    command.add_arguments(parser)
    parser.own = list(parser._actions)
    parser.usage = f"{parser.prog} …"  # the whole is written when somebody wants to read it
    options.add_to(parser, defaults=False)
    switches.take_values(parser)
    return parser


def plain_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words that are neither options nor the values of those the parser knows."""
    plain, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            action = parser._option_string_actions.get(word)
            skip = action is not None and action.nargs is None and "=" not in word
        else:
            plain.append(word)
    return plain


def listed(table: Mapping[str, Entry]) -> str:
    """The words of a table and what they do, for a description."""
    return "\n\ncommands:\n" + "\n".join(f"  {word:15} {e.text}" for word, e in table.items())


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())
