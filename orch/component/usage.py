"""How a daemon's command line answers what it does not understand."""

from __future__ import annotations

import argparse
from typing import NoReturn

USAGE = 2  # the exit code


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without listing every flag."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")
