"""Zones: how nodes are told apart by them, their states, and how fast nodes are evicted.

Source of the tables: pkg/controller/nodelifecycle, ComputeZoneState and ReducedQPSFunc.
"""

from __future__ import annotations

import pytest

from orch.lifecycle.decide import zones
from orch.lifecycle.decide.records import Settings
from orch.lifecycle.decide.zones import Disruption, ZoneState
from orch.wire import names
from tests.fakes.cluster import node

NORMAL, PARTIAL, FULL = Disruption.NORMAL, Disruption.PARTIAL, Disruption.FULL
SETTINGS = Settings()


@pytest.mark.parametrize(
    ("ready", "not_ready", "state"),
    [
        (0, 0, NORMAL),
        (0, 1, FULL),
        (1, 2, NORMAL),  # two are never a disruption, whatever their share
        (1, 3, PARTIAL),
        (9, 11, PARTIAL),  # 55 % exactly
        (10, 11, NORMAL),
        (0, 100, FULL),
    ],
)
def test_the_state_of_a_zone(ready: int, not_ready: int, state: Disruption) -> None:
    assert zones.disruption(ready, not_ready, SETTINGS) is state


@pytest.mark.parametrize(
    ("size", "state", "rate"),
    [
        (50, NORMAL, 0.1),
        (50, PARTIAL, 0.0),
        (51, PARTIAL, 0.01),
        (51, FULL, 0.1),
    ],
)
def test_the_rate_of_evictions(size: int, state: Disruption, rate: float) -> None:
    assert zones.rate(ZoneState(size, state), SETTINGS) == rate


def test_zones_of_the_same_name_in_two_regions_are_two() -> None:
    keys = set()
    for labels in (
        {},
        {names.LABEL_ZONE: "1"},
        {names.LABEL_ZONE: "1", names.LABEL_REGION: "east"},
        {names.LABEL_ZONE: "1", names.LABEL_REGION: "west"},
        {names.LABEL_REGION: "1"},
    ):
        one = node("n1")
        one.metadata.labels = labels
        keys.add(zones.zone_of(one))
    assert len(keys) == 5 and "" in keys


def test_all_is_down_when_every_zone_that_has_a_say_is() -> None:
    excluded = ZoneState(0, NORMAL)
    assert zones.all_down({"a": ZoneState(2, FULL), "b": excluded})
    assert not zones.all_down({"a": ZoneState(2, FULL), "b": ZoneState(9, PARTIAL)})
    assert not zones.all_down({"b": excluded}) and not zones.all_down({})
