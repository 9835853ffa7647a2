"""`orchctl`: finds the command, imports only its module, and turns errors into lines.

Every command has `add_arguments(parser)`, `run(args) -> int` (the exit code) and `EXAMPLES`. The
options of every command may stand before or after its words.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from orch.ctl import command_table, failures, parsing
from orch.ctl.command_table import COMMANDS, Entry, Verb
from orch.ctl.parsing import Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0, 1 for a failure (2, by exit, for usage)."""
    if "_ARGCOMPLETE" in os.environ:  # set by the script of 'orchctl completion'
        from orch.ctl.settings import completion

        completion.answer_shell()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if words == ["--version"]:
        words = ["version", "--client"]
    command, args = parse(words)
    try:
        code = command.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output is gone: nothing can be printed, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failures.FAILED
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        line = failures.explain(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return failures.USAGE if isinstance(error, failures.WrongUsage) else failures.FAILED
    return code


def parse(words: Sequence[str]) -> tuple[Verb, argparse.Namespace]:
    """The command that the words name, and its arguments; exits with code 2 for wrong usage."""
    text = "Ask and change a cluster through its API server."
    outer = parsing.group_parser("", COMMANDS, text)
    args = outer.parse_args(parsing.joined(words), parsing.default_options())
    name, entry = _named(outer, COMMANDS, args.command)
    second = _second_word(outer, args.rest)
    if entry.advice and second and second not in entry.below:
        outer.error(f"there is no '{name} {second}' here: {entry.advice}")
    if entry.below and (not entry.module or second in entry.below):
        middle = parsing.group_parser(name, entry.below, entry.text)
        args = middle.parse_args(args.rest, args)
        lower, entry = _named(middle, entry.below, args.command)
        name = f"{name} {lower}"
    command = entry.load()
    parser = parsing.command_parser(name, entry, command)
    return command, parser.parse_intermixed_args(args.rest, args)


def _named(parser: Parser, table: Mapping[str, Entry], word: str) -> tuple[str, Entry]:
    name = word if word in table else command_table.ALIASES.get(word, "")
    if name not in table:
        parser.error(f"there is no command {word!r}{_suggestion(word, table)}")
    return name, table[name]


def _suggestion(word: str, table: Mapping[str, Entry]) -> str:
    """A command with a similar name, or one that follows another word: `node top`."""
    if word in command_table.KUBECTLS.split() and table is COMMANDS:
        return ": it is one of kubectl's; docs/kubectl.md says which of those work here"
    behind = (f": did you mean '{first} {word}'?" for first, e in table.items() if word in e.below)
    return next(behind, "") or failures.did_you_mean(word, table)


def _second_word(parser: Parser, rest: Sequence[str]) -> str:
    """The word that follows the command's first, after options of every command; "" if none."""
    words = iter(rest)
    for word in words:
        if not word.startswith("-"):
            return word
        if not parser.option(word):
            break
        if parser.needs_value(word):
            next(words, "")
    return ""


if __name__ == "__main__":
    sys.exit(main())
