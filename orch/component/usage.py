"""How a daemon's command line reads values that several programs take, and answers wrong ones."""

from __future__ import annotations

import argparse
from typing import NoReturn

from orch.wire.durations import parse_duration

USAGE = 2  # the exit code


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without listing every flag."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")


def duration(text: str) -> float:
    """A flag's type: seconds of `5m30s`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def boolean(text: str) -> bool:
    """A flag's type: `true` or `1`, `false` or `0`."""
    if text.lower() in ("true", "1"):
        return True
    if text.lower() in ("false", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
