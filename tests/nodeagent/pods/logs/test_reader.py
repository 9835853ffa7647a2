"""Log lines, options and files; the format is CRI's, the refusals are the reference's."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.pods.logs import reader
from nodeagent.pods.logs.reader import LogFile, LogFilter, LogLine, LogOptions
from orch.wire.errors import ApiError

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
T1, T2 = b"2026-01-31T11:59:50.123456789Z", b"2026-01-31T11:59:59.000000001+00:00"
DATA = (
    T1 + b" stdout F one\n" + T1 + b" stderr F err\n"
    + T2 + b" stdout P long\n" + T2 + b" stdout F er\n" + T2 + b" stdout F \n"
)  # fmt: skip

LINES = [
    (T1 + b" stdout F some text", LogLine(T1, b"stdout", False, b"some text")),
    (T1 + b" stderr P x", LogLine(T1, b"stderr", True, b"x")),
    (T1 + b" stdout F ", LogLine(T1, b"stdout", False, b"")),
    (T1 + b" stdout F", LogLine(T1, b"stdout", False, b"")),
    (T1 + b" stdout F:tag x y", LogLine(T1, b"stdout", False, b"x y")),
    (T1 + b" stdin F x", None),
    (b"rubbish", None),
    (b"", None),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line_is_read(line: bytes, expected: LogLine | None) -> None:
    assert reader.parse_line(line) == expected


SHOWN: list[tuple[LogOptions, bytes]] = [
    (LogOptions(), b"one\nerr\nlonger\n\n"),
    (LogOptions(stream=b"stderr"), b"err\n"),
    (
        LogOptions(timestamps=True),
        T1 + b" one\n" + T1 + b" err\n" + T2 + b" longer\n" + T2 + b" \n",
    ),
    (LogOptions(limit_bytes=6), b"one\ner"),
    (LogOptions(since=datetime(2026, 1, 31, 11, 59, 55, tzinfo=UTC)), b"longer\n\n"),
    (LogOptions(since=NOW), b""),
]


@pytest.mark.parametrize(("options", "expected"), SHOWN)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_is_shown_does_not_depend_on_how_it_was_read(
    options: LogOptions, expected: bytes, size: int
) -> None:
    shown = LogFilter(options)
    pieces = [DATA[at : at + size] for at in range(0, len(DATA), size)]
    assert b"".join(shown.feed(piece) for piece in pieces) == expected
    assert shown.full is (options.limit_bytes is not None)


def test_a_line_without_an_end_is_left_out_and_what_follows_is_shown() -> None:
    """A pod that mounts the logs could make one of gigabytes."""
    shown = LogFilter(LogOptions())
    endless = T1 + b" stdout F " + bytes(reader.CHUNK_BYTES)
    fed = [shown.feed(piece) for piece in (DATA, *[endless] * 2000, b"end\n" + DATA)]
    assert fed[0] == fed[-1] != b""
    assert not any(fed[1:-1])


@given(st.binary(max_size=300))
def test_whatever_the_data_the_output_is_not_longer(data: bytes) -> None:
    shown = LogFilter(LogOptions(since=NOW, timestamps=True)).feed(data + b"\n")
    assert len(shown) <= len(data) + 1


OPTIONS = [
    ({}, LogOptions()),
    ({"follow": "true", "previous": "1"}, LogOptions(follow=True, previous=True)),
    ({"tailLines": "5"}, LogOptions(tail_lines=5)),
    ({"tailLines": "0"}, LogOptions(tail_lines=0)),
    ({"tail": "all"}, LogOptions()),
    ({"tail": "7"}, LogOptions(tail_lines=7)),
    ({"sinceSeconds": str(2**63 - 1)}, LogOptions(since=datetime.min.replace(tzinfo=UTC))),
    ({"sinceSeconds": "60"}, LogOptions(since=datetime(2026, 1, 31, 11, 59, tzinfo=UTC))),
    ({"sinceTime": "2026-01-31T11:00:00Z"}, LogOptions(since=NOW.replace(hour=11))),
    ({"stream": "Stderr", "limitBytes": "9"}, LogOptions(stream=b"stderr", limit_bytes=9)),
]


@pytest.mark.parametrize(("query", "expected"), OPTIONS)
def test_options_are_read(query: dict[str, str], expected: LogOptions) -> None:
    assert reader.parse_options(query, now=NOW) == expected


REFUSED = [
    ({"tailLines": "-1"}, 422),
    ({"tail": "-1"}, 422),
    ({"limitBytes": "0"}, 422),
    ({"sinceSeconds": "1", "sinceTime": "2026-01-31T11:00:00Z"}, 422),
    ({"sinceSeconds": "0"}, 422),
    ({"stream": "Both"}, 422),
    ({"tailLines": "many"}, 400),
    *(
        ({option: text}, 400)
        for option in ("tailLines", "tail", "limitBytes", "sinceSeconds")
        for text in ("9223372036854775808", "1" + "0" * 5000, "1_0", "\u0661", " 1", "1.0")
    ),
    ({"tail": "many"}, 400),
    ({"follow": "perhaps"}, 400),
    ({"sinceTime": "yesterday"}, 400),
]


@pytest.mark.parametrize(("query", "code"), REFUSED)
def test_options_that_cannot_be_meant_are_refused(query: dict[str, str], code: int) -> None:
    with pytest.raises(ApiError) as caught:
        reader.parse_options(query, now=NOW)
    assert caught.value.code == code


def read_all(file: LogFile) -> bytes:
    read = b""
    while data := file.read():
        read += data
    return read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0.log"


@given(
    st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b".")), max_size=30),
    st.booleans(),
    st.integers(0, 40),
    st.integers(1, 50),
)
def test_the_tail_is_the_last_lines_whatever_the_block(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, tail: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "0.log"
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    path.write_bytes(data)
    before, reader.CHUNK_BYTES = reader.CHUNK_BYTES, block
    try:
        with closing(LogFile(str(path))) as file:
            file.seek_tail(tail)
            assert read_all(file) == b"".join(_lines(data)[-tail:] if tail else [])
    finally:
        reader.CHUNK_BYTES = before


def _lines(data: bytes) -> list[bytes]:
    """Split after newlines only; splitlines knows more line ends."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def test_what_is_written_later_is_read_later(path: Path) -> None:
    path.write_bytes(b"a\n")
    with closing(LogFile(str(path))) as file:
        assert read_all(file) == b"a\n"
        assert file.read() == b""
        with path.open("ab") as stream:
            stream.write(b"b\n")
        assert read_all(file) == b"b\n"


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(path: Path) -> None:
    path.write_bytes(b"old\n")
    with closing(LogFile(str(path))) as file:
        assert file.read() == b"old\n"
        with path.open("ab") as stream:
            stream.write(b"last\n")
        path.rename(f"{path}.1")
        assert file.read() == b"last\n"
        assert file.read() == b"", "the new one is not there yet"
        path.write_bytes(b"new\n")
        assert file.read() == b"new\n"


def test_a_truncated_log_is_read_from_its_start(path: Path) -> None:
    path.write_bytes(b"old and long\n")
    with closing(LogFile(str(path))) as file:
        assert read_all(file) == b"old and long\n"
        path.write_bytes(b"new\n")
        assert read_all(file) == b"new\n"


def test_a_log_that_is_gone_ends(path: Path) -> None:
    path.write_bytes(b"a\n")
    with closing(LogFile(str(path))) as file:
        path.unlink()
        assert file.read() == b"a\n"
        assert file.read() == b""


def test_a_link_is_no_log(tmp_path: Path) -> None:
    log = tmp_path / "pod" / "app" / "0.log"
    log.parent.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    log.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        LogFile(str(log))
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(OSError, match="not a regular file"):
        LogFile(str(log))


@pytest.mark.parametrize("swapped", ["pod/app", "pod"])
def test_a_directory_that_became_a_link_is_not_followed(tmp_path: Path, swapped: str) -> None:
    log = tmp_path / "logs" / "pod" / "app" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(DATA)
    with closing(LogFile(str(log))) as file:
        assert read_all(file) == DATA
        (tmp_path / "logs" / swapped).rename(tmp_path / "aside")
        host = tmp_path / "host" / "app"
        host.mkdir(parents=True)
        for place in (host, host.parent):
            (place / "0.log").write_text("secret")
        (tmp_path / "logs" / swapped).symlink_to(tmp_path / "host")
        assert file.read() == b""
        with pytest.raises(OSError):
            LogFile(str(log))
