"""Log lines to a descriptor whose reader may have stopped: no program ever blocks on it.

A line is written at once if the descriptor is writable, else it waits in a bounded queue that a
thread drains in order. O_NONBLOCK belongs to the open file, which a daemon shares with the process
that started it, so the inherited one is left alone: a pipe or terminal is reopened, and what cannot
be reopened (a socket, another user's pipe) is polled for room for PIPE_BUF bytes first.
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
FINAL_WRITE_S = 1.0  # how long the last lines may delay the exit


class LogQueue:
    """Once the queue is full, lines are dropped until it is empty again.

    `notice` renders the line that then reports how many were dropped.
    """

    def __init__(self, descriptor: int, notice: Callable[[int], bytes]) -> None:
        self.dropped = 0  # ever
        self._refused = False  # the last write failed
        self._unreported = 0
        self._notice = notice
        self._waiting: deque[bytes] = deque()
        self._lines_in_first = 1  # what a write did not take goes back as one piece
        self._bytes = 0
        self._lock = threading.Condition()
        self._is_draining = False  # only one thread at a time polls and writes
        self._descriptor = _reopened(descriptor)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)

    @property
    def is_losing_lines(self) -> bool:
        """Whether the latest line was dropped, or may be."""
        return self._refused or self._unreported > 0

    def write(self, line: bytes) -> None:
        """Never blocks. A line that cannot be written (no reader, full disk) counts as dropped."""
        with self._lock:
            self._put(line)
            if self._is_draining:  # by the thread, or by the call that this finaliser interrupts
                return
            self._is_draining, is_draining = True, False
            try:
                is_draining = not self._write_ready() and self._start_thread()
            finally:
                self._is_draining = is_draining

    def finish(self, within_s: float) -> None:
        """Wait until the queue is empty, at most `within_s`."""
        with self._lock:
            self._lock.wait_for(lambda: not self._is_draining, within_s)

    def _put(self, line: bytes) -> None:
        full = len(self._waiting) >= MAX_LINES or self._bytes + len(line) > MAX_BYTES
        if self._unreported or (self._waiting and full):
            self._unreported += 1
            self.dropped += 1
        else:
            self._append(line)

    def _append(self, line: bytes) -> None:
        self._waiting.append(line)
        self._bytes += len(line)

    def _write_ready(self) -> bool:
        """Write while the descriptor is writable; True when the queue is empty."""
        while self._has_more():
            if not self._poll.poll(0):
                return False
            self._write_some()
        return True

    def _has_more(self) -> bool:
        """Whether a line waits; after the last one, the notice of dropped lines is queued."""
        if self._unreported and not self._waiting:
            self._append(self._notice(self._unreported))
            self._unreported = 0
        return bool(self._waiting)

    def _write_some(self) -> None:
        """As many lines as fit into one atomic write, or a part of a line that is longer."""
        data, lines = self._waiting.popleft(), self._lines_in_first
        while self._waiting and len(data) + len(self._waiting[0]) <= PIPE_BUF:
            data += self._waiting.popleft()
            lines += 1
        self._bytes -= len(data)
        try:
            rest = data[os.write(self._descriptor, data[:PIPE_BUF]) :]
            self._refused = False
        except BlockingIOError:  # another program filled the pipe after the poll
            rest = data
        except OSError:
            self.dropped += lines
            self._refused = True
            rest = b""
        self._lines_in_first = lines if rest else 1
        if rest:
            self._waiting.appendleft(rest)
            self._bytes += len(rest)

    def _start_thread(self) -> bool:
        try:
            threads.start(self._drain, lambda: None, name="log lines")
        except threads.NoThreadError:
            return False  # retried with the next line
        return True

    def _drain(self) -> None:
        """Empty the queue, however long that takes; a writer waits for one write at most."""
        while True:
            self._poll.poll()
            with self._lock:
                self._write_some()
                if not self._has_more():
                    self._is_draining = False
                    self._lock.notify_all()
                    return


def _reopened(descriptor: int) -> int:
    """Another descriptor of the same file, non-blocking where it can be reopened."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{descriptor}", flags)
    return os.dup(descriptor)


def print_final_line(text: str) -> None:
    """Print a program's last line on standard error; give up after FINAL_WRITE_S."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something else
        print(text, file=sys.stderr)  # noqa: T201
        return
    write_final(descriptor, f"{text}\n".encode(errors="backslashreplace"))


def write_final(descriptor: int, data: bytes) -> None:
    """Write what fits within FINAL_WRITE_S; takes no lock, so signal handlers may call it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    deadline_s = time.monotonic() + FINAL_WRITE_S
    with contextlib.suppress(OSError):
        while data and poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            data = data[os.write(descriptor, data[:PIPE_BUF]) :]
