"""Thresholds of probes and ports by name; rules of the reference's prober worker."""

from __future__ import annotations

import pytest

from nodeagent.pods.prober import results as prober_results
from nodeagent.pods.prober.results import Tally
from orch.wire.records.pods import Container, Probe
from tests.fakes.pods import container_data

SEQUENCES = [
    # first, results (g good, b bad), successThreshold, failureThreshold, expected
    (None, "g", 1, 3, True),
    (False, "g", 1, 3, True),
    (True, "bb", 1, 3, True),
    (True, "bbb", 1, 3, False),
    (True, "bbgbb", 1, 3, True),
    (True, "bbgbbb", 1, 3, False),
    (False, "gg", 3, 3, False),
    (False, "ggg", 3, 3, True),
    (False, "gbgg", 3, 3, False),
    (True, "b", 1, 1, False),
    (None, "bb", 1, 3, None),
]


@pytest.mark.parametrize(("first", "results", "successes", "failures", "good"), SEQUENCES)
def test_a_result_changes_after_enough_equal_results(
    first: bool | None, results: str, successes: int, failures: int, good: bool | None
) -> None:
    probe = Probe(successThreshold=successes, failureThreshold=failures)
    tally = Tally(first)
    for result in results:
        tally = prober_results.count(tally, result == "g", probe)
    assert tally.good is good


def test_defaults_are_those_of_the_reference() -> None:
    probe = Probe()
    assert prober_results.period_s(probe) == 10
    assert prober_results.timeout_s(probe) == 1
    assert prober_results.successes(probe) == 1
    assert prober_results.failures(probe) == 3


CONTAINER = Container.from_wire(
    container_data("app", ports=[{"name": "http", "containerPort": 8080}])
)


@pytest.mark.parametrize(("port", "number"), [(80, 80), ("81", 81), ("http", 8080)])
def test_a_port_is_a_number_or_a_name(port: int | str, number: int) -> None:
    assert prober_results.port_number(port, CONTAINER) == number


@pytest.mark.parametrize("port", ["https", 0, 70000, ""])
def test_a_port_that_does_not_exist_is_refused(port: int | str) -> None:
    with pytest.raises(ValueError, match="port"):
        prober_results.port_number(port, CONTAINER)
