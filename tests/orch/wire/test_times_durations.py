from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.times import format_duration, human_age, parse_duration


# Go time/time_test.go, parseDurationTests.
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0), ("5s", 5.0), ("30s", 30.0), ("1478s", 1478.0), ("-5s", -5.0), ("+5s", 5.0),
        ("-0", 0.0), ("+0", 0.0), ("5.0s", 5.0), ("5.6s", 5.6), ("5.s", 5.0), (".5s", 0.5),
        ("1.004s", 1.004), ("10ns", 1e-8), ("11us", 1.1e-5), ("12µs", 1.2e-5), ("12μs", 1.2e-5),
        ("13ms", 0.013), ("500ms", 0.5), ("15m", 900.0), ("16h", 57600.0), ("3h30m", 12600.0),
        ("1m30s", 90.0), ("10.5s4m", 250.5), ("-2m3.4s", -123.4), ("0s", 0.0),
        ("1h2m3s4ms5us6ns", 3723.004005006), ("39h9m14.425s", 140954.425),
        ("0.3333333333333333333h", 1200.0),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, abs=2e-9)


# Go time/time_test.go, parseDurationErrorTests.
@pytest.mark.parametrize(
    "text",
    [
        "", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "00", "1", "5 s", "1m 30s",
        "9223372036854775808ns", "3000000h", "1h1", "--5s", "1s\n", "\u0663s", "1e3s",
        "9" * 400 + "h",
    ],
)  # fmt: skip
def test_what_is_not_a_duration_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="duration") as error:
        parse_duration(text)
    assert repr(text[:50])[:-1] in str(error.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (1e-9, "1ns"), (1.1e-6, "1.1µs"), (0.0022, "2.2ms"), (0.5, "500ms"),
        (3.3, "3.3s"), (90, "1m30s"), (245, "4m5s"), (245.001, "4m5.001s"),
        (18367.001, "5h6m7.001s"), (480.000000001, "8m0.000000001s"), (3600, "1h0m0s"),
        (-5, "-5s"),
    ],
)  # fmt: skip
def test_a_duration_is_written_as_go_writes_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(-(10**15), 10**15))
def test_a_written_duration_reads_back(nanoseconds: int) -> None:
    seconds = nanoseconds / 10**9
    assert parse_duration(format_duration(seconds)) == seconds


# apimachinery util/duration/duration_test.go, TestHumanDurationBoundaries and the rules in
# HumanDuration.
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2.5, "<invalid>"), (-2, "<invalid>"), (-1, "0s"), (-0.5, "0s"), (0, "0s"), (1.9, "1s"),
        (70, "70s"), (119, "119s"), (120, "2m"), (130, "2m10s"), (599, "9m59s"), (600, "10m"),
        (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"), (8 * 3600 - 1, "7h59m"),
        (8 * 3600, "8h"), (48 * 3600 - 1, "47h"), (48 * 3600, "2d"), (49 * 3600, "2d1h"),
        (8 * 86400 - 1, "7d23h"), (8 * 86400, "8d"), (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400, "2y"), (2 * 365 * 86400 + 86400, "2y1d"), (3 * 365 * 86400, "3y"),
        (8 * 365 * 86400 - 1, "7y364d"), (8 * 365 * 86400, "8y"), (9 * 365 * 86400 + 86400, "9y"),
    ],
)  # fmt: skip
def test_an_age_has_at_most_two_units(seconds: float, text: str) -> None:
    assert human_age(seconds) == text
