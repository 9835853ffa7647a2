from __future__ import annotations

from orch.lifecycle.decide import zones
from orch.lifecycle.metrics import LifecycleMetrics
from orch.wire import names
from orch.wire.records.core import Node


def node(zone: str) -> Node:
    return Node.model_validate({"metadata": {"name": "n", "labels": {names.LABEL_ZONE: zone}}})


def test_evictions_are_shown_of_zones_that_are_there() -> None:
    """A node that names itself another zone each time made ever more series."""
    metrics = LifecycleMetrics()
    for number in range(3):
        named = node(f"z{number}")
        metrics.count_eviction(zones.zone_of(named))
        metrics.show_zones({"n": named}, {"n": False})
    page = metrics.registry.render("")[0].decode()
    assert page.count("node_collector_evictions_total{") == 1
    assert page.count("node_collector_zone_size{") == 1
    assert "z2" in page
