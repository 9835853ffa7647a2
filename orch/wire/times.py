"""Times as the wire writes them: RFC 3339 in UTC, to the second (Time) or microsecond (MicroTime).

Records keep times as strings, so that what was read is what is written; these functions are the
only place that converts.
"""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """`2026-01-31T12:00:00Z`; the fraction is dropped."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`, always six digits."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Read either form; ValueError names the text that is not a time with a zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an RFC 3339 time") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.astimezone(UTC)
