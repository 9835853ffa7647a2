"""`orchctl`: finds the command, imports only what that one needs, and turns errors into lines.

Every command has `add_arguments(parser)`, `run(args) -> int` (the exit code) and `EXAMPLES`. The
global options may stand before or after the command's words.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from orch.ctl import commands, failures, parsing, switches
from orch.ctl.commands import Command, Entry

_EXIT_CODES = (
    "Exit codes: 0 done, 1 failed (one line on standard error says why), 2 usage, 130 interrupted."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0, 1 for a failure (2, by exit, for usage)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["__complete"]:  # what the scripts of 'orchctl completion' ask
        from orch.ctl import candidates

        return candidates.main(words[1:])
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if words == ["--version"]:
        words = ["version", "--client"]
    args, command = _parse(words)
    try:
        code = int(command.run(args))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is left to say, not even at exit.
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


def _parse(argv: list[str]) -> tuple[argparse.Namespace, Command]:
    outer = parsing.words_parser(
        "orchctl", commands.COMMANDS,
        f"Ask and change a cluster through its API server.{parsing.listed(commands.COMMANDS)}",
        f"'orchctl COMMAND --help' explains one command. {_EXIT_CODES}",
    )  # fmt: skip
    args = outer.parse_args(switches.joined(argv), parsing.defaults())
    words, entry = _chosen(outer, commands.COMMANDS, args)
    if entry.below and (not entry.module or _lower(outer, args.rest) in entry.below):
        middle = parsing.words_parser(
            f"orchctl {words}", entry.below,
            f"{entry.text}{parsing.listed(entry.below)}",
            f"'orchctl {words} COMMAND --help' shows examples of one command. {_EXIT_CODES}",
        )  # fmt: skip
        args = middle.parse_args(args.rest, args)
        lower, entry = _chosen(middle, entry.below, args)
        words = f"{words} {lower}"
    command = entry.load()
    text = entry.text + (parsing.listed(entry.below) if entry.below else "")
    inner = parsing.command_parser(words, text, command)
    return inner.parse_intermixed_args(args.rest, args), command


def _chosen(
    parser: parsing.Parser, table: Mapping[str, Entry], args: argparse.Namespace
) -> tuple[str, Entry]:
    word = args.command if args.command in table else commands.ALIASES.get(args.command, "")
    entry = table.get(word)
    if entry is None:
        hint = _meant(args.command, table)
        parser.error(f"there is no command {args.command!r}{hint}")
    return word, entry


def _meant(word: str, table: Mapping[str, Entry]) -> str:
    """A command called nearly so, or one that stands behind another word: `node top`."""
    behind = (f": did you mean '{one} {word}'?" for one, e in table.items() if word in e.below)
    return next(behind, "") or failures.did_you_mean(word, table)


def _lower(parser: parsing.Parser, rest: Sequence[str]) -> str:
    """The command's second word: the first after global options, "" after others."""
    known = parser._option_string_actions
    own = (n for n, w in enumerate(rest) if w.startswith("-") and w.partition("=")[0] not in known)
    word = next(iter(parsing.plain_words(parser, rest[: next(own, len(rest))])), "")
    return commands.ALIASES.get(word, word)


if __name__ == "__main__":
    sys.exit(main())
