"""Is the machine still read? The check behind /healthz and the keep-alive, over time.

Which readers an agent has is in test_parts.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nodeagent.stats.sampler import SamplingCheck
from orch.component.diagnostics.health import CheckFailed

pytestmark = pytest.mark.looptime


class Readings:
    """A sampler as the check sees it."""

    latest: Any = None
    read_at_s = 0.0

    def read(self) -> None:
        self.latest, self.read_at_s = object(), asyncio.get_running_loop().time()

    def age_s(self) -> float:
        return asyncio.get_running_loop().time() - self.read_at_s


def failure(check: SamplingCheck) -> str:
    try:
        check()
    except CheckFailed as error:
        return str(error)
    return ""


async def test_a_first_reading_that_never_comes_fails_after_three_intervals() -> None:
    check = SamplingCheck(Readings(), lambda: 10.0)  # type: ignore[arg-type]
    await asyncio.sleep(30)
    assert failure(check) == ""
    await asyncio.sleep(1)
    assert failure(check) == "there is no reading of statistics after 31 s"


async def test_readings_that_stop_fail_after_three_intervals_and_pass_again() -> None:
    readings = Readings()
    check = SamplingCheck(readings, lambda: 10.0)  # type: ignore[arg-type]
    readings.read()
    await asyncio.sleep(30)
    assert failure(check) == ""
    await asyncio.sleep(1)
    assert failure(check) == "the last reading of statistics is 31 s old"
    readings.read()
    assert failure(check) == ""


async def test_an_interval_that_a_reload_changed_counts() -> None:
    interval_s = 10.0
    readings = Readings()
    check = SamplingCheck(readings, lambda: interval_s)  # type: ignore[arg-type]
    readings.read()
    await asyncio.sleep(31)
    interval_s = 20.0
    assert failure(check) == ""
