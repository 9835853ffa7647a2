"""Times as the wire writes them: RFC 3339 in UTC, to the second (Time) or microsecond (MicroTime).

Records keep times as strings, so that what was read is what is written; these functions are the
only place that converts. `Time` is such a string in a record. One that is read to be stored
(`meta.TO_STORE`) must be a time: typed clients cannot read a list with one that is not.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


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


def _checked(text: str, info: ValidationInfo) -> str:
    if info.context is not None:
        if not _RFC3339.fullmatch(text):  # `parse_time` reads more of ISO 8601 than clients do
            raise ValueError(f"{text!r} is not an RFC 3339 time")
        parse_time(text)
    return text


Time = Annotated[str, AfterValidator(_checked)]
