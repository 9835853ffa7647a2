from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.patch import strategic_patch


# apimachinery strategicpatch/patch_test.go, TestNormalizeElementOrder, and mergeSortedSlice.
@pytest.mark.parametrize(
    ("merged", "wanted", "before", "result"),
    [
        ([], [], [], []),
        (["a", "b"], [], ["a", "b"], ["a", "b"]),
        (["a", "b", "new"], ["new"], ["a", "b"], ["new", "a", "b"]),
        (["a", "b", "c"], ["c", "b"], ["a", "b"], ["c", "a", "b"]),
        (["a", "b", "c", "d"], ["d", "a"], ["a", "b", "c", "d"], ["b", "c", "d", "a"]),
        (["a", "b", "c"], ["c", "b", "a"], ["a", "b", "c"], ["c", "b", "a"]),
    ],
)
def test_wanted_elements_are_interleaved_with_the_others(
    merged: list[str], wanted: list[str], before: list[str], result: list[str]
) -> None:
    ids = [strategic_patch.identities(part, "") for part in (wanted, before)]
    assert strategic_patch.arranged(merged, ids[0], ids[1], "") == result


VALUES = st.lists(st.integers(0, 9), unique=True, max_size=6)


@given(VALUES, VALUES)
def test_nothing_is_lost_and_both_orders_are_kept(before: list[int], wanted: list[int]) -> None:
    merged = list(dict.fromkeys([*before, *wanted]))
    ids = strategic_patch.identities
    result = strategic_patch.arranged(merged, ids(wanted, ""), ids(before, ""), "")
    assert sorted(result) == sorted(merged)
    assert [v for v in result if v in wanted] == wanted
    assert [v for v in result if v not in wanted] == [v for v in before if v not in wanted]


@pytest.mark.parametrize(
    ("part", "whole", "in_order"),
    [("", "", True), ("ac", "abc", True), ("ca", "abc", False), ("ad", "abc", False)],
)
def test_a_part_is_in_order_when_its_elements_follow_one_another(
    part: str, whole: str, in_order: bool
) -> None:
    ids = [strategic_patch.identities(list(text), "") for text in (part, whole)]
    assert strategic_patch.is_in_order(*ids) is in_order


def test_true_and_one_are_different_elements() -> None:
    assert strategic_patch.identity(True, "") != strategic_patch.identity(1, "")
    assert strategic_patch.identity({"k": 1}, "k") == strategic_patch.identity(
        {"k": 1.0, "x": 2}, "k"
    )


@pytest.mark.parametrize(("element", "key"), [([1], ""), ({"k": {}}, "k"), ("text", "k")])
def test_elements_without_a_plain_identity_are_refused(element: Any, key: str) -> None:
    with pytest.raises(ValueError, match="an element"):
        strategic_patch.identity(element, key)
