"""K:pkg/apis/node/validation/validation_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from orch.server.strategy.nodes import RUNTIME_CLASS_STRATEGY


def runtime_class(handler: str = "kata", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "handler": handler, **fields}


@pytest.mark.parametrize(
    ("new", "old", "fields"),
    [
        (runtime_class(), None, []),
        (runtime_class("runc-1.0"), None, ["handler"]),
        (runtime_class(""), None, ["handler"]),
        (runtime_class("&"), None, ["handler"]),
        (runtime_class("x"), runtime_class(), ["handler"]),
        (runtime_class(metadata={"name": "a", "labels": {"a": "b"}}), runtime_class(), []),
        (runtime_class(overhead={"podFixed": {"cpu": "1", "memory": "64Mi"}}), None, []),
        (
            runtime_class(overhead={"podFixed": {"cpu": "-1"}}),
            None,
            ["overhead.limits[cpu]"],
        ),
        (runtime_class(scheduling={"nodeSelector": {"good": "yes"}}), None, []),
        (
            runtime_class(scheduling={"nodeSelector": {"/bad": "yes"}}),
            None,
            ["scheduling.nodeSelector"],
        ),
        (
            runtime_class(scheduling={"tolerations": [{"key": "a", "operator": "Often"}]}),
            None,
            ["scheduling.tolerations[0].operator"],
        ),
    ],
)
def test_what_a_runtime_class_may_not_be(new: Any, old: Any, fields: list[str]) -> None:
    assert [cause.field for cause in RUNTIME_CLASS_STRATEGY.validate(new, old)] == fields
