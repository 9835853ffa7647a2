"""Digesting or encrypting an archive while the runtime still writes it.

Hashing 512 MB and flushing them to the disk takes half a second, a tenth of what the runtime needs
for the checkpoint, and encrypting them several; done beside it, it costs next to nothing. A tar is
written from front to back. A file that was replaced or became shorter, or whose beginning changed,
is read once more from the beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 20  # of one buffer: new ones would be fetched from the kernel, page by page
_BEGINNING = 512  # a tar's first header
_FLUSH_BYTES = 32 << 20
_PAUSE_S = 0.02
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Sealed:
    """The file as it will lie in the store; `sha256` in hex."""

    size_bytes: int
    sha256: str


class Reader:
    """An open file from its beginning, wherever its own position is; for one thread.

    With `ended`, it waits at the end of the file until that is set: more may be written.
    """

    def __init__(self, descriptor: int, ended: threading.Event | None = None) -> None:
        self.offset = 0
        self.beginning = b""
        self.is_broken_off = False
        self._descriptor = descriptor
        self._ended = ended
        self._buffer = memoryview(bytearray(_BLOCK))
        self._left = self._buffer[:0]  # read, and not yet given to who reads in small pieces

    def block(self) -> memoryview:
        """The next bytes, good until the next call; none at the end, or once it is broken off."""
        while not self.is_broken_off:
            ended = self._ended is None or self._ended.is_set()
            if size := os.preadv(self._descriptor, [self._buffer], self.offset):
                self.offset += size
                if len(self.beginning) < _BEGINNING:
                    self.beginning += bytes(self._buffer[: min(size, _BEGINNING)])
                    self.beginning = self.beginning[:_BEGINNING]
                return self._buffer[:size]
            if ended or self._ended is None:
                break
            self._ended.wait(_PAUSE_S)
        return self._buffer[:0]

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, as a file gives them; none where `block` gives none."""
        if self.is_broken_off:
            return b""
        self._left = self._left or self.block()
        size = len(self._left) if size < 0 else size
        given, self._left = self._left[:size], self._left[size:]
        return bytes(given)


Consume = Callable[[Reader], Sealed]


def digest(reader: Reader) -> Sealed:
    """The size and the digest of what there is to read."""
    sha256 = hashlib.sha256()
    while block := reader.block():
        sha256.update(block)
    return Sealed(reader.offset, sha256.hexdigest())


class Follower:
    """Has `consume` read behind the writer of `path` until `result` or `stop` is called.

    `flush`: what was written is flushed to the disk meanwhile, in a thread of its own, for a flush
    waits for the disk and reading must not.
    """

    def __init__(self, path: Path, consume: Consume = digest, *, flush: bool = True) -> None:
        self._path = path
        self._consume = consume
        self._ended = threading.Event()
        self._reader: Reader | None = None
        self._descriptor = -1
        self._sealed: Sealed | None = None
        self._threads = [threading.Thread(target=self._run, name="checkpoint seal", daemon=True)]
        if flush:
            self._threads.append(
                threading.Thread(target=self._flush, name="checkpoint flush", daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def result(self, descriptor: int) -> Sealed:
        """What `consume` makes of the finished file that is open as `descriptor`.

        Raises what `consume` does.
        """
        self._join()
        try:
            if self._sealed and self._is_of(descriptor):
                return self._sealed
        finally:
            self._close()
        return self._consume(Reader(descriptor))

    def stop(self) -> None:
        """Break off; the result is not wanted."""
        if self._reader:
            self._reader.is_broken_off = True
        self._join()
        self._close()

    def _run(self) -> None:
        while self._reader is None:
            try:
                self._descriptor = os.open(self._path, _OPEN)
                self._reader = Reader(self._descriptor, self._ended)
            except OSError:  # not there yet, or not readable: the end will tell
                if self._ended.wait(_PAUSE_S):
                    return
        with contextlib.suppress(BaseException):  # it is done again in the end, and raises there
            self._sealed = self._consume(self._reader)

    def _flush(self) -> None:
        flushed_bytes = 0
        while not self._ended.wait(_PAUSE_S):
            written_bytes = self._reader.offset if self._reader else 0
            if written_bytes - flushed_bytes >= _FLUSH_BYTES:
                flushed_bytes = written_bytes
                with contextlib.suppress(OSError):  # a disk that fails is told at the end
                    os.fdatasync(self._descriptor)

    def _is_of(self, descriptor: int) -> bool:
        """Whether what was read is the file, from its beginning to its end."""
        if self._reader is None:
            return False
        status, begun = os.fstat(descriptor), self._reader.beginning
        return (
            os.path.samestat(os.fstat(self._descriptor), status)
            and status.st_size == self._reader.offset
            and os.pread(descriptor, len(begun), 0) == begun
        )

    def _join(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def digest_of(descriptor: int) -> str:
    """SHA-256, in hex, of an open file from its beginning."""
    return digest(Reader(descriptor)).sha256
