import contextlib
import io
import json
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch.component.process import log
from orch.component.process.daemon import SetupError


@pytest.fixture(autouse=True)
def root_logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The root logger as it was, afterwards."""
    logging.captureWarnings(False)  # a test before this one may have begun it
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def logged(format: str, *arguments: object, **options: str) -> str:  # noqa: A002
    stream = io.StringIO()
    log.configure(format=format, stream=stream, **options)
    logging.getLogger("nodeagent.heartbeat").info(*arguments)
    return stream.getvalue()


def test_a_text_line_has_stamp_level_place_and_sentence() -> None:
    line = logged("text", "the lease was renewed after %d tries", 3)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO nodeagent\.heartbeat:"
        r" the lease was renewed after 3 tries\n",
        line,
    )


def test_the_stamp_is_in_utc_to_the_millisecond() -> None:
    record = logging.makeLogRecord({"created": 1_769_860_800.1239, "msg": "x", "name": "n"})
    assert log.TextFormatter().format(record).startswith("2026-01-31T12:00:00.123Z ")


def test_levels_below_the_configured_one_are_silent() -> None:
    assert logged("text", "hidden", level="warning") == ""
    assert "shown" in logged("text", "shown", level="debug")


def test_configuring_again_replaces_the_old_place() -> None:
    first, second = io.StringIO(), io.StringIO()
    log.configure(stream=first)
    log.configure(stream=second)
    logging.getLogger("x").warning("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_control_characters_cannot_forge_a_line() -> None:
    line = logged("text", "name %s", "a\n2026 ERROR\x1b[2J\x00\u2028b\tc")
    assert line.endswith("name a\\n2026 ERROR\\x1b[2J\\x00\\u2028b\\tc\n")


def test_json_is_one_object_per_line() -> None:
    entry = json.loads(logged("json", 'a "quoted"\nline'))
    assert entry.pop("ts").endswith("Z")
    assert entry == {"level": "info", "logger": "nodeagent.heartbeat", "msg": 'a "quoted"\nline'}


def failed(format: str, stream: io.TextIOBase) -> None:  # noqa: A002
    log.configure(format=format, stream=stream)  # type: ignore[arg-type]
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("x").exception("it failed")


def test_a_traceback_follows_indented() -> None:
    stream = io.StringIO()
    failed("text", stream)
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("ERROR x: it failed")
    assert rest[-1] == "  ValueError: broken"
    assert all(line.startswith("  ") for line in rest)


def test_json_holds_the_traceback_in_its_one_line() -> None:
    stream = io.StringIO()
    failed("json", stream)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["error"].endswith("ValueError: broken")


def test_the_journal_gets_priorities_and_no_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        failed("text", stream)
        logging.getLogger("x").info("fine")
        logging.getLogger("x").warning("hm")
        stream.seek(0)
        lines = stream.read().splitlines()
    assert lines[0] == "<3>x: it failed"
    assert lines[-2:] == ["<6>x: fine", "<4>x: hm"]
    assert all(line.startswith("<3>") for line in lines[:-2])


@pytest.mark.parametrize("value", ["1:2", "garbage", ""])
def test_a_stream_that_is_not_the_journals_gets_stamps(value: str, tmp_path: Path) -> None:
    with (tmp_path / "other").open("w") as stream:
        assert not log.is_journal(stream, {"JOURNAL_STREAM": value})
    assert not log.is_journal(io.StringIO(), {"JOURNAL_STREAM": value})


@pytest.mark.parametrize("options", [{"level": "loud"}, {"format": "xml"}])
def test_an_unknown_level_or_format_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="is not one of"):
        log.configure(**options)  # type: ignore[arg-type]


class UnreadPipe:
    """A text stream whose reader does not read: what is logged is kept or dropped."""

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe()
        self.stream = os.fdopen(write_end, "w")
        os.set_blocking(self._read_end, False)

    def drop(self, lines: int) -> None:
        """Log until so many lines found no room."""
        before = log.dropped_lines()
        while log.dropped_lines() < before + lines:
            logging.getLogger("x").info("%s", "x" * 1000)

    def read(self) -> list[str]:
        """What it was given, to the end."""
        read = b""
        for handler in logging.getLogger().handlers:
            reader = threading.Thread(target=handler.flush)
            reader.start()
            while reader.is_alive():
                with contextlib.suppress(BlockingIOError):
                    read += os.read(self._read_end, 65536)
        with contextlib.suppress(BlockingIOError):
            read += os.read(self._read_end, 65536)
        return read.decode().splitlines()

    def close(self) -> None:
        self.stream.close()
        os.close(self._read_end)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[UnreadPipe]:
    monkeypatch.setattr(log, "FINAL_WRITE_S", 60.0)
    pipe = UnreadPipe()
    yield pipe
    pipe.close()


def test_a_reload_keeps_what_waits_and_formats_what_comes(unread: UnreadPipe) -> None:
    log.configure(stream=unread.stream)
    unread.drop(5)
    log.configure(stream=unread.stream, format="json", level="error")
    assert log.dropped_lines() == 5
    *waited, told = unread.read()
    assert all(" INFO x: xxx" in line for line in waited)
    entry = json.loads(told)
    entry.pop("ts")
    assert entry == {
        "level": "warning",
        "logger": "orch.component.process.log",
        "msg": "5 log lines were dropped while their reader took none",
    }


def test_a_call_whose_arguments_do_not_fit_its_message_is_logged_like_any_error(
    unread: UnreadPipe,
) -> None:
    log.configure(stream=unread.stream, format="json")
    logging.getLogger("x").info("%d pods", "many")
    (line,) = unread.read()
    entry = json.loads(line)
    assert entry["level"] == "error"
    assert entry["msg"] == "no log line for '%d pods'"
    assert "TypeError" in entry["error"]


def test_what_is_no_utf_8_is_escaped(unread: UnreadPipe) -> None:
    log.configure(stream=unread.stream)
    logging.getLogger("x").info("pod %s", "\udcff")
    (line,) = unread.read()
    assert line.endswith("pod \\udcff")


def test_what_python_warns_of_is_a_line_like_any_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = io.StringIO()
    log.configure(stream=stream, format="json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("a file was left open", ResourceWarning, stacklevel=1)
    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["logger"]) == ("warning", "py.warnings")
    assert "ResourceWarning: a file was left open" in entry["msg"]
    assert capsys.readouterr().err == ""
