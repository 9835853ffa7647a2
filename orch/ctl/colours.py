"""Colours for people: only on a terminal, and never when NO_COLOR is set (no-color.org)."""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO

Colour = Literal["red", "yellow", "green", "dim"]
_CODES = {"red": "31", "yellow": "33", "green": "32", "dim": "2"}


def wanted(stream: TextIO | None = None) -> bool:
    """Whether what is written there may be coloured."""
    shown = stream or sys.stdout
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and shown.isatty()


def painted(text: str, colour: Colour | None, *, on: bool) -> str:
    """The text in a colour, when colours are on."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if on and colour else text
