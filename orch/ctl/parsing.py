"""The parsers of the command line, made from the table of commands.

`main` parses with them; completion and the manual page read the same definitions. The words of a
command are parsed in two steps, so that the options of every command may stand anywhere and only
the command that runs is imported.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from orch.component.terminal import one_line
from orch.ctl import failures, options
from orch.ctl.command_table import Entry, Verb

_UNKNOWN = "unrecognized arguments: "
_NO_KUSTOMIZE = "kustomizations are not built here: pipe the output of 'kustomize build' to -f -"
_NOT_OFFERED = {
    "-k": _NO_KUSTOMIZE,
    "--kustomize": _NO_KUSTOMIZE,
}
_IGNORED = "ignored explicit argument"  # argparse's words for a value of an option without one
# https://pkg.go.dev/strconv#ParseBool
_TRUE = ("true", "1", "t", "T", "TRUE", "True")
_FALSE = ("false", "0", "f", "F", "FALSE", "False")
_LEVELS = range(11)
EXIT_CODES = (
    "Exit codes: 0 done, 1 failed (one line on standard error says why), 2 usage, 130 interrupted."
)


class Parser(argparse.ArgumentParser):
    """Errors are one line: the fault, what may have been meant, where to read more.

    Boolean flags also take a value (`--watch=false`), as those of kubectl do. The usage shows the
    arguments that `own` adds and only mentions the options of every command.
    """

    def __init__(self, *, own: Callable[[Any], None] | None = None, **settings: Any) -> None:
        self._own = own
        self.actions: list[argparse.Action] = []  # all that the help shows, and positional ones
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings
        )

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        if not names[0].startswith("-") or settings.get("help") != argparse.SUPPRESS:
            self.actions.append(action)
            _accept_values(self, action)
        return action

    def option(self, word: str) -> argparse.Action | None:
        """The option that a word is, or sets to a value."""
        name = word.partition("=")[0]
        return next((action for action in self.actions if name in action.option_strings), None)

    def needs_value(self, word: str) -> bool:
        """Whether a word is an option whose value is the next word."""
        action = self.option(word)
        return action is not None and action.nargs is None and "=" not in word

    def format_help(self) -> str:
        if self._own:
            bare = argparse.ArgumentParser(self.prog)
            self._own(bare)
            usage = " ".join(bare.format_usage().removeprefix("usage: ").split())
            self.usage = f"{usage} [options]".replace("%", "%%")
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        message = one_line(self._explained(message))
        self.exit(failures.USAGE, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")

    def _explained(self, message: str) -> str:
        """Without the values of unknown options: one may be a misspelt `--token=…`."""
        if not message.startswith(_UNKNOWN):
            return message.replace(_IGNORED, "takes true, false or nothing, not")
        words = message.removeprefix(_UNKNOWN).split()
        shown = [w.partition("=")[0] for w in words if w.startswith("-")] or words
        if shown[0] in _NOT_OFFERED:
            return _NOT_OFFERED[shown[0]]
        known = [name for action in self.actions for name in action.option_strings]
        return f"{_UNKNOWN}{' '.join(shown)}{failures.did_you_mean(shown[0], known)}"


def _accept_values(container: Any, action: argparse.Action) -> None:
    """Let a boolean flag take a truth value, and `-v` a level; help does not show the spellings."""
    spelt: list[tuple[int, list[str]]] = []
    names = action.option_strings
    if isinstance(action.const, bool):
        for value, words in ((True, _TRUE), (False, _FALSE)):
            spelt.append((value, [f"{name}={word}" for name in names for word in words]))
    elif "-v" in names:
        spelt = [(n, [f"-v={n}", f"-v{n}", f"--v={n}"]) for n in _LEVELS]
    hidden = {"dest": action.dest, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    for const, spellings in spelt:
        container.add_argument(*spellings, action="store_const", const=const, **hidden)


def _add_global_options(parser: Parser) -> None:
    """Add the options of every command, without their defaults, which would overwrite values."""
    group = parser.add_argument_group("options of every command")
    for names, text, settings in options.OPTIONS:
        action = group.add_argument(*names, help=text, **{**settings, "default": argparse.SUPPRESS})
        parser.actions.append(action)
        _accept_values(group, action)


def default_options() -> argparse.Namespace:
    """The options of every command as they are when none is given."""
    found = argparse.Namespace()
    for names, _, settings in options.OPTIONS:
        dest = settings.get("dest") or names[-1].removeprefix("--").replace("-", "_")
        setattr(found, dest, settings.get("default", ""))
    return found


def group_parser(words: str, table: Mapping[str, Entry], text: str) -> Parser:
    """A parser for the options of every command and one word of the table; it leaves the rest."""
    prog = f"orchctl {words}".rstrip()
    kinds = "examples of one command" if words else "one command"
    parser = Parser(
        prog=prog,
        usage=f"{prog} COMMAND … [options]",
        description=f"{text}{_listed(table)}",
        epilog=f"'{prog} COMMAND --help' shows {kinds}. {EXIT_CODES}",
    )
    _add_global_options(parser)
    parser.add_argument("command", metavar="COMMAND", help=f"one of {', '.join(table)}")
    rest = parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False  # so that no message names it
    return parser


def command_parser(words: str, entry: Entry, command: Verb) -> Parser:
    """The parser of one command: its own arguments and the options of every command."""
    parser = Parser(
        own=command.add_arguments,
        prog=f"orchctl {words}",
        usage=f"orchctl {words} …",  # replaced when the help is shown
        description=entry.text + _listed(entry.below),
        epilog=f"examples:\n{_indented(command.EXAMPLES)}",
    )
    command.add_arguments(parser)
    _add_global_options(parser)
    return parser


def joined(words: Sequence[str]) -> list[str]:
    """The words with `-v 6` as one, as kubectl takes it: a level is not a name."""
    result: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            return [*result, *words[number:]]
        if result and result[-1] in ("-v", "--v") and word in map(str, _LEVELS):
            result[-1] = f"-v={word}"
        else:
            result.append(word)
    return result


def _listed(table: Mapping[str, Entry]) -> str:
    """The words of a table and what they do, for a description."""
    rows = "\n".join(f"  {word:15} {entry.text}" for word, entry in table.items())
    return f"\n\ncommands:\n{rows}" if table else ""


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())
