"""The algebra of sets of fields, against sets of paths, and what clients may send as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.managed import field_sets
from orch.wire.managed.field_sets import FieldSet
from tests import scaling

Path = tuple[str, ...]
PATHS = st.frozensets(
    st.lists(st.sampled_from(("f:a", "f:b", 'k:{"n":1}', 'v:"x"')), min_size=1, max_size=4).map(
        tuple
    ),
    max_size=8,
)


def set_of(paths: frozenset[Path]) -> FieldSet:
    result: FieldSet = {}
    for path in paths:
        below: FieldSet = {}
        for name in reversed(path):
            below = {name: below}
        result = field_sets.union(result, below)
    return result


def paths_of(fields: FieldSet, prefix: Path = ()) -> frozenset[Path]:
    found = set()
    for name, below in fields.items():
        if name == field_sets.SELF:
            continue
        if field_sets.is_member(below):
            found.add((*prefix, name))
        found |= paths_of(below, (*prefix, name))
    return frozenset(found)


def is_within(path: Path, paths: frozenset[Path]) -> bool:
    return any(path[: len(other)] == other for other in paths)


@given(PATHS, PATHS)
def test_sets_of_fields_are_sets_of_paths(left: frozenset[Path], right: frozenset[Path]) -> None:
    a, b = set_of(left), set_of(right)
    assert paths_of(a) == left
    assert paths_of(field_sets.union(a, b)) == left | right
    assert paths_of(field_sets.intersection(a, b)) == left & right
    assert paths_of(field_sets.difference(a, b)) == left - right
    assert paths_of(field_sets.without(a, b)) == {p for p in left if not is_within(p, right)}
    leaves = {p for p in left if not any(q[: len(p)] == p and q != p for q in left)}
    assert paths_of(field_sets.leaves(a)) == leaves
    assert field_sets.count(a) == len(left)
    assert field_sets.ordered(a) == a == field_sets.parse(a)
    assert (paths_of(a), paths_of(b)) == (left, right)  # unchanged


def test_elements_are_in_the_order_of_the_reference() -> None:
    names = ['v:"b"', "v:10", "v:9", 'k:{"n":"b"}', 'k:{"n":10}', 'k:{"n":9}', "f:b", "f:a", "."]
    fields = dict.fromkeys(names, field_sets.NOTHING)
    assert list(field_sets.ordered(fields)) == [
        ".", "f:a", "f:b", 'k:{"n":9}', 'k:{"n":10}', 'k:{"n":"b"}', "v:9", "v:10", 'v:"b"',
    ]  # fmt: skip


def test_members_are_shown_as_paths_those_of_a_level_first() -> None:
    fields: FieldSet = {
        "f:a": {"f:b": {}},
        "f:spec": {".": {}, 'k:{"name":"x","port":1}': {"f:image": {}}, 'v:"s"': {}, "i:3": {}},
    }
    assert list(field_sets.paths(fields)) == [
        ".spec", ".a.b", '.spec[="s"]', ".spec[3]", '.spec[name="x",port=1].image',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"f:a": {}}, {"f:a": {}}),
        ({'k:{"b":1, "a":"x"}': {"f:c": {}}}, {'k:{"a":"x","b":1}': {"f:c": {}}}),
        ({"v: 1.0": {}}, {"v:1": {}}),
        ({"i:03": {}}, None),
        ({"v:1": {"f:a": {}}, "v: 1": {}, "v:1.0": {"x:new": {}}}, {"v:1": {".": {}, "f:a": {}}}),
        ({"x:new": {"f:a": {}}, "f:b": {}}, {"f:b": {}}),
        ({"f:a": {"x:new": {}}}, {}),
        ({"f:a": {".": {}, "f:b": {}}}, {"f:a": {".": {}, "f:b": {}}}),
        ({"a": {}}, None),
        ({"k:[1]": {}}, None),
        ({"k:{": {}}, None),
        ({"i:x": {}}, None),
        ({"f:a": 1}, None),
        ([], None),
    ],
)
def test_a_set_that_a_client_wrote_is_read(sent: Any, read: FieldSet | None) -> None:
    if read is None:
        with pytest.raises(ValueError, match=r"must be|is no path element"):
            field_sets.parse(sent)
    else:
        assert field_sets.parse(sent) == read


def test_one_element_in_many_forms_is_read_in_linear_time() -> None:
    def reading(count: int) -> Callable[[], object]:
        blanks = (f"{number:015b}".translate({48: " ", 49: "\t"}) for number in range(count))
        sent = {f"v:{blank}1": {f"f:{blank}": {}} for blank in blanks}
        return lambda: field_sets.parse(sent)

    assert scaling.growth(reading, 4_000) < scaling.LINEAR
