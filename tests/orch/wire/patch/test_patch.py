from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.patch.patch import MAX_DEPTH, PatchError, apply_merge_patch, create_merge_patch

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "y"])
KEYS = st.sampled_from(["a", "b", "c", "$patch"])


def _json(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=12,
    )


JSON = _json(SCALARS)
NULL_FREE = _json(SCALARS.filter(lambda value: value is not None))


# RFC 7386, appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_of_the_rfc_give_its_results(target: Any, patch: Any, result: Any) -> None:
    assert apply_merge_patch(target, patch) == result


@given(JSON, JSON)
def test_applying_a_merge_patch_twice_changes_nothing_more(target: Any, patch: Any) -> None:
    once = apply_merge_patch(target, patch)
    assert apply_merge_patch(once, patch) == once


@given(st.dictionaries(KEYS, JSON))
def test_the_empty_merge_patch_changes_nothing(target: dict[str, Any]) -> None:
    assert apply_merge_patch(target, {}) == target


@given(JSON, JSON)
def test_a_merge_patch_leaves_its_inputs_alone_and_shares_nothing(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    result = apply_merge_patch(target, patch)
    _scribble(result)
    assert (target, patch) == before


@given(NULL_FREE, NULL_FREE)
def test_the_difference_of_two_documents_turns_one_into_the_other(old: Any, new: Any) -> None:
    assert apply_merge_patch(old, create_merge_patch(old, new)) == new


@given(st.dictionaries(KEYS, NULL_FREE))
def test_equal_documents_have_an_empty_difference(document: dict[str, Any]) -> None:
    assert create_merge_patch(document, copy.deepcopy(document)) == {}


def test_the_difference_distinguishes_true_from_one() -> None:
    assert create_merge_patch({"a": True}, {"a": 1}) == {"a": 1}


def test_keys_keep_their_places() -> None:
    merged = apply_merge_patch({"a": 1, "b": 2, "c": 3}, {"d": 4, "b": 5})
    assert list(merged) == ["a", "b", "c", "d"]


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def test_documents_up_to_the_limit_are_merged() -> None:
    assert apply_merge_patch({}, _nested(MAX_DEPTH)) == _nested(MAX_DEPTH)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_deep_documents_are_refused_not_recursed_into(depth: int) -> None:
    deep = _nested(depth)
    for target, patch in (({}, deep), (deep, {}), (deep, deep), ({}, {"b": [deep]})):
        with pytest.raises(PatchError, match="nested deeper than 100 levels"):
            apply_merge_patch(target, patch)
    with pytest.raises(PatchError, match="nested deeper"):
        create_merge_patch({"a": deep}, {"a": _nested(depth)})


def _scribble(value: Any) -> None:
    """Change every mutable part of a result."""
    if isinstance(value, dict):
        for item in value.values():
            _scribble(item)
        value["scribble"] = 1
    elif isinstance(value, list):
        for item in value:
            _scribble(item)
        value.append("scribble")
