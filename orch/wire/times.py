"""Times, durations and ages as text: RFC 3339, Go's `1m30s`, and the `5d3h` of tables.

Records keep times as strings, so that they are written as they were read; only this module
converts. Durations follow Go's `time.ParseDuration` and `Duration.String`, ages apimachinery's
`util/duration`; values are seconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_TIME_MAX = 64  # characters; to find out that a text of 3 MB is no time took 14 ms


def format_time(moment: datetime) -> str:
    """`2026-01-31T12:00:00Z`; the fraction is dropped."""
    return _utc_text(moment, "seconds")


def format_micro_time(moment: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`, always six digits."""
    return _utc_text(moment, "microseconds")


def _utc_text(moment: datetime, unit: str) -> str:
    """`strftime` writes a year before 1000 with fewer than four digits."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=unit) + "Z"


def parse_time(text: str) -> datetime:
    """Read either form; ValueError names the text that is not a time with a zone."""
    if len(text) > _TIME_MAX:
        raise ValueError(f"{text[:_TIME_MAX]!r}… is not an RFC 3339 time")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter for years before 1 or after 9999, in UTC
        raise ValueError(f"{text!r} is not an RFC 3339 time") from None
    raise ValueError(f"{text!r} has no time zone")


def is_time(text: str) -> bool:
    """Whether it is an RFC 3339 time."""
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def is_stored_time(text: str) -> bool:
    """Whether clients can read it: `parse_time` accepts more of ISO 8601."""
    return _RFC3339.fullmatch(text) is not None and is_time(text)


_UNIT_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, micro sign
    "μs": 10**3,  # U+03BC, Greek mu; Go accepts both
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_TERM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MAX_NS = 2**63 - 1
_MAX_LENGTH = 100


def parse_duration(text: str) -> float:
    """Seconds, to the nanosecond; a bare `0` needs no unit. ValueError names the text."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total_ns = Fraction(0)
    position = 0
    while (term := _TERM.match(rest, position)) and len(text) <= _MAX_LENGTH:
        total_ns += Fraction(term[1].rstrip(".")) * _UNIT_NS[term[2]]
        position = term.end()
    if not position or position != len(rest):
        raise ValueError(
            f"{text[:_MAX_LENGTH]!r} is not a duration: write numbers with units, "
            "like 300ms, 10s, 1m30s or 2h"
        )
    if total_ns > _MAX_NS:
        raise ValueError(f"the duration {text!r} is longer than 292 years")
    return sign * int(total_ns) / 10**9


def format_duration(seconds: float) -> str:
    """The canonical text: 90 → `1m30s`, 0.5 → `500ms`, 3600 → `1h0m0s`, 0 → `0s`."""
    total_ns = round(seconds * 10**9)
    sign, total_ns = ("-", -total_ns) if total_ns < 0 else ("", total_ns)
    if total_ns == 0:
        return "0s"
    for unit, next_ns in (("ns", 10**3), ("µs", 10**6), ("ms", 10**9)):
        if total_ns < next_ns:
            return f"{sign}{_decimal(total_ns, _UNIT_NS[unit])}{unit}"
    minutes, second_ns = divmod(total_ns, _UNIT_NS["m"])
    hours, minutes = divmod(minutes, 60)
    shown = f"{_decimal(second_ns, _UNIT_NS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{shown}"
    return f"{sign}{minutes}m{shown}" if minutes else f"{sign}{shown}"


def _decimal(value_ns: int, unit_ns: int) -> str:
    whole, fraction = divmod(value_ns, unit_ns)
    digits = str(fraction).zfill(len(str(unit_ns)) - 1).rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)


def human_age(seconds: float) -> str:
    """An age for tables, in at most two units; `<invalid>` for a time in the future."""
    whole_s = int(seconds)
    if whole_s < 0:
        return "0s" if whole_s == -1 else "<invalid>"
    if whole_s < 120:
        return f"{whole_s}s"
    return _two_units(*_age_units(whole_s))


def _age_units(whole_s: int) -> tuple[int, str, int, str]:
    """(value, unit, smaller value or 0 when not shown, smaller unit)."""
    minutes, hours = whole_s // 60, whole_s // 3600
    days = hours // 24
    if minutes < 180:
        return minutes, "m", whole_s % 60 if minutes < 10 else 0, "s"
    if hours < 48:
        return hours, "h", minutes % 60 if hours < 8 else 0, "m"
    if days < 2 * 365:
        return days, "d", hours % 24 if days < 8 else 0, "h"
    return days // 365, "y", days % 365 if days < 8 * 365 else 0, "d"


def _two_units(value: int, unit: str, smaller: int, smaller_unit: str) -> str:
    return f"{value}{unit}{smaller}{smaller_unit}" if smaller else f"{value}{unit}"
