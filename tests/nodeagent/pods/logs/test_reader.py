"""Log lines and options; the format is CRI's, the refusals are the reference's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.pods.logs import reader
from nodeagent.pods.logs.reader import LogFilter, LogLine, LogOptions
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


@given(st.binary(max_size=300))
def test_no_data_is_too_odd(data: bytes) -> None:
    LogFilter(LogOptions(since=NOW, timestamps=True)).feed(data + b"\n")


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
