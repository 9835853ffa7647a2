"""Digests or encrypts an archive while the runtime is still writing it.

The idea is `tail --follow`: a tar is written front to back, so a thread reads right behind the
writer, and little is left to do at the end. Hashing and flushing 512 MB afterwards would take half
a second, a tenth of the checkpoint, and encrypting it several seconds. A file that was replaced,
became shorter or changed at its beginning is read again from the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 20  # of a reused buffer: the kernel would have to map a new one page by page
_BEGINNING = 512  # a tar's first header
FLUSH_BYTES = 32 << 20
POLL_S = 0.02
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Size and SHA-256 (hex) of a file as it is stored."""

    size_bytes: int
    sha256: str


class ArchiveReader:
    """Reads an open file from its beginning, whatever its own position; for one thread.

    With `finished`, the end of the file is final only once that is set; until then it waits.
    """

    def __init__(self, descriptor: int, finished: threading.Event | None = None) -> None:
        self.offset = 0
        self.beginning = b""
        self.cancelled = False
        self._descriptor = descriptor
        self._finished = finished
        self._buffer = memoryview(bytearray(_BLOCK))
        self._unread = self._buffer[:0]  # of the last block, for callers of `read`

    def block(self) -> memoryview:
        """The next bytes, valid until the next call; empty at the end or when cancelled."""
        while not self.cancelled:
            finished = self._finished is None or self._finished.is_set()
            if size := os.preadv(self._descriptor, [self._buffer], self.offset):
                self.offset += size
                if len(self.beginning) < _BEGINNING:
                    self.beginning += bytes(self._buffer[: min(size, _BEGINNING)])
                    self.beginning = self.beginning[:_BEGINNING]
                return self._buffer[:size]
            if finished or self._finished is None:
                break
            self._finished.wait(POLL_S)
        return self._buffer[:0]

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, as a raw file returns them; empty where `block` is."""
        if self.cancelled:
            return b""
        self._unread = self._unread or self.block()
        size = len(self._unread) if size < 0 else size
        part, self._unread = self._unread[:size], self._unread[size:]
        return bytes(part)


Consume = Callable[[ArchiveReader], FileDigest]


def digest(reader: ArchiveReader) -> FileDigest:
    """Size and digest of everything that can be read."""
    sha256 = hashlib.sha256()
    while block := reader.block():
        sha256.update(block)
    return FileDigest(reader.offset, sha256.hexdigest())


def digest_of(descriptor: int) -> str:
    """SHA-256, in hex, of an open file from its beginning."""
    return digest(ArchiveReader(descriptor)).sha256


class ArchiveTail:
    """Runs `consume` behind the writer of `path` until `finish` or `cancel` is called.

    With `flush_bytes`, data is flushed to disk every so many bytes, in a second thread: a flush
    waits for the disk, and reading must not.
    """

    def __init__(
        self, path: Path, consume: Consume = digest, *, flush_bytes: int = FLUSH_BYTES
    ) -> None:
        self._path = path
        self._consume = consume
        self._flush_bytes = flush_bytes
        self._finished = threading.Event()
        self._cancelled = False
        self._reader: ArchiveReader | None = None
        self._descriptor = -1
        self._digest: FileDigest | None = None
        self._threads = [threading.Thread(target=self._run, name="checkpoint seal", daemon=True)]
        if flush_bytes:
            self._threads.append(
                threading.Thread(target=self._flush, name="checkpoint flush", daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def finish(self, descriptor: int) -> FileDigest:
        """The result of `consume` for the finished file open as `descriptor`, or its error."""
        self._join()
        try:
            if self._digest and self._has_read(descriptor):
                return self._digest
        finally:
            self._close()
        return self._consume(ArchiveReader(descriptor))

    def cancel(self) -> None:
        """Stop reading; there is no result."""
        self._cancelled = True
        if self._reader:
            self._reader.cancelled = True
        self._join()
        self._close()

    def _run(self) -> None:
        while self._reader is None:
            try:
                self._descriptor = os.open(self._path, _OPEN)
                self._reader = ArchiveReader(self._descriptor, self._finished)
            except OSError:  # not there yet, or not readable: `finish` reports that
                if self._finished.wait(POLL_S):
                    return
        if self._cancelled:  # before there was a reader
            self._reader.cancelled = True
        with contextlib.suppress(BaseException):  # `finish` consumes again, and raises there
            self._digest = self._consume(self._reader)

    def _flush(self) -> None:
        flushed_bytes = 0
        while not self._finished.wait(POLL_S):
            written_bytes = self._reader.offset if self._reader else 0
            if written_bytes - flushed_bytes >= self._flush_bytes:
                flushed_bytes = written_bytes
                with contextlib.suppress(OSError):  # the final fsync reports a failing disk
                    os.fdatasync(self._descriptor)

    def _has_read(self, descriptor: int) -> bool:
        """Whether exactly this file was read, from its beginning to its end."""
        if self._reader is None or self._descriptor < 0:
            return False
        status, beginning = os.fstat(descriptor), self._reader.beginning
        return (
            os.path.samestat(os.fstat(self._descriptor), status)
            and status.st_size == self._reader.offset
            and os.pread(descriptor, len(beginning), 0) == beginning
        )

    def _join(self) -> None:
        self._finished.set()
        for thread in self._threads:
            thread.join()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
