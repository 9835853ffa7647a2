"""Times as they are on the wire."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from orch.wire import times

MOMENT = datetime(2026, 1, 31, 13, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))


def test_times_are_written_in_utc_to_the_second() -> None:
    assert times.format_time(MOMENT) == "2026-01-31T12:00:00Z"


def test_micro_times_always_have_six_digits() -> None:
    assert times.format_micro_time(MOMENT) == "2026-01-31T12:00:00.999999Z"
    whole = MOMENT.replace(microsecond=0)
    assert times.format_micro_time(whole) == "2026-01-31T12:00:00.000000Z"


def test_years_always_have_four_digits() -> None:
    zero = datetime.min.replace(tzinfo=UTC)  # a Go program's unset time
    assert times.format_time(zero) == "0001-01-01T00:00:00Z"
    assert times.format_micro_time(zero) == "0001-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00.5Z", datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-01-31T12:00:00.000001Z", datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)),
        ("2026-01-31T13:30:00+01:30", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_either_form_is_read_and_becomes_utc(text: str, expected: datetime) -> None:
    read = times.parse_time(text)
    assert read == expected
    assert read.tzinfo is UTC


BEYOND_UTC = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-00:01")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("soon", "'soon' is not an RFC 3339 time"),
        ("2026-01-31T12:00:00", "has no time zone"),
        ("0001-01-01T00:00:00", "has no time zone"),
        *((text, "is not an RFC 3339 time") for text in BEYOND_UTC),
    ],
)
def test_what_is_no_time_is_quoted(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        times.parse_time(text)
