from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.patch.merge_keys import schema_of
from orch.wire.patch.patch import PatchError, apply_merge_patch
from orch.wire.patch.strategic_patch import Schema, apply_strategic_patch
from tests import scaling

ITEMS = Schema({"list": Schema({"inner": Schema({}, merge_key="k")}, merge_key="name"),
                "set": Schema(merge_set=True), "map": Schema()})  # fmt: skip


def _patched(target: Any, patch: Any) -> Any:
    return apply_strategic_patch(target, patch, ITEMS)


# apimachinery strategicpatch/patch_test.go, and what kubectl 1.32 `patch --local` prints.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"map": {"a": 1, "b": 2}}, {"map": {"b": None, "c": 3}}, {"map": {"a": 1, "c": 3}}),
        ({"a": 1}, {"map": {"x": None, "y": {"z": None}}}, {"a": 1, "map": {"y": {}}}),
        ({"a": 1}, {"a": None}, {}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": [{"name": "x"}]}, {"a": [{"name": "y"}]}, {"a": [{"name": "y"}]}),
        ({"map": {"a": 1}}, {"map": [1]}, {"map": [1]}),
        ({"map": {"a": 1}}, {"map": {"$patch": "replace", "b": 2}}, {"map": {"b": 2}}),
        ({"map": {"a": 1}}, {"map": {"$patch": "delete"}}, {"map": {}}),
        ({"map": {"a": 1}}, {"map": {"$patch": "merge", "b": 2}}, {"map": {"a": 1, "b": 2}}),
        ({"a": 1}, {"$patch": "replace", "b": 2}, {"b": 2}),
        ({}, {"map": {"$patch": "replace", "b": 2}}, {"map": {"b": 2}}),
        ({"list": []}, {"list": [{"name": "n"}]}, {"list": [{"name": "n"}]}),
        (
            {"list": [{"name": "a", "v": 1}, {"name": "b", "v": 2}]},
            {"list": [{"name": "b", "v": 3}]},
            {"list": [{"name": "a", "v": 1}, {"name": "b", "v": 3}]},
        ),
        (
            {"list": [{"name": "a"}]},
            {"list": [{"name": "new", "v": None}]},
            {"list": [{"name": "new"}, {"name": "a"}]},
        ),
        (
            {"list": [{"name": "a"}, {"name": "b"}]},
            {"list": [{"name": "a", "$patch": "delete"}]},
            {"list": [{"name": "b"}]},
        ),
        (
            {"list": [{"name": "a"}, {"name": "b"}]},
            {"list": [{"$patch": "replace"}, {"name": "c", "v": 1}]},
            {"list": [{"name": "c", "v": 1}]},
        ),
        ({"list": [{"name": "a"}]}, {"list": [{"$patch": "replace"}]}, {"list": []}),
        (
            {"list": [{"name": "a", "v": 1, "w": 2}]},
            {"list": [{"name": "a", "$patch": "replace", "x": 3}]},
            {"list": []},
        ),
        (
            {"list": [{"name": "a", "inner": [{"k": 1, "v": 1}, {"k": 2}]}]},
            {"list": [{"name": "a", "inner": [{"k": 2, "v": 2}]}]},
            {"list": [{"name": "a", "inner": [{"k": 1, "v": 1}, {"k": 2, "v": 2}]}]},
        ),
        (
            {"list": [{"name": "a", "p": 1}, {"name": "a", "p": 2}]},
            {"list": [{"name": "a", "h": 5}]},
            {"list": [{"name": "a", "p": 1, "h": 5}, {"name": "a", "p": 2}]},
        ),
        (
            {"list": []},
            {"list": [{"name": "z", "v": 1}, {"name": "z", "w": 2}]},
            {"list": [{"name": "z", "v": 1, "w": 2}]},
        ),
        (
            {},
            {"list": [{"name": "a", "$patch": "delete"}, {"name": "b", "$retainKeys": ["name"]}]},
            {"list": [{"name": "b"}]},
        ),
        ({"set": ["a", "b"]}, {"set": ["b", "c", "c"]}, {"set": ["a", "b", "c"]}),
        ({"set": ["a", "b"]}, {"set": []}, {"set": ["a", "b"]}),
        ({"set": ["a", "b"]}, {"$deleteFromPrimitiveList/set": ["a", "x"]}, {"set": ["b"]}),
        (
            {"set": ["a", "b"]},
            {"set": ["c", "b"], "$deleteFromPrimitiveList/set": ["a"]},
            {"set": ["c", "b"]},
        ),
        ({}, {"$deleteFromPrimitiveList/set": ["a"]}, {}),
        ({"set": ["a", "b"]}, {"$setElementOrder/set": ["b", "a"]}, {"set": ["b", "a"]}),
        (
            {"set": ["a", "b", "own"]},
            {"set": ["c"], "$setElementOrder/set": ["c", "b", "a"]},
            {"set": ["c", "b", "a", "own"]},
        ),
        (
            {"list": [{"name": "own"}, {"name": "a"}, {"name": "b"}]},
            {
                "list": [{"name": "b", "v": 2}, {"name": "a", "$patch": "delete"}],
                "$setElementOrder/list": [{"name": "c"}, {"name": "b"}],
            },
            {"list": [{"name": "own"}, {"name": "b", "v": 2}]},
        ),
        (
            {},
            {"list": [{"name": "b"}], "$setElementOrder/list": [{"name": "b"}]},
            {"list": [{"name": "b"}]},
        ),
        ({"a": [2, 1]}, {"$setElementOrder/a": [1, 2]}, {"a": [2, 1]}),
        (
            {"map": {"a": 1, "b": 2, "c": 3}},
            {"map": {"$retainKeys": ["a", "d"], "d": 4, "b": None}},
            {"map": {"a": 1, "d": 4}},
        ),
        ({"map": {"a": 1}}, {"map": {"$retainKeys": []}}, {"map": {}}),
    ],
)
def test_strategic_patches_give_the_reference_s_results(
    target: Any, patch: Any, result: Any
) -> None:
    before = copy.deepcopy((target, patch))
    assert _patched(target, patch) == result
    assert (target, patch) == before


@pytest.mark.parametrize(
    ("target", "patch", "text"),
    [
        ({}, [], "merges two objects, not a list into an object"),
        ({"map": {}}, {"map": {"$patch": "erase"}}, r"map: \$patch is 'erase', use replace"),
        ({"list": []}, {"list": [{"v": 1}]}, "list: an element of the patch has no 'name'"),
        ({"list": []}, {"list": [{"$patch": "delete"}]}, "has no 'name', the key this list"),
        ({"list": []}, {"list": [{"name": "a", "$patch": "merge"}]}, "is 'merge', use replace"),
        ({"list": []}, {"list": ["x"]}, "list: an element is not an object"),
        ({"list": ["x"]}, {"list": [{"name": "a"}]}, "list: an element is not an object"),
        ({"list": []}, {"list": [{"name": {}}]}, "an element is identified by an object or a list"),
        ({"set": ["a"]}, {"set": [{"a": 1}]}, "set: an element is identified by an object"),
        ({"map": {}}, {"map": {"$retainKeys": ["a"], "b": 1}}, "map: 'b' is set but not listed"),
        ({"map": {}}, {"map": {"$retainKeys": "a"}}, "must be a list of field names"),
        ({"set": []}, {"$setElementOrder/set": "a"}, r"setElementOrder/set must be a list"),
        ({"set": []}, {"$deleteFromPrimitiveList/set": {}}, "must be a list"),
        (
            {"set": []},
            {"set": ["a", "b"], "$setElementOrder/set": ["b", "a"]},
            r"set: the elements are not in the order that \$setElementOrder/set gives",
        ),
        (
            {"list": [{"name": "a", "inner": []}]},
            {"list": [{"name": "a", "inner": [{"x": 1}]}]},
            r"list\.a\.inner: an element of the patch has no 'k'",
        ),
    ],
)
def test_a_patch_that_cannot_merge_names_the_field(target: Any, patch: Any, text: str) -> None:
    with pytest.raises(PatchError, match=text) as error:
        _patched(target, patch)
    assert error.value.code == 400


SCALARS = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x"])
FIELDS = st.sampled_from(["a", "b", "map", "other"])
DOCUMENTS = st.dictionaries(
    FIELDS,
    st.recursive(
        SCALARS | st.none() | st.lists(SCALARS, max_size=2),
        lambda inner: st.dictionaries(FIELDS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(DOCUMENTS, DOCUMENTS)
def test_without_merge_keys_and_directives_it_is_a_merge_patch(
    target: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert apply_strategic_patch(target, patch, Schema()) == apply_merge_patch(target, patch)


NAMED = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abc")}, optional={"v": SCALARS, "w": st.none() | SCALARS}
    ),
    max_size=3,
    unique_by=lambda element: element["name"],
)
OBJECTS = st.fixed_dictionaries(
    {}, optional={"list": NAMED, "set": st.lists(st.sampled_from("xyz"), unique=True), "a": SCALARS}
)


@given(OBJECTS, OBJECTS)
def test_applying_a_strategic_patch_twice_changes_nothing_more(target: Any, patch: Any) -> None:
    once = _patched(target, patch)
    assert _patched(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_every_element_survives_and_the_result_shares_nothing(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    result = _patched(target, patch)
    names = {e["name"] for part in (target, patch) for e in part.get("list", ())}
    assert {e["name"] for e in result.get("list", ())} == names
    for element in result.get("list", ()):
        element["scribble"] = 1
    result.setdefault("set", []).append("scribble")
    assert (target, patch) == before


def test_a_container_s_image_is_patched_by_its_name() -> None:
    pod = {
        "spec": {
            "containers": [
                {"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}]},
                {"name": "b", "image": "y"},
            ],
            "tolerations": [{"key": "t"}],
        }
    }
    patch = {
        "spec": {
            "containers": [{"name": "a", "image": "z", "env": [{"name": "F", "value": "2"}]}],
            "tolerations": [],
        }
    }
    patched = apply_strategic_patch(pod, patch, schema_of("v1", "Pod"))
    assert patched["spec"]["containers"][0] == {
        "name": "a",
        "image": "z",
        "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "1"}],
    }
    assert patched["spec"]["containers"][1] == {"name": "b", "image": "y"}
    assert patched["spec"]["tolerations"] == []


def test_deep_documents_are_refused_not_recursed_into() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for target, patch in (({}, deep), (deep, {}), (deep, deep), ({"set": []}, {"set": [deep]})):
        with pytest.raises(PatchError, match=r"nested deeper|an element is"):
            _patched(target, patch)


def _deleting(count: int) -> tuple[Any, Any]:
    values = [f"x{number}" for number in range(count)]
    return {"set": values}, {"$deleteFromPrimitiveList/set": values[::-1]}


def _arranging(count: int) -> tuple[Any, Any]:
    names = [{"name": f"x{number}"} for number in range(count)]
    order = {"$setElementOrder/list": names[::-1]}
    return {"list": names}, {"list": names[: count // 2][::-1], **order}


def _retaining(count: int) -> tuple[Any, Any]:
    names = [f"x{number}" for number in range(count)]
    return {"map": dict.fromkeys(names, 1)}, {"map": {"$retainKeys": names[::-1]}}


@pytest.mark.slow
@pytest.mark.parametrize("make", [_deleting, _arranging, _retaining])
def test_a_patch_takes_time_in_proportion_to_its_size(make: Any) -> None:
    def patching(count: int) -> Any:
        target, patch = make(count)
        return lambda: _patched(target, patch)

    assert scaling.growth(patching, 4_000) < scaling.LINEAR


def test_true_and_one_are_different_values_to_delete() -> None:
    patch = {"$deleteFromPrimitiveList/set": [1, "a", {"b": 1}]}
    target = {"set": [True, 1.0, "a", {"b": 1}, 2]}
    assert _patched(target, patch) == {"set": [True, {"b": 1}, 2]}


def test_elements_given_twice_are_merged_and_endless_repetition_is_refused() -> None:
    target = {"list": [{"name": "a", "inner": [{"k": number} for number in range(3_000)]}]}
    twice = {"list": [{"name": "a", "x": 1}, {"name": "a", "y": 2}]}
    merged = _patched(target, twice)["list"]
    assert len(merged) == 1
    assert (merged[0]["x"], merged[0]["y"]) == (1, 2)
    for endless in (
        [{"name": "a", "x": 1}] * 1_000,
        [{"name": "a", "inner": [{"k": 1, "y": 1}] * 1_000}],
    ):
        with pytest.raises(PatchError, match="more than once") as error:
            _patched(target, {"list": endless})
        assert error.value.code == 413
