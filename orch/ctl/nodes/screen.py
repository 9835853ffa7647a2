"""The live view of `orchctl node top`: its keys, what is scrolled into sight, and the terminal.

The terminal is given back as it was, however the view ends. Knows nothing of nodes. A library for
screens would take longer to import than all of this command, for one list and a dozen keys.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_BEGIN, _END, _HOME = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[J"
_KEY = re.compile(r"\x1b\[\d*[A-Z~]|.", re.DOTALL)
_SCROLLED = {
    "k": -1, "\x1b[A": -1, "j": 1, "\x1b[B": 1,
    "\x1b[5~": -10, "\x1b[6~": 10, " ": 10, "g": -(10**9), "G": 10**9,
}  # fmt: skip
_SORTS = {"n": "name", "c": "cpu", "m": "memory", "p": "pressure"}
_DEPTHS = {"1": 0, "2": 1, "3": 2}
_HINT = "q quit   ? help   / filter   1 2 3 4 views   n c m p sort   ↑↓ scroll"
_HELP = (
    "1  nodes                     n  sort pods by name",
    "2  nodes and pods            c  … by use of cpu",
    "3  … and containers          m  … by memory",
    "4  pressure, on and off      p  … by pressure",
    "/  only pods and containers with this in their name; Esc shows all",
    "↑ ↓ j k  a line              Page up, Page down, Space  ten lines",
    "g  first line                G  last line",
    "?  this help                 q  quit",
)
_KEY_BYTES = 256
_MAX_FILTER = 64
_ESCAPE, _ENTERS, _ERASES = "\x1b", "\r\n", "\x7f\b"


@dataclass(slots=True)
class View:
    """What is shown: down to nodes, pods or containers (`depth` 0 to 2), and of which names."""

    sort_by: str = "name"
    depth: int = 1
    shows_pressure: bool = False
    filter: str = ""


class Screen:
    """`view` is what the keys chose last; `ended` is set by q."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.ended = False
        self._top = 0
        self._is_typing = False  # a filter
        self._helps = False
        self._pressed = asyncio.Event()

    def press(self, typed: str) -> None:
        """Take what was typed: one key or several."""
        for key in _KEY.findall(typed):
            if self._is_typing:
                self._type(key)
            else:
                self._command(key)
        self._pressed.set()

    def _command(self, key: str) -> None:
        view = self.view
        self.ended = self.ended or key in ("q", "Q")
        view.sort_by = _SORTS.get(key, view.sort_by)
        view.depth = _DEPTHS.get(key, view.depth)
        view.shows_pressure ^= key == "4"
        self._top = max(0, self._top + _SCROLLED.get(key, 0))
        self._helps = key == "?" and not self._helps
        if key in ("/", _ESCAPE):
            view.filter, self._is_typing, self._top = "", key == "/", 0

    def _type(self, key: str) -> None:
        """A key of the filter: a printable one, one that erases, or one that ends it."""
        view = self.view
        if key in _ENTERS or key == _ESCAPE:
            self._is_typing = False
        if key == _ESCAPE:
            view.filter = ""
        elif key in _ERASES:
            view.filter = view.filter[:-1]
        elif key.isprintable() and len(view.filter) < _MAX_FILTER:
            view.filter += key

    async def wait(self, seconds: float) -> bool:
        """Wait for a key, at most so long; whether one came."""
        try:
            async with asyncio.timeout(seconds):
                await self._pressed.wait()
        except TimeoutError:
            return False
        self._pressed.clear()
        return True

    def draw(self, head: Sequence[str], lines: Sequence[str]) -> None:
        """The head, as many of the lines as fit or the help, and what the keys do."""
        size = shutil.get_terminal_size()
        if self._helps:
            head, lines = (), [line[: size.columns] for line in _HELP]
        room = max(size.lines - len(head) - 1, 1)
        self._top = min(self._top, max(0, len(lines) - room))
        shown = lines[self._top : self._top + room]
        page = [*head, *shown, *[""] * (room - len(shown)), self._hint()[: size.columns]]
        print(_HOME + "\n".join(page), end="", flush=True)

    def _hint(self) -> str:
        if self._is_typing:
            return f"filter: {self.view.filter}_   Enter keeps it, Esc shows all"
        return f"/{self.view.filter}   {_HINT}" if self.view.filter else _HINT

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Show the other screen and read keys, where there is a keyboard."""
        print(_BEGIN, end="")
        keyboard = sys.stdin.fileno() if sys.stdin.isatty() else -1
        try:
            if keyboard < 0:
                yield
                return
            with self._reading(keyboard):
                yield
        finally:
            print(_END, end="", flush=True)

    @contextmanager
    def _reading(self, keyboard: int) -> Iterator[None]:
        """Keys come one by one and are not shown; Ctrl-C remains an interrupt."""
        saved = termios.tcgetattr(keyboard)
        loop = asyncio.get_running_loop()
        tty.setcbreak(keyboard)
        loop.add_reader(keyboard, self._read, keyboard)
        try:
            yield
        finally:
            loop.remove_reader(keyboard)
            termios.tcsetattr(keyboard, termios.TCSADRAIN, saved)

    def _read(self, keyboard: int) -> None:
        typed = os.read(keyboard, _KEY_BYTES)
        self.press(typed.decode(errors="replace") or "q")  # nothing: the terminal is gone
