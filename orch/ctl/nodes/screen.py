"""The live view of `orchctl node top`: its keys, what is scrolled into sight, and the terminal.

The terminal is given back as it was, however the view ends. Knows nothing of nodes.
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

_BEGIN, _END, _HOME = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[J"
_KEY = re.compile(r"\x1b\[\d*[A-Z~]|.", re.DOTALL)
_SCROLLED = {
    "k": -1, "\x1b[A": -1, "j": 1, "\x1b[B": 1,
    "\x1b[5~": -10, "\x1b[6~": 10, " ": 10, "g": -(10**9), "G": 10**9,
}  # fmt: skip
_SORTS = {"n": "name", "c": "cpu", "m": "memory", "p": "pressure"}
_HELP = "q quit   ↑↓ scroll   sort by: n name, c cpu, m memory, p pressure"
_KEY_BYTES = 256


class Screen:
    """`sort_by` is what the keys chose last; `ended` is set by q."""

    def __init__(self, sort_by: str) -> None:
        self.sort_by = sort_by
        self.ended = False
        self._top = 0
        self._pressed = asyncio.Event()

    def press(self, typed: str) -> None:
        """Take what was typed: one key or several."""
        for key in _KEY.findall(typed):
            self.ended = self.ended or key in ("q", "Q")
            self.sort_by = _SORTS.get(key, self.sort_by)
            self._top = max(0, self._top + _SCROLLED.get(key, 0))
        self._pressed.set()

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
        """The head, as many of the lines as fit, and what the keys do."""
        size = shutil.get_terminal_size()
        room = max(size.lines - len(head) - 1, 1)
        self._top = min(self._top, max(0, len(lines) - room))
        shown = lines[self._top : self._top + room]
        page = [*head, *shown, *[""] * (room - len(shown)), _HELP[: size.columns]]
        print(_HOME + "\n".join(page), end="", flush=True)

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
