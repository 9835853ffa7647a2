"""Owners after updates and applies, by the reference's own cases (`merges.yaml`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.managed import field_sets, ownership, typed
from orch.wire.managed.merging import compare, merge
from orch.wire.managed.ownership import ConflictError, Owned
from orch.wire.managed.typed import ABSENT, SCALAR, UNKNOWN, Type, list_of, record
from tests.orch.wire.managed.written_types import WrittenTypes

TABLE: dict[str, Any] = yaml.load(
    (Path(__file__).parent / "merges.yaml").read_bytes(), yaml.CSafeLoader
)
TYPES = {
    name: WrittenTypes(entry["types"]).of(entry["root"]) for name, entry in TABLE["types"].items()
}
TYPES["unknown"] = UNKNOWN
CASES = [case for case in TABLE["cases"] if not case.get("converts")]


class Misfit(Exception):
    """An object does not fit its type."""


class State:
    """A live object and its owners, as the server holds them."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.kind = TYPES[case["types"]]
        self.live: Any = None
        self.owners: dict[str, Owned] = {}
        ignored = case.get("ignored")
        self.leave = ownership.excluding(ignored) if ignored else ownership.keep_all

    def step(self, step: dict[str, Any]) -> None:
        what = step["do"]
        if what == "types":
            self.kind = TYPES[step["to"]]
            self._require(self.live, doubles=False)
            return
        self._require(step["object"], doubles=what == "update")
        if what == "update":
            self._update(step)
        elif what == "extract":
            self._apply(step["by"], self._extended(step), force=True)
        elif step.get("conflicts"):
            with pytest.raises(ConflictError) as refused:
                self._apply(step["by"], step["object"], force=False)
            assert conflicts_in(refused.value) == sorted(map(tuple, step["conflicts"]))
        else:
            self._apply(step["by"], step["object"], force=what == "force")

    def _require(self, value: Any, *, doubles: bool) -> None:
        if found := list(typed.problems(self.kind, value, doubles=doubles)):
            raise Misfit(found)

    def _update(self, step: dict[str, Any]) -> None:
        new, by = step["object"], step["by"]
        self.owners = ownership.update(self.kind, self.owners, self.live, new, by, self.leave)
        self.live = new

    def _apply(self, manager: str, value: Any, *, force: bool) -> None:
        result = ownership.apply(
            self.kind, self.owners, self.live, value, manager, force=force, leave=self.leave
        )
        self.live, self.owners = result.value, result.owners

    def _extended(self, step: dict[str, Any]) -> Any:
        """What a client does that reads its own fields back, and adds some to them."""
        if self.live is None:
            return step["object"]
        own = self.owners.get(step["by"], Owned({}, applied=True)).fields
        return merge(
            self.kind, extracted(self.kind, self.live, field_sets.leaves(own)), step["object"]
        )


def extracted(kind: Type, value: Any, fields: dict[str, Any]) -> Any:
    """A value with these fields only."""
    if kind.map is not None and isinstance(value, dict):
        if not value or kind.map.atomic:
            return value
        found = {
            name: extracted(kind.map.of(name), item, fields[f"f:{name}"])
            for name, item in value.items()
            if f"f:{name}" in fields
        }
        return found or None
    if kind.list is not None and isinstance(value, list):
        if not value or kind.list.atomic:
            return value
        pairs = zip(typed.elements_of(kind.list, value), value, strict=True)
        return [item for name, item in pairs if name in fields] or None
    return ABSENT if value is None else value


def conflicts_in(error: ConflictError) -> list[tuple[str, str]]:
    return sorted(
        (manager, path)
        for manager, fields in error.conflicts.items()
        for path in field_sets.paths(fields)
    )


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_owners_and_object_are_as_in_the_reference(case: dict[str, Any]) -> None:
    state = State(case)
    if case.get("fails"):
        with pytest.raises((Misfit, ConflictError)):
            for step in case["steps"]:
                state.step(step)
        return
    for step in case["steps"]:
        state.step(step)
    if "object" in case:
        assert state.live == case["object"]
    if "owners" in case:
        expected = {manager: fields for manager, fields in case["owners"].items() if fields}
        assert {manager: owned.fields for manager, owned in state.owners.items()} == expected


LEFT_OUT = (
    "filtered fields uses versions: does use ignored fields versions",
    "filtered fields uses versions: update does not steal ignored",
    "filtered fields uses versions: apply does not steal ignored",
    "multiple appliers real conversion: multiple appliers recursive map real conversion",
    "multiple appliers real conversion: appliers remove from controller real conversion",
    "multiple appliers real conversion: applier updater shared ownership real conversion",
    "multiple applier recursive real conversion",
    "multiple appliers reliant fields conversions: multiple versions with reliant fields",
)


def test_only_cases_with_conversions_between_versions_are_left_out() -> None:
    """No kind here has versions of different form. The figures are those of docs/apiserver.md."""
    assert tuple(c["name"] for c in TABLE["cases"] if c.get("converts")) == LEFT_OUT
    values = yaml.load((Path(__file__).parent / "values.yaml").read_bytes(), yaml.CSafeLoader)
    others = sum(len(found) for found in values.values() if isinstance(found, list))
    same, all_cases = len(CASES) + others, len(TABLE["cases"]) + others
    assert (same, all_cases) == (518, 526)
    page = (Path(__file__).parents[4] / "docs/apiserver.md").read_text(encoding="utf-8")
    assert f"Of the {all_cases} cases" in page and f" {same} come out the same" in page


def test_nothing_given_is_changed() -> None:
    live = {"metadata": {"labels": {"a": "1"}}, "list": [1]}
    owners = {"x": Owned({"f:metadata": {"f:labels": {"f:a": {}}}}, applied=True)}
    applied = {"metadata": {"labels": {"b": "2"}}}
    result = ownership.apply(UNKNOWN, owners, live, applied, "x")
    assert result.value == {"metadata": {"labels": {"b": "2"}}, "list": [1]}
    assert live == {"metadata": {"labels": {"a": "1"}}, "list": [1]}
    assert owners["x"].fields == {"f:metadata": {"f:labels": {"f:a": {}}}}


def test_only_what_a_subresource_sets_is_kept() -> None:
    keep = ownership.including(("f:spec", "f:containers", "*", "f:resources"))
    fields = {
        "f:metadata": {"f:labels": {}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"a"}': {
                    ".": {},
                    "f:image": {},
                    "f:resources": {"f:limits": {"f:cpu": {}}},
                }
            }
        },
    }
    assert keep(fields) == {
        "f:spec": {
            "f:containers": {
                'k:{"name":"a"}': {".": {}, "f:resources": {"f:limits": {"f:cpu": {}}}}
            }
        }
    }


ITEMS = record({"items": list_of(record({}), ("name",)), "set": list_of(SCALAR)})
VALUES = st.integers(0, 3) | st.sampled_from(["a", "b"])
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "plain": VALUES,
        "map": st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1, max_size=3),
        "set": st.lists(VALUES, min_size=1, max_size=3, unique_by=str),
        "items": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from("abc")}, optional={"x": VALUES, "y": VALUES}
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda item: item["name"],
        ),
    },
)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_whoever_applies_by_force_gets_what_it_applies_and_owns_it(
    live: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    owners = ownership.update(ITEMS, {}, {}, live, "maker")
    once = ownership.apply(ITEMS, owners, live, first, "x", force=True)
    again = ownership.apply(ITEMS, once.owners, once.value, first, "x")
    assert again == once
    then = ownership.apply(ITEMS, once.owners, once.value, second, "x", force=True)
    wanted = typed.fields_of(ITEMS, second)
    assert then.owners.get("x", Owned({}, applied=True)).fields == wanted
    changed = compare(ITEMS, then.value, merge(ITEMS, then.value, second))
    assert not any(changed)
    # Whatever it applied first and not again is gone, unless the maker still owns it.
    left = field_sets.difference(typed.fields_of(ITEMS, first), wanted)
    there = field_sets.intersection(left, typed.all_fields(ITEMS, then.value)[1])
    kept = then.owners.get("maker", Owned({}, applied=False)).fields
    leaves = field_sets.leaves(there)
    assert set(field_sets.paths(leaves)) <= set(field_sets.paths(kept)), (live, first, second)
