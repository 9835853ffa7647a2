"""The wall clock: the one place that asks what time it is.

Everything that stamps takes a `Now` (or `wall_ns`) as a parameter and gets these by default.
Intervals and deadlines never come from here: they are the event loop's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Now = Callable[[], datetime]


def utc_now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)


def wall_ns() -> int:
    """Nanoseconds since the epoch."""
    return time.time_ns()
