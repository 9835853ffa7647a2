from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.ctl import threeway

POD = {"apiVersion": "v1", "kind": "Pod"}


def _pod(**spec: Any) -> dict[str, Any]:
    return {**POD, "spec": spec}


def _applied(live: dict[str, Any], last: dict[str, Any], wanted: dict[str, Any]) -> Any:
    return threeway.applied(live, last, wanted)["spec"]


@pytest.mark.parametrize(
    ("live", "last", "wanted", "result"),
    [
        # what the file says is set, what others set stays
        ({"a": 1, "own": 2}, {}, {"a": 3}, {"a": 3, "own": 2}),
        # what the file no longer says is removed, unless it never said it
        ({"a": 1, "own": 2}, {"a": 1}, {}, {"own": 2}),
        ({"m": {"a": 1, "own": 2}}, {"m": {"a": 1}}, {"m": {}}, {"m": {"own": 2}}),
        ({"m": {"a": 1, "own": 2}}, {"m": {"a": 1}}, {}, {}),
        ({"a": 1}, {"a": 1}, {"a": None}, {}),
        # lists without merge keys are the file's
        ({"tolerations": [1, 2]}, {}, {"tolerations": [3]}, {"tolerations": [3]}),
        # elements of lists with merge keys are merged, removed ones removed, the file's order kept
        (
            {"containers": [{"name": "own"}, {"name": "a", "image": "x", "own": 1}, {"name": "b"}]},
            {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]},
            {"containers": [{"name": "c"}, {"name": "a", "image": "y"}]},
            {"containers": [{"name": "c"}, {"name": "own"}, {"name": "a", "image": "y", "own": 1}]},
        ),
        (
            {"containers": [{"name": "a", "env": [{"name": "E"}, {"name": "own"}]}]},
            {"containers": [{"name": "a", "env": [{"name": "E"}]}]},
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "a"}]},
        ),
        (
            {"containers": [{"name": "a", "env": [{"name": "E"}, {"name": "own"}], "tty": True}]},
            {"containers": [{"name": "a", "env": [{"name": "E"}], "tty": True}]},
            {"containers": [{"name": "a", "env": []}]},
            {"containers": [{"name": "a", "env": [{"name": "own"}]}]},
        ),
    ],
)
def test_three_states_decide(
    live: dict[str, Any], last: dict[str, Any], wanted: dict[str, Any], result: dict[str, Any]
) -> None:
    before = copy.deepcopy((live, last, wanted))
    assert _applied(_pod(**live), _pod(**last), _pod(**wanted)) == result
    assert (live, last, wanted) == before


def test_sets_lose_only_what_the_file_had_put_there() -> None:
    def pod(*finalizers: str) -> dict[str, Any]:
        return {**POD, "metadata": {"finalizers": list(finalizers)}}

    result = threeway.applied(pod("own", "a", "b"), pod("a", "b"), pod("b", "c"))
    assert result["metadata"]["finalizers"] == ["own", "b", "c"]


def test_the_status_is_never_applied() -> None:
    live = {**POD, "status": {"phase": "Running"}}
    wanted = {**POD, "status": {"phase": "Failed"}}
    assert threeway.applied(live, {}, wanted) == live
    assert threeway.applied(live, wanted, POD) == live


FIELDS = st.sampled_from(["a", "b", "containers"])
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(0, 2),
        "m": st.dictionaries(st.sampled_from("xy"), st.integers(0, 2)),
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from("pqr")}, optional={"image": st.sampled_from("ij")}
            ),
            unique_by=lambda container: container["name"],
        ),
    },
)


@given(SPECS, SPECS, SPECS)
def test_applying_a_file_twice_changes_nothing_more(live: Any, last: Any, wanted: Any) -> None:
    once = threeway.applied(_pod(**live), _pod(**last), _pod(**wanted))
    assert threeway.applied(once, _pod(**wanted), _pod(**wanted)) == once


@given(SPECS, SPECS)
def test_an_object_only_this_file_made_becomes_the_file(last: Any, wanted: Any) -> None:
    assert _applied(_pod(**last), _pod(**last), _pod(**wanted)) == wanted
