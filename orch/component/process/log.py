"""The log: where its lines go, and their format: text, text for the journal, or JSON.

Programs call `configure` once; modules only use `logging.getLogger(__name__)`. Each record is a
single line (apart from a traceback): control characters in a message are escaped. Nothing blocks on
a line being written. Python's own warnings are logged too, by the logger `py.warnings`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from orch.component.process.daemon import SetupError
from orch.component.process.log_queue import FINAL_WRITE_S, LogQueue
from orch.component.terminal import visible

request_id: ContextVar[str] = ContextVar("request", default="")  # set by `httpd`

_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


def configure(*, level: str = "info", format: str = "text", stream: TextIO | None = None) -> None:  # noqa: A002
    """Send every record of `level` (debug, info, warning, error) and above to `stream` (stderr)."""
    stream = stream or sys.stderr
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise SetupError(f"log level {level!r} is not one of debug, info, warning, error")
    formatter = _formatter(format, stream)
    root = logging.getLogger()
    handler = _handler(stream, root.handlers)
    handler.setFormatter(formatter)
    root.handlers[:] = [handler]
    root.setLevel(number)
    logging.captureWarnings(True)


def dropped_lines() -> int:
    """How many lines this program could not write: an error, or a reader that did not keep up."""
    return sum(queue.dropped for queue in _queues())


def is_losing_lines() -> bool:
    """Whether lines are being dropped now."""
    return any(queue.is_losing_lines for queue in _queues())


def _queues() -> list[LogQueue]:
    handlers = logging.getLogger().handlers
    return [handler.queue for handler in handlers if isinstance(handler, QueueHandler)]


def _handler(stream: TextIO, present: Sequence[logging.Handler]) -> logging.Handler:
    """The present handler of `stream`, since lines may wait in its queue, else a new one."""
    for handler in present:
        if isinstance(handler, QueueHandler) and handler.stream is stream:
            return handler
    try:
        return QueueHandler(stream)
    except (AttributeError, OSError, ValueError):  # a stream without a descriptor
        return logging.StreamHandler(stream)


class QueueHandler(logging.Handler):
    """Writes to the descriptor of `stream`, and blocks on it only at the program's end."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.queue = LogQueue(stream.fileno(), self._dropped)
        super().__init__()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:  # the arguments do not fit the message
            line = self._line(_record("ERROR", "no log line for %r", record.msg, exc_info=True))
        self.queue.write(line)

    def flush(self) -> None:
        """Called by `logging` at exit."""
        self.queue.finish(FINAL_WRITE_S)

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")

    def _dropped(self, number: int) -> bytes:
        text = "%d log lines were dropped while their reader took none"
        return self._line(_record("WARNING", text, number))


def _record(level: str, text: str, *arguments: object, exc_info: bool = False) -> logging.LogRecord:
    number = logging.getLevelNamesMapping()[level]
    info = sys.exc_info() if exc_info else None
    return logging.LogRecord(__name__, number, __file__, 0, text, arguments, info)


def _formatter(format: str, stream: TextIO) -> logging.Formatter:  # noqa: A002
    if format == "json":
        return JsonFormatter()
    if format == "text":
        return JournalFormatter() if is_journal(stream, os.environ) else TextFormatter()
    raise SetupError(f"log format {format!r} is not one of text, json")


def is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether `stream` is the pipe to journald that JOURNAL_STREAM names (`device:inode`)."""
    expected = environ.get("JOURNAL_STREAM", "")
    if not expected:
        return False
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return expected == f"{status.st_dev}:{status.st_ino}"


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO nodeagent.heartbeat: sentence`."""

    def format(self, record: logging.LogRecord) -> str:
        message = visible(record.getMessage()) + _request()
        line = f"{_stamp(record)} {record.levelname} {record.name}: {message}"
        return line + _indented(_traceback(self, record))


class JournalFormatter(logging.Formatter):
    """`<6>nodeagent.heartbeat: sentence`; the journal stamps it. Each line carries its priority."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITIES.get(record.levelname, 6)}>"
        text = f"{record.name}: {visible(record.getMessage())}{_request()}"
        lines = (text + _indented(_traceback(self, record))).split("\n")
        return "\n".join(prefix + line for line in lines)


class JsonFormatter(logging.Formatter):
    """One object per line: `ts`, `level`, `logger`, `msg`, `request`, `error` (the traceback)."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "ts": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if request := request_id.get():
            entry["request"] = request
        traceback = _traceback(self, record)
        if traceback:
            entry["error"] = traceback
        return json.dumps(entry, ensure_ascii=False)


def _request() -> str:
    """The ID of the request during which a line is written."""
    current = request_id.get()
    return f" (request {current})" if current else ""


def _stamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)


def _indented(text: str) -> str:
    return "".join(f"\n  {line}" for line in text.splitlines())
