from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.patch.json_patch import MAX_COPIED_SIZE, MAX_MOVED, MAX_OPERATIONS, apply_json_patch
from orch.wire.patch.patch import MAX_DEPTH, PatchError


def _op(op: str, path: str, **members: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **{key.rstrip("_"): v for key, v in members.items()}}


# RFC 6902, appendix A (A.1 to A.16 in order, those that succeed).
@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"foo": "bar"}, [_op("add", "/baz", value="qux")], {"baz": "qux", "foo": "bar"}),
        (
            {"foo": ["bar", "baz"]},
            [_op("add", "/foo/1", value="qux")],
            {"foo": ["bar", "qux", "baz"]},
        ),
        ({"baz": "qux", "foo": "bar"}, [_op("remove", "/baz")], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [_op("remove", "/foo/1")], {"foo": ["bar", "baz"]}),
        (
            {"baz": "qux", "foo": "bar"},
            [_op("replace", "/baz", value="boo")],
            {"baz": "boo", "foo": "bar"},
        ),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [_op("move", "/qux/thud", from_="/foo/waldo")],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [_op("move", "/foo/3", from_="/foo/1")],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [_op("test", "/baz", value="qux"), _op("test", "/foo/1", value=2)],
            {"baz": "qux", "foo": ["a", 2, "c"]},
        ),
        (
            {"foo": "bar"},
            [_op("add", "/child", value={"grandchild": {}})],
            {"foo": "bar", "child": {"grandchild": {}}},
        ),
        (
            {"foo": "bar"},
            [_op("add", "/baz", value="qux", xyz=123)],
            {"foo": "bar", "baz": "qux"},
        ),
        ({"/": 9, "~1": 10}, [_op("test", "/~01", value=10)], {"/": 9, "~1": 10}),
        (
            {"foo": ["bar"]},
            [_op("add", "/foo/-", value=["abc", "def"])],
            {"foo": ["bar", ["abc", "def"]]},
        ),
    ],
)
def test_patches_of_the_rfc_give_its_results(
    target: Any, operations: list[dict[str, Any]], result: Any
) -> None:
    assert apply_json_patch(target, operations) == result


# RFC 6902, appendix A.9, A.12, A.13, A.15, then the errors its section 4 demands.
@pytest.mark.parametrize(
    ("target", "operation", "text"),
    [
        ({"baz": "qux"}, _op("test", "/baz", value="bar"), r"0 \(test '/baz'\): the value differs"),
        ({"foo": "bar"}, _op("add", "/baz/bat", value="qux"), "there is no 'baz'"),
        ({"/": 9, "~1": 10}, _op("test", "/~01", value="10"), "the value differs"),
        ({"a": 1}, _op("remove", "/b"), r"\(remove '/b'\): there is no 'b'"),
        ({"a": 1}, _op("replace", "/b", value=1), "there is no 'b'"),
        ({"a": 1}, _op("test", "/b", value=None), "there is no 'b'"),
        ({"a": [1]}, _op("add", "/a/2", value=1), "'2' is not an index"),
        ({"a": [1]}, _op("replace", "/a/1", value=1), "'1' is not an index"),
        ({"a": [1]}, _op("replace", "/a/-", value=1), "'-' is not an index"),
        ({"a": [1]}, _op("remove", "/a/-"), "'-' is not an index"),
        ({"a": [1]}, _op("add", "/a/01", value=1), "'01' is not an index"),
        ({"a": [1]}, _op("add", "/a/-1", value=1), "'-1' is not an index"),
        ({"a": [1]}, _op("add", "/a/\u0661", value=1), "is not an index"),
        ({"a": []}, _op("remove", "/a/0"), "'0' is not an index"),
        ({"a": "text"}, _op("add", "/a/b", value=1), "'b' cannot be set in a string"),
        ({"a": 1}, _op("test", "/a/b/c", value=1), "'b' is a path into a number"),
        ({"a": {"b": 1}}, _op("move", "/a/b/c", from_="/a"), "moved into itself"),
        ({"a": 1}, _op("remove", ""), "the whole document cannot be removed"),
        ({"a": 1}, _op("copy", "/b", from_="/c"), "there is no 'c'"),
    ],
)
def test_an_operation_that_does_not_fit_is_named(target: Any, operation: Any, text: str) -> None:
    with pytest.raises(PatchError, match=text) as error:
        apply_json_patch(target, [operation])
    assert error.value.code == 422


@pytest.mark.parametrize(
    ("operations", "text"),
    [
        ({"op": "add"}, "a list of operations, not an object"),
        (["add"], "operation 0: must be an object, not a string"),
        ([{}], "operation 0: op None is not one of add, remove"),
        ([_op("replaced", "/a", value=1)], "op 'replaced' is not one of"),
        ([{"op": "remove"}], "'path' must be a JSON pointer"),
        ([{"op": "remove", "path": 7}], "'path' must be a JSON pointer"),
        ([_op("remove", "a")], "'a' must begin with '/'"),
        ([_op("remove", "/a~2")], "'~' is written '~0'"),
        ([_op("remove", "/a~")], "'~' is written '~0'"),
        ([_op("add", "/a")], "the value is missing"),
        ([_op("move", "/a")], "'from' must be a JSON pointer"),
        ([_op("test", "/a", value=1), _op("nope", "/b")], "operation 1"),
    ],
)
def test_a_malformed_patch_and_a_patch_that_does_not_fit_differ(operations: Any, text: str) -> None:
    with pytest.raises(PatchError, match=text) as error:
        apply_json_patch({"a": 1}, operations)
    assert error.value.code == 400


@pytest.mark.parametrize(
    ("target", "value", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        (None, False, False),
        ([1, {"a": None}], [1, {"a": None}], True),
        ([1], [1, 1], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("1", 1, False),
    ],
)
def test_test_compares_as_json_does(target: Any, value: Any, same: bool) -> None:
    document, operations = {"v": target}, [_op("test", "/v", value=value)]
    if same:
        assert apply_json_patch(document, operations) == document
    else:
        with pytest.raises(PatchError, match="the value differs"):
            apply_json_patch(document, operations)


def test_the_whole_document_can_be_tested_and_replaced() -> None:
    operations = [_op("test", "", value={"a": 1}), _op("replace", "", value={"b": 2})]
    assert apply_json_patch({"a": 1}, operations) == {"b": 2}


def test_a_key_may_be_empty_or_hold_slashes() -> None:
    target = {"": {"a/b": 1, "m~n": 2}}
    operations = [_op("remove", "//a~1b"), _op("replace", "//m~0n", value=3)]
    assert apply_json_patch(target, operations) == {"": {"m~n": 3}}


def test_a_failing_operation_leaves_the_target_as_it_was() -> None:
    target = {"a": [1]}
    with pytest.raises(PatchError):
        apply_json_patch(target, [_op("add", "/a/-", value=2), _op("remove", "/b")])
    assert target == {"a": [1]}


def test_the_result_shares_nothing_with_the_patch_or_itself() -> None:
    value = {"x": [1]}
    target = {"a": {"y": []}}
    operations = [_op("add", "/b", value=value), _op("copy", "/c", from_="/a")]
    before = copy.deepcopy((target, operations))
    result = apply_json_patch(target, operations)
    result["b"]["x"].append(2)
    result["c"]["y"].append(3)
    assert result["a"] == {"y": []}
    assert (target, operations) == before


def test_moving_a_value_onto_itself_changes_nothing() -> None:
    assert apply_json_patch({"a": 1}, [_op("move", "/a", from_="/a")]) == {"a": 1}


def test_more_operations_than_the_limit_are_refused() -> None:
    operation = _op("test", "/a", value=1)
    assert apply_json_patch({"a": 1}, [operation] * MAX_OPERATIONS) == {"a": 1}
    with pytest.raises(PatchError, match="10001 operations, at most 10000") as error:
        apply_json_patch({"a": 1}, [operation] * (MAX_OPERATIONS + 1))
    assert error.value.code == 413


def test_copies_that_double_the_document_are_stopped() -> None:
    operations = [_op("copy", "/a/x", from_="/a"), _op("copy", "/b", from_="/a")] * 60
    with pytest.raises(PatchError, match=r"nested deeper|copies make more"):
        apply_json_patch({"a": {"t": "x" * 1000}}, operations)
    wide = [_op("copy", "/-", from_="/0")] * 4000
    with pytest.raises(PatchError, match="copies make more than") as error:
        apply_json_patch(["x" * 1000], wide)
    assert error.value.code == 413


def test_nesting_built_by_many_small_operations_is_stopped() -> None:
    operations = [
        operation
        for _ in range(3000)
        for operation in (_op("add", "/b", value={}), _op("move", "/b/c", from_="/a"),
                          _op("move", "/a", from_="/b"))
    ]  # fmt: skip
    with pytest.raises(PatchError, match="nested deeper"):
        apply_json_patch({"a": {}}, operations)
    with pytest.raises(PatchError, match="nested deeper"):
        apply_json_patch({"a": {}}, [*operations, _op("copy", "/d", from_="/a")])


def test_deep_values_are_refused_not_recursed_into() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for operation in (_op("add", "/b", value=deep), _op("test", "/a", value=deep)):
        with pytest.raises(
            PatchError, match=rf"operation 0 .*deeper than {MAX_DEPTH} levels|differs"
        ):
            apply_json_patch({"a": [1]}, [operation])


PATHS = st.sampled_from(["", "/a", "/b", "/a/0", "/a/-", "/b/c", "/a/1/x", "bad", "/~"])
VALUES = st.sampled_from([1, "x", None, [], {}, {"c": [1]}])
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": PATHS},
    optional={"value": VALUES, "from": PATHS},
)


@given(st.lists(OPERATIONS, max_size=6))
def test_any_patch_is_applied_or_refused_and_never_touches_the_target(
    operations: list[dict[str, Any]],
) -> None:
    target = {"a": [1, {"x": 2}], "b": {"c": 3}}
    before = copy.deepcopy((target, operations))
    try:
        apply_json_patch(target, operations)
    except PatchError as error:
        assert "operation" in str(error)
    assert (target, operations) == before


@pytest.mark.parametrize("operation", [_op("remove", "/a/0"), _op("add", "/a/0", value=1)])
def test_no_patch_moves_a_long_list_again_and_again(operation: dict[str, Any]) -> None:
    target = {"a": [0] * 20_000}
    with pytest.raises(PatchError, match=f"more than {MAX_MOVED} elements") as error:
        apply_json_patch(target, [operation] * MAX_OPERATIONS)
    assert error.value.code == 413


def test_a_list_is_changed_at_its_end_as_often_as_operations_allow() -> None:
    target = {"a": [0] * MAX_OPERATIONS}
    end = [_op("remove", f"/a/{place}") for place in reversed(range(MAX_OPERATIONS))]
    assert apply_json_patch(target, end) == {"a": []}
    appended = apply_json_patch(target, [_op("add", "/a/-", value=1)] * MAX_OPERATIONS)
    assert len(appended["a"]) == 2 * MAX_OPERATIONS


def test_what_would_be_copied_is_measured_before_it_is_copied() -> None:
    target = {"a": [[]] * (MAX_COPIED_SIZE // 60)}
    with pytest.raises(PatchError, match="copies make more than"):
        apply_json_patch(target, [_op("copy", "/b", from_="/a")])


def test_an_error_quotes_no_endless_path() -> None:
    with pytest.raises(PatchError) as error:
        apply_json_patch({}, [_op("remove", "/" + "x" * 10_000)])
    assert len(str(error.value)) < 11_000
