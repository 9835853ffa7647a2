"""Merged and compared values, by the reference's cases, and the cost of long lists."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from orch.wire.managed import merging
from orch.wire.managed.typed import UNKNOWN, list_of, record
from tests.orch.wire.managed.written_types import WrittenTypes
from tests.scaling import LINEAR, growth

TABLE: dict[str, Any] = yaml.load(
    (Path(__file__).parent / "values.yaml").read_bytes(), yaml.CSafeLoader
)
TYPES = {
    name: WrittenTypes(entry["types"]).of(entry["root"]) for name, entry in TABLE["types"].items()
}
TYPES["unknown"] = UNKNOWN


@pytest.mark.parametrize("case", TABLE["merge"])
def test_an_applied_value_is_laid_over_the_live_one(case: dict[str, Any]) -> None:
    kind = TYPES[case["types"]]
    assert merging.merge(kind, case["live"], case["applied"]) == case["merged"]


@pytest.mark.parametrize("case", TABLE["compare"])
def test_changes_are_found_both_ways(case: dict[str, Any]) -> None:
    kind = TYPES[case["types"]]
    found = merging.compare(kind, case["old"], case["new"])
    assert found == (case["removed"], case["modified"], case["added"])
    back = merging.compare(kind, case["new"], case["old"])
    assert back == (case["added"], case["modified"], case["removed"])


NAMED = record({"items": list_of(record({}), ("name",))})


@pytest.mark.slow
@pytest.mark.parametrize("work", ["merge", "compare"])
def test_long_lists_in_another_order_cost_no_more_than_their_length(work: str) -> None:
    shuffle = random.Random(1).shuffle

    def make(size: int) -> Any:
        old = [{"name": f"n{index}", "value": index} for index in range(size)]
        new = [{"name": f"n{index}", "value": -index} for index in range(size // 2, size * 3 // 2)]
        shuffle(new)
        return lambda: getattr(merging, work)(NAMED, {"items": old}, {"items": new})

    assert growth(make, 1000) < LINEAR
