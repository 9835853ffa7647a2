from __future__ import annotations

import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orch.component.diagnostics.metrics import Registry
from orch.server.flow.levels import WAIT_BUCKETS, Levels, Limits
from orch.server.flow.metrics import FlowMetrics

NAMES = {
    "apiserver_flowcontrol_current_executing_requests",
    "apiserver_flowcontrol_current_executing_seats",
    "apiserver_flowcontrol_current_inqueue_requests",
    "apiserver_flowcontrol_dispatched_requests",
    "apiserver_flowcontrol_nominal_limit_seats",
    "apiserver_flowcontrol_rejected_requests",
    "apiserver_flowcontrol_request_wait_duration_seconds",
}
Samples = dict[tuple[str, tuple[str, ...]], float]


def page_of(levels: Levels) -> Samples:
    """By name and label values, in the order of the labels' names."""
    registry = Registry()
    registry.register(FlowMetrics(levels))
    page = registry.render("")[0].decode()
    families = [one for one in text_string_to_metric_families(page) if one.name in NAMES]
    assert {family.name for family in families} == NAMES
    assert all(family.documentation.startswith("[BETA] ") for family in families)
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_page_says_who_has_seats_who_waits_and_who_was_refused() -> None:
    levels = Levels(Limits(600, 60.0, 8192))
    users = levels.users
    users.executing, users.waiting, users.at_once = 3, 2, 5
    users.rejected["queue-full"] = 4
    users.waited.observe(0.03)
    users.waited_in_vain.observe(15.0)
    page = page_of(levels)
    of, prefix = ("global-default", "workload"), "apiserver_flowcontrol_"
    assert page[f"{prefix}current_executing_requests", of] == 3
    assert page[f"{prefix}current_executing_seats", of] == 3
    assert page[f"{prefix}current_inqueue_requests", of] == 2
    assert page[f"{prefix}dispatched_requests_total", of] == 6
    assert page[f"{prefix}rejected_requests_total", (*of, "queue-full")] == 4
    assert page[f"{prefix}nominal_limit_seats", ("system",)] == 360
    assert page[f"{prefix}nominal_limit_seats", ("workload",)] == 240
    waits = f"{prefix}request_wait_duration_seconds"
    got_a_seat = [page[f"{waits}_bucket", ("true", of[0], f"{le:g}", of[1])] for le in WAIT_BUCKETS]
    assert got_a_seat[:5] == [5, 5, 5, 6, 6]
    assert page[f"{waits}_sum", ("true", *of)] == pytest.approx(0.03)
    assert page[f"{waits}_count", ("true", *of)] == 6
    assert page[f"{waits}_count", ("false", *of)] == 1


def test_without_a_limit_no_number_of_seats_is_told() -> None:
    page = page_of_unlimited()
    assert ("apiserver_flowcontrol_nominal_limit_seats", ("system",)) not in page
    assert max(page.values()) < sys.maxsize


def page_of_unlimited() -> Samples:
    registry = Registry()
    registry.register(FlowMetrics(Levels(Limits(0, 60.0, 8192))))
    page = registry.render("")[0].decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
