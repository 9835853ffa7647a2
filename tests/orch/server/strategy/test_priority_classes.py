"""K:pkg/apis/scheduling/validation/validation_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from orch.server.strategy.priority_classes import STRATEGY


def priority_class(name: str = "a", value: int = 7, **fields: Any) -> dict[str, Any]:
    document = {"metadata": {"name": name}, "value": value, **fields}
    STRATEGY.prepare_create(document)
    return document


@pytest.mark.parametrize(
    ("new", "old", "fields"),
    [
        (priority_class(), None, []),
        (priority_class(value=1_000_000_000), None, []),
        (priority_class(value=1_000_000_001), None, ["value"]),
        (priority_class(value=-(2**31)), None, []),
        (priority_class(value=-(2**31) - 1), None, ["value"]),
        (priority_class(preemptionPolicy="Never"), None, []),
        (priority_class(preemptionPolicy="Always"), None, ["preemptionPolicy"]),
        (priority_class("system-mine", 1), None, ["metadata.name"]),
        (priority_class("system-node-critical", 2_000_001_000), None, []),
        (priority_class("system-node-critical", 2_000_001_001), None, ["metadata.name"]),
        (
            priority_class("system-cluster-critical", 2_000_000_000, globalDefault=True),
            None,
            ["metadata.name"],
        ),
        (priority_class(value=8), priority_class(), ["value"]),
        (priority_class(preemptionPolicy="Never"), priority_class(), ["preemptionPolicy"]),
        (priority_class(globalDefault=True, description="x"), priority_class(), []),
    ],
)
def test_what_a_priority_class_may_not_be(new: Any, old: Any, fields: list[str]) -> None:
    assert [cause.field for cause in STRATEGY.validate(new, old)] == fields


def test_a_class_that_says_nothing_lets_its_pods_displace_others() -> None:
    assert priority_class()["preemptionPolicy"] == "PreemptLowerPriority"
