"""The wall clock: the only module that reads it.

Code that stamps takes a `Now` (or `wall_ns`) as a parameter, these by default. Intervals and
deadlines use the event loop's time instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

Now = Callable[[], datetime]  # the current time, aware, in UTC

utc_now: Now = partial(datetime.now, UTC)


def wall_ns() -> int:
    """Nanoseconds since the epoch."""
    return time.time_ns()
