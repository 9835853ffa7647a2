"""What may be said of a switch besides its name: `--watch=false`, `--force=true`, `-v=6`, `-v 6`.

The spellings are entered only into the parser's table of exact words: help, completion and the
manual show the switch by its plain name.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

# https://pkg.go.dev/strconv#ParseBool
_YES = ("true", "1", "t", "T", "TRUE", "True")
_NO = ("false", "0", "f", "F", "FALSE", "False")
_LEVELS = range(11)


class _Off(argparse.Action):
    """Takes a switch back."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, False)


class _Level(argparse.Action):
    """Sets a counted switch to the number that its spelling ends in."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, int(str(option_string).lstrip("-v=")))


def take_values(parser: argparse.ArgumentParser) -> None:
    """Let every switch of a parser take a truth value, and `-v` a level, after `=`."""
    words = parser._option_string_actions
    for action in list(parser._actions):
        if isinstance(action, argparse._StoreTrueAction):
            off = _Off(action.option_strings, action.dest, nargs=0)
            for name in action.option_strings:
                words.update({f"{name}={value}": action for value in _YES})
                words.update({f"{name}={value}": off for value in _NO})
        elif isinstance(action, argparse._CountAction):
            level = _Level(action.option_strings, action.dest, nargs=0)
            words.update(dict.fromkeys(_levels(action.option_strings), level))


def joined(words: Sequence[str]) -> list[str]:
    """The words with `-v 6` as one, as `kubectl` takes it: a level is no name."""
    result: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            return [*result, *words[number:]]
        if result and result[-1] in ("-v", "--v") and word in map(str, _LEVELS):
            result[-1] = f"-v={word}"
        else:
            result.append(word)
    return result


def _levels(names: Sequence[str]) -> list[str]:
    """`-v=6`, `-v6` and `--v=6`."""
    return [
        spelled
        for name in names
        for level in _LEVELS
        for spelled in (f"{name}={level}", f"{name}{level}", f"-{name}={level}")
    ]
