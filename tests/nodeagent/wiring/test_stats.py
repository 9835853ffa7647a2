"""Is the machine still read? The check behind /healthz and the keep-alive, over time.

Which readers an agent has is in test_parts.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.stats.host.machine import HostFacts
from nodeagent.wiring.stats import SamplingCheck, system_parts
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


@pytest.mark.parametrize(
    ("fields", "own", "shown"),
    [
        ({}, None, {"pods": "/orchpods"}),
        ({}, "/agent", {"pods": "/orchpods", "nodeagent": "/agent"}),
        (
            {"systemCgroups": "/system.slice", "cgroupRoot": "/below"},
            None,
            {"pods": "/below/orchpods", "misc": "/system.slice"},
        ),
    ],
)
def test_the_parts_of_the_system_are_those_whose_cgroup_is_known(
    fields: dict[str, str], own: str | None, shown: dict[str, str]
) -> None:
    host = HostFacts(2, 2, 10, 0, 77, "b", "m", "s", "6.1", "os", "arm64", "linux", "h", 0)
    config = NodeAgentConfiguration.model_validate(fields)
    parts = system_parts(config, host, own, None)()
    assert {part.name: part.cgroup for part in parts} == shown
    assert {part.started_at_ns for part in parts if part.name != "nodeagent"} == {77}
