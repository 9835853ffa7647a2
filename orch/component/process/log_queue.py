"""Lines to a descriptor whose reader may have stopped: no program waits for it.

A line is written at once while the descriptor takes it, else it waits in a bounded queue that a
thread empties in order. O_NONBLOCK belongs to the open file, which a daemon shares with whoever
started it, so the inherited one is left alone: a pipe or terminal is opened anew, and what cannot
be (a socket, a pipe of another user) is asked first whether it takes PIPE_BUF bytes.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from select import PIPE_BUF

from orch.component.process import threads

MAX_LINES = 5000
MAX_BYTES = 1024 * 1024
LAST_WORDS_S = 1.0  # what is said at the end may hold up the end for so long


class LogQueue:
    """From the first line that has no room on, lines are dropped until the queue is empty.

    `notice` makes the line that then tells how many.
    """

    def __init__(self, descriptor: int, notice: Callable[[int], bytes]) -> None:
        self.dropped = 0  # ever
        self._untold = 0
        self._notice = notice
        self._waiting: deque[bytes] = deque()
        self._lines_in_first = 1  # what a write did not take goes back as one piece
        self._bytes = 0
        self._lock = threading.Condition()
        self._is_served = False  # somebody empties the queue: only that one polls and writes
        self._descriptor = _own(descriptor)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)

    def write(self, line: bytes) -> None:
        """Never waits. A line that is refused (no reader, no space left) is gone and counted."""
        with self._lock:
            self._put(line)
            if self._is_served:  # by the thread, or, in a finaliser, by who is being interrupted
                return
            self._is_served, is_served = True, False
            try:
                is_served = not self._write_ready() and self._start_thread()
            finally:
                self._is_served = is_served

    def finish(self, within_s: float) -> None:
        """Wait until nothing waits any more, but not for longer."""
        with self._lock:
            self._lock.wait_for(lambda: not self._is_served, within_s)

    def _put(self, line: bytes) -> None:
        full = len(self._waiting) >= MAX_LINES or self._bytes + len(line) > MAX_BYTES
        if self._untold or (self._waiting and full):
            self._untold += 1
            self.dropped += 1
        else:
            self._append(line)

    def _append(self, line: bytes) -> None:
        self._waiting.append(line)
        self._bytes += len(line)

    def _write_ready(self) -> bool:
        """Write while the descriptor takes it; whether that was all."""
        while self._has_more():
            if not self._poll.poll(0):
                return False
            self._write_some()
        return True

    def _has_more(self) -> bool:
        """Whether a line waits; after the last one comes what tells how many were dropped."""
        if self._untold and not self._waiting:
            self._append(self._notice(self._untold))
            self._untold = 0
        return bool(self._waiting)

    def _write_some(self) -> None:
        """As many lines as one write takes whole, or a part of one that is longer."""
        data, lines = self._waiting.popleft(), self._lines_in_first
        while self._waiting and len(data) + len(self._waiting[0]) <= PIPE_BUF:
            data += self._waiting.popleft()
            lines += 1
        self._bytes -= len(data)
        try:
            rest = data[os.write(self._descriptor, data[:PIPE_BUF]) :]
        except BlockingIOError:  # another program was faster
            rest = data
        except OSError:
            self.dropped += lines
            rest = b""
        self._lines_in_first = lines if rest else 1
        if rest:
            self._waiting.appendleft(rest)
            self._bytes += len(rest)

    def _start_thread(self) -> bool:
        try:
            threads.start(self._serve, lambda: None, name="log lines")
        except threads.NoThreadError:
            return False  # the next line tries again
        return True

    def _serve(self) -> None:
        """Empty the queue, however long that takes; a writer waits for one write at most."""
        while True:
            self._poll.poll()
            with self._lock:
                self._write_some()
                if not self._has_more():
                    self._is_served = False
                    self._lock.notify_all()
                    return


def _own(descriptor: int) -> int:
    """Another descriptor of the same file, one that does not block where the kernel gives one."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{descriptor}", flags)
    return os.dup(descriptor)


def say_last(text: str) -> None:
    """Print a program's last line on standard error, unless that takes none for a second."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something else
        print(text, file=sys.stderr)  # noqa: T201
        return
    write_last(descriptor, f"{text}\n".encode(errors="backslashreplace"))


def write_last(descriptor: int, data: bytes) -> None:
    """Write what is taken within LAST_WORDS_S; takes no lock, so that signal handlers may call."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    deadline_s = time.monotonic() + LAST_WORDS_S
    with contextlib.suppress(OSError):
        while data and poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            data = data[os.write(descriptor, data[:PIPE_BUF]) :]
