"""Reads a container's log file in pieces, from its last lines on, across rotation; blocking."""

from __future__ import annotations

import os
from types import TracebackType
from typing import BinaryIO, Self

CHUNK_BYTES = 64 * 1024


class LogFile:
    """An open log; `read` gives the next piece, b"" when there is none at present."""

    def __init__(self, path: str) -> None:
        """OSError when it cannot be opened."""
        self._path = path
        self._stream: BinaryIO = open(path, "rb")  # noqa: SIM115, PTH123 — closed by close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    def seek_tail(self, lines: int) -> None:
        """Go to where the last `lines` lines begin; 0 goes to the end."""
        end = self._stream.seek(0, os.SEEK_END)
        self._stream.seek(self._start_of(lines, end))

    def read(self) -> bytes:
        """The next piece; goes on in the new file once a rotated one is read to its end."""
        if data := self._stream.read(CHUNK_BYTES):
            return data
        own = os.fstat(self._stream.fileno())
        try:
            current = os.stat(self._path)
        except FileNotFoundError:
            return b""  # between two files, or gone for good
        if current.st_ino != own.st_ino:
            return self._stream.read(CHUNK_BYTES) or self._reopened()
        if current.st_size < self._stream.tell():
            self._stream.seek(0)  # truncated in place
        return self._stream.read(CHUNK_BYTES)

    def _reopened(self) -> bytes:
        try:
            stream = open(self._path, "rb")  # noqa: SIM115, PTH123
        except FileNotFoundError:
            return b""
        self._stream.close()
        self._stream = stream
        return stream.read(CHUNK_BYTES)

    def _start_of(self, lines: int, end: int) -> int:
        """Count newlines backwards, block by block."""
        if lines <= 0 or end == 0:
            return end
        self._stream.seek(end - 1)
        ended = self._stream.read(1) == b"\n"
        wanted = lines + ended  # of the newlines from the end on, the one before the first line
        position = end
        while position > 0:
            size = min(CHUNK_BYTES, position)
            position -= size
            self._stream.seek(position)
            block = self._stream.read(size)
            found = block.count(b"\n")
            if found < wanted:
                wanted -= found
                continue
            offset = len(block)
            for _ in range(wanted):
                offset = block.rindex(b"\n", 0, offset)
            return position + offset + 1
        return 0
