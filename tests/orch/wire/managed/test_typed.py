"""Fields of values, their removal and what does not fit, by the reference's cases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from orch.wire.managed import typed
from orch.wire.managed.typed import UNKNOWN, atomic_list, list_of, record
from orch.wire.patch.patch import PatchError
from tests import scaling
from tests.orch.wire.managed.written_types import WrittenTypes

TABLE: dict[str, Any] = yaml.load(
    (Path(__file__).parent / "values.yaml").read_bytes(), yaml.CSafeLoader
)
TYPES = {
    name: WrittenTypes(entry["types"]).of(entry["root"]) for name, entry in TABLE["types"].items()
}
TYPES["unknown"] = UNKNOWN


@pytest.mark.parametrize("case", TABLE["fields"])
def test_a_value_sets_fields(case: dict[str, Any]) -> None:
    assert typed.fields_of(TYPES[case["types"]], case["object"]) == case["fields"]


@pytest.mark.parametrize("case", TABLE["remove"])
def test_fields_are_removed(case: dict[str, Any]) -> None:
    kind = TYPES[case["types"]]
    assert typed.removed(kind, case["object"], case["fields"]) == case["left"]


@pytest.mark.parametrize("case", TABLE["check"])
def test_a_value_fits_its_type(case: dict[str, Any]) -> None:
    kind, value = TYPES[case["types"]], case["object"]
    applied = not list(typed.problems(kind, value))
    live = not list(typed.problems(kind, value, doubles=True))
    expected = {"always": (True, True), "never": (False, False), "live": (False, True)}
    assert (applied, live) == expected[case["fits"]]


PODS = record(
    {
        "ports": list_of(record({}, defaults={"protocol": "TCP"}), ("containerPort", "protocol")),
        "args": atomic_list(UNKNOWN),
    }
)


def test_problems_name_their_path() -> None:
    wrong = {"ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]}
    assert list(typed.problems(PODS, wrong)) == [
        '.ports: duplicate entries for key [containerPort=80,protocol="TCP"]'
    ]
    assert list(typed.problems(PODS, {"ports": [{}, 1]})) == [
        ".ports: element 1: a number cannot be an element of a list with keys"
    ]
    assert list(typed.problems(PODS, {"args": {"a": 1}})) == [
        ".args: expected a list, got an object"
    ]


def test_a_list_that_became_atomic_belongs_whole_to_who_owned_a_part() -> None:
    fields = {"f:args": {'v:"a"': {}}, "f:ports": {'k:{"containerPort":1}': {"f:name": {}}}}
    assert typed.reconciled(PODS, fields) == {**fields, "f:args": {}}
    unchanged = {"f:ports": fields["f:ports"], "f:args": {}}
    assert typed.reconciled(PODS, unchanged) is unchanged


def test_thousands_of_parts_of_what_became_atomic_take_no_longer_each() -> None:
    def reconciling(size: int) -> Callable[[], object]:
        inside = {f'k:{{"a":{number}}}': {"f:b": {}} for number in range(size)}
        return lambda: typed.reconciled(UNKNOWN, inside)

    assert scaling.growth(reconciling, 4_000) < scaling.LINEAR


def test_a_value_nested_too_deeply_is_refused() -> None:
    value: dict[str, Any] = {}
    for _ in range(150):
        value = {"a": value}
    for read in (typed.fields_of, typed.all_fields):
        with pytest.raises(PatchError, match="nested deeper"):
            read(UNKNOWN, value)
