from __future__ import annotations

from typing import Any

import pytest

from orch.ctl import ordering
from orch.ctl.failures import WrongUsage


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        ([3, 1, 2], [1, 2, 3]),
        (["b", "a"], ["a", "b"]),
        (["1Gi", "500Mi", "2k"], ["2k", "500Mi", "1Gi"]),
        (["10", "9"], ["9", "10"]),
        (["2026-02-01T00:00:00Z", "2025-01-01T00:00:00Z"],
         ["2025-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]),
        ([[2], [1], "x"], ["x", [1], [2]]),
    ],
)  # fmt: skip
def test_values_are_ordered_by_their_meaning(values: list[Any], ordered: list[Any]) -> None:
    records = [{"a": {"b": value}} for value in values]
    for path in (".a.b", "{.a.b}", "a.b"):
        found = ordering.by_path(records, path, record_of=lambda record: record)
        assert [record["a"]["b"] for record in found] == ordered


def test_what_has_no_value_comes_first_and_equals_keep_their_order() -> None:
    records = [{"n": 1, "x": 1}, {"n": 2}, {"n": 3, "x": 1}, {"n": 4, "x": None}]
    found = ordering.by_path(records, ".x", record_of=lambda record: record)
    assert [record["n"] for record in found] == [2, 4, 1, 3]


def test_a_path_that_cannot_be_read_is_a_usage_error() -> None:
    with pytest.raises(WrongUsage, match="--sort-by: the JSONPath"):
        ordering.by_path([], "{.a", record_of=lambda record: record)
