"""The audit log: JSON lines in a file of bounded size and age, written by a thread of its own.

A request never waits for the disk. What cannot be written is counted and logged once; the next
line is tried again. `-` is standard output, which is not rotated.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

MAX_WAITING = 100_000  # lines; beyond it the disk cannot keep up, and lines are dropped
MAX_WAITING_BYTES = 64 * 1024 * 1024
CLOSE_TIMEOUT_S = 5.0
_STAMP = "%Y-%m-%dT%H-%M-%S.%f"


@dataclass(frozen=True, slots=True)
class Rotation:
    """0: unlimited. `max_bytes` per file, `max_files` rotated files, kept `max_days`."""

    max_bytes: int = 100 * 1024 * 1024
    max_files: int = 10
    max_days: int = 30


class AuditLog:
    """`write` takes a line from any thread; `on_error` is called for each dropped line."""

    def __init__(self, path: str, rotation: Rotation, on_error: Callable[[], None]) -> None:
        self._file = None if path == "-" else _RotatedFile(Path(path), rotation)
        self._on_error = on_error
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queued_bytes = 0  # ever
        self._written_bytes = 0  # by the thread, which alone changes it
        self._thread: threading.Thread | None = None
        self._outage = OnceLog(log, logging.ERROR)

    def open(self) -> None:
        """Start writing; SetupError when the file cannot be used."""
        if self._file is not None:
            try:
                self._file.open()
            except OSError as error:
                text = f"cannot write --audit-log-path {self._file.path}: {error.strerror}"
                raise SetupError(text) from error
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue one line, including its newline."""
        waiting_bytes = self._queued_bytes - self._written_bytes + len(line)
        full = self._lines.qsize() >= MAX_WAITING or waiting_bytes > MAX_WAITING_BYTES
        if self._thread is None or full:
            self._on_error()
            return
        self._queued_bytes += len(line)
        self._lines.put(line)

    def close(self) -> None:
        """Write the queued lines; blocks, but not for a disk that hangs."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._lines.put(None)
            thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._take()
            if batch:
                self._write(batch)
                self._written_bytes += sum(map(len, batch))
        if self._file is not None:
            self._file.close()

    def _take(self) -> tuple[list[bytes], bool]:
        batch: list[bytes] = []
        line = self._lines.get()
        while line is not None:
            batch.append(line)
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _write(self, batch: list[bytes]) -> None:
        try:
            if self._file is None:
                sys.stdout.buffer.write(b"".join(batch))
                sys.stdout.buffer.flush()
            else:
                self._file.write(batch)
        except (OSError, ValueError) as error:
            for _ in batch:
                self._on_error()
            text = "requests are served but not written to the audit log: %s"
            self._outage.failed(text, error)
        else:
            self._outage.recovered("the audit log is written again")


class _RotatedFile:
    """The file at `path`, and rotated files beside it, named by the time of rotation.

    What is no regular file (a link, a device such as /dev/stdout) is written to and never moved.
    """

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self.path = path
        self._rotation = rotation
        self._descriptor = -1
        self._size = 0

    def open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size
        if self._rotation.max_bytes and not stat.S_ISREG(self.path.lstat().st_mode):
            log.warning("%s is not a regular file: it is never rotated", self.path)
            self._rotation = replace(self._rotation, max_bytes=0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, lines: list[bytes]) -> None:
        """Write whole lines; after an OSError some of them may be written, but no partial line."""
        for line in lines:
            bound = self._rotation.max_bytes
            if bound and self._size and self._size + len(line) > bound:
                self._rotate()
            if self._descriptor < 0:
                self.open()
            try:
                self._append(line)
            except OSError:
                with contextlib.suppress(OSError):  # pipes and devices cannot be truncated
                    os.ftruncate(self._descriptor, self._size)
                raise
            self._size += len(line)

    def _append(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _rotate(self) -> None:
        self.close()
        stamp = clock.utc_now().strftime(_STAMP)
        os.replace(self.path, self.path.with_name(f"{self.path.stem}-{stamp}{self.path.suffix}"))
        self.open()
        self._drop_old()

    def _drop_old(self) -> None:
        """Delete rotated files beyond the configured number and age."""
        older = sorted(self._older(), reverse=True)
        keep = self._rotation.max_files or len(older)
        oldest = clock.utc_now() - timedelta(days=self._rotation.max_days or 36500)
        for position, (moment, path) in enumerate(older):
            if position >= keep or moment < oldest:
                path.unlink(missing_ok=True)

    def _older(self) -> list[tuple[datetime, Path]]:
        found = []
        prefix, suffix = f"{self.path.stem}-", self.path.suffix
        for path in self.path.parent.iterdir():
            name = path.name
            if not (name.startswith(prefix) and name.endswith(suffix)):
                continue
            try:
                stamp = name[len(prefix) : len(name) - len(suffix)]
                found.append((datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC), path))
            except ValueError:
                continue  # not a file of this log
        return found
