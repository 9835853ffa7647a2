"""Reads container logs as the runtime writes them: from a tail of lines, across rotation; blocking.

A line is `<time> <stream> <P|F> <text>` (CRI logging format); P marks a piece of a longer line.
Options and refusals are the reference agent's (`/containerLogs`, core/v1 PodLogOptions).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nodeagent import descriptors
from orch.wire import times
from orch.wire.errors import ApiError, Cause, bad_request, invalid

_STREAMS = {"": b"", "All": b"", "Stdout": b"stdout", "Stderr": b"stderr"}
_TIME = re.compile(rb"([0-9T:-]+)(\.[0-9]{1,6})?[0-9]*(Z|[+-][0-9:]+)")
_NEW = datetime.max.replace(tzinfo=UTC)
_OLD = datetime.min.replace(tzinfo=UTC)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INT64 = 2**63
_TRUE, _FALSE = ("true", "1"), ("false", "0", "")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`tail_lines` None: all; `since` None: from the start; `limit_bytes` None: no limit."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None
    stream: bytes = b""  # stdout or stderr; empty for both


class LogLine(NamedTuple):
    time: bytes  # RFC 3339 with nanoseconds, as written
    stream: bytes
    partial: bool
    text: bytes  # without the newline


def parse_line(line: bytes) -> LogLine | None:
    """One line without its newline; None when it has another format."""
    parts = line.split(b" ", 3)
    if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
        return None
    return LogLine(parts[0], parts[1], parts[2].startswith(b"P"), parts[3] if parts[3:] else b"")


def parse_options(query: Mapping[str, str], *, now: datetime) -> LogOptions:
    """ApiError 400 for malformed values, 422 for invalid ones."""
    since_seconds = _integer(query, "sinceSeconds")
    since_time = _time(query)
    tail = _integer(query, "tailLines")
    if "tail" in query and query["tail"] != "all":
        tail = _integer(query, "tail")
    limit_bytes = _integer(query, "limitBytes")
    stream = query.get("stream", "")
    problems = [
        (tail is not None and tail < 0, "tailLines", "must be greater than or equal to 0"),
        (limit_bytes is not None and limit_bytes < 1, "limitBytes", "must be greater than 0"),
        (
            since_seconds is not None and since_time is not None,
            "sinceSeconds",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        (since_seconds is not None and since_seconds < 1, "sinceSeconds", "must be greater than 0"),
        (stream not in _STREAMS, "stream", "must be one of All, Stdout, Stderr"),
    ]
    causes = tuple(
        Cause("FieldValueInvalid", text, field) for wrong, field, text in problems if wrong
    )
    if causes:
        raise invalid("PodLogOptions", "", causes)
    if since_seconds is not None:
        since_time = _ago(since_seconds, now)
    return LogOptions(
        follow=_boolean(query, "follow"),
        previous=_boolean(query, "previous"),
        timestamps=_boolean(query, "timestamps"),
        tail_lines=tail,
        since=since_time,
        limit_bytes=limit_bytes,
        stream=_STREAMS[stream],
    )


MAX_LINE_BYTES = 1 << 20  # runtimes break lines at 8 or 16 KiB


class LogFilter:
    """Turns raw log data, fed in pieces, into output; `full` once the limit is reached.

    What has no line's end within MAX_LINE_BYTES is no log of a runtime's, and left out.
    """

    def __init__(self, options: LogOptions) -> None:
        self.full = False
        self._options = options
        self._rest = b""
        self._is_in_overlong = False
        self._left = options.limit_bytes
        self._since = options.since
        self._in_line = {b"stdout": False, b"stderr": False}

    def feed(self, data: bytes) -> bytes:
        """The output for the lines that `data` completes."""
        *lines, rest = (self._rest + data).split(b"\n")
        if lines and self._is_in_overlong:
            del lines[0]
            self._is_in_overlong = False
        self._is_in_overlong |= len(rest) > MAX_LINE_BYTES
        self._rest = b"" if self._is_in_overlong else rest
        shown = b"".join(self._show(parsed) for line in lines if (parsed := parse_line(line)))
        if self._left is not None:
            shown = shown[: self._left]
            self._left -= len(shown)
            self.full = self._left <= 0
        return shown

    def _show(self, line: LogLine) -> bytes:
        continued, self._in_line[line.stream] = self._in_line[line.stream], line.partial
        if self._options.stream and line.stream != self._options.stream:
            return b""
        if self._since is not None:
            if _moment(line.time) < self._since:
                return b""
            self._since = None  # lines come in the order of time
        end = b"" if line.partial else b"\n"
        if self._options.timestamps and not continued:
            return line.time + b" " + line.text + end
        return line.text + end


def _moment(text: bytes) -> datetime:
    """Cut to the microseconds of a datetime; an unreadable time counts as new."""
    match = _TIME.fullmatch(text)
    try:
        return times.parse_time(b"".join(match.groups(b"")).decode()) if match else _NEW
    except ValueError:
        return _NEW


def _integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not _INTEGER.fullmatch(text) or not -_INT64 <= (number := int(text)) < _INT64:
        raise _unreadable(name, text)
    return number


def _ago(seconds: int, now: datetime) -> datetime:
    """A time before the year 1 means from the start."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return _OLD


def _boolean(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "").lower()
    if text not in (*_TRUE, *_FALSE):
        raise _unreadable(name, text)
    return text in _TRUE


def _time(query: Mapping[str, str]) -> datetime | None:
    text = query.get("sinceTime", "")
    if not text:
        return None
    try:
        return times.parse_time(text)
    except ValueError:
        raise _unreadable("sinceTime", text) from None


def _unreadable(name: str, text: str) -> ApiError:
    return bad_request(f"unable to decode query: {name}={text[:100]!r}")


CHUNK_BYTES = 64 * 1024


_OWN_LEVELS = 1  # the directories of container and pod are made by agent and runtime


@contextmanager
def directory_of(log_path: str | Path) -> Iterator[int]:
    """The directory of a container's log, open, and reached from that of all logs without links.

    A pod that mounts the directory of all logs could put links there. OSError.
    """
    with descriptors.directory(Path(log_path).parent, parent_levels=_OWN_LEVELS) as opened:
        yield opened


class LogFile:
    """An open log; `read` returns the next piece, b"" when there is none at present."""

    def __init__(self, path: str) -> None:
        """OSError when it cannot be opened, or is no regular file."""
        self._path = path
        self._stream: BinaryIO = self._open()

    def close(self) -> None:
        self._stream.close()

    def seek_tail(self, lines: int, *, within_bytes: int | None = None) -> None:
        """Seek to the start of the last `lines` lines, with 0 to the end.

        With `within_bytes` no further back than that, maybe into a line.
        """
        end = self._stream.seek(0, os.SEEK_END)
        least = 0 if within_bytes is None else max(end - within_bytes, 0)
        self._stream.seek(self._start_of(lines, end, least))

    def read(self) -> bytes:
        """The next piece; continues in the new file after the end of a rotated one."""
        if data := self._stream.read(CHUNK_BYTES):
            return data
        own = os.fstat(self._stream.fileno())
        try:
            current = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return b""  # between two files, or gone for good
        if current.st_ino != own.st_ino:
            return self._stream.read(CHUNK_BYTES) or self._reopened()
        if current.st_size < self._stream.tell():
            self._stream.seek(0)  # truncated in place
        return self._stream.read(CHUNK_BYTES)

    def _reopened(self) -> bytes:
        try:
            stream = self._open()
        except OSError:
            return b""  # gone again, or replaced by something that is no log
        self._stream.close()
        self._stream = stream
        return stream.read(CHUNK_BYTES)

    def _open(self) -> BinaryIO:
        with directory_of(self._path) as directory:
            return os.fdopen(descriptors.open_file(os.path.basename(self._path), directory), "rb")

    def _start_of(self, lines: int, end: int, least: int) -> int:
        """Count newlines backwards, block by block."""
        if lines <= 0 or end == 0:
            return end
        self._stream.seek(end - 1)
        ended = self._stream.read(1) == b"\n"
        wanted = lines + ended  # of the newlines from the end on, the one before the first line
        position = end
        while position > least:
            size = min(CHUNK_BYTES, position - least)
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
        return least
