from __future__ import annotations

from typing import Any

import pytest

from orch.wire.managed import typed
from orch.wire.structural.schema import (
    DEFAULTED_MAX,
    Schema,
    TooManyDefaults,
    default_problems,
)

TEXT = {"type": "string"}
PRESERVE = "x-kubernetes-preserve-unknown-fields"


def of(**fields: Any) -> Schema:
    return Schema({"type": "object", "properties": fields})


@pytest.mark.parametrize(
    ("schema", "value", "kept"),
    [
        ({"type": "object"}, {"x": 1}, {}),
        ({"type": "object", PRESERVE: True}, {"x": {"y": 1}}, {"x": {"y": 1}}),
        (
            {"type": "object", PRESERVE: True, "properties": {"b": {"type": "object"}}},
            {"b": {"x": 1}, "c": {"x": 1}},
            {"b": {}, "c": {"x": 1}},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "object"}},
            {"k": {"x": 1}},
            {"k": {}},
        ),
        ({"type": "array", "items": {"type": "object"}}, [{"x": 1}, 2], [{}, 2]),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {}},
            {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "x": 1},
            {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}},
        ),
    ],
)
def test_unknown_fields_are_dropped(schema: Any, value: Any, kept: Any) -> None:
    made = of(a=schema)
    document = {"kind": "K", "apiVersion": "g/v", "metadata": {"labels": {}}, "a": value}
    assert made.completed(document) == {**document, "a": kept}
    assert bool(made.unknown_fields(document)) is (kept != value)


def test_defaults_are_set_where_their_object_is() -> None:
    inner = {"type": "object", "properties": {"c": {"type": "integer", "default": 1}}}
    schema = of(
        a={**inner, "default": {}}, b=inner, items={"type": "array", "items": inner},
        others={"type": "object", "additionalProperties": inner},
    )  # fmt: skip
    sent: dict[str, Any] = {"items": [{}, {"c": 2}], "others": {"x": {}}}
    assert schema.completed(sent) == {
        "a": {"c": 1}, "items": [{"c": 1}, {"c": 2}], "others": {"x": {"c": 1}},
    }  # fmt: skip
    assert sent == {"items": [{}, {"c": 2}], "others": {"x": {}}}


def test_what_defaults_add_is_bounded() -> None:
    fields = {f"f{n}": {"type": "integer", "default": 1} for n in range(100)}
    schema = of(a={"type": "array", "items": {"type": "object", "properties": fields}})
    with pytest.raises(TooManyDefaults):
        schema.completed({"a": [{}] * (DEFAULTED_MAX // 100 + 1)})


def test_a_default_must_fit_its_own_schema() -> None:
    def found(**fields: Any) -> list[str]:
        root = {"type": "object", "properties": fields}
        return [cause.field for cause in default_problems(root, "s")]

    assert found(a={**TEXT, "default": "x"}) == []
    assert found(a={**TEXT, "default": 1}) == ["s.properties[a].default"]
    assert found(a={"type": "object", "default": {"x": 1}}) == ["s.properties[a].default"]


def test_apply_merges_by_the_list_types_of_the_schema() -> None:
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["n", "p"],
        "items": {
            "type": "object",
            "properties": {"n": TEXT, "p": {**TEXT, "default": "tcp"}},
            "required": ["n"],
        },
    }
    kind = of(
        a=keyed,
        b={"type": "array", "items": TEXT},
        c={"x-kubernetes-int-or-string": True},
        d={"type": "object", "x-kubernetes-map-type": "atomic", PRESERVE: True},
    ).type
    value = {"a": [{"n": "x"}], "b": ["x"], "c": 1, "d": {"x": 1}}
    assert not list(typed.problems(kind, value))
    owned = typed.fields_of(kind, value)
    assert set(owned["f:a"]) == {'k:{"n":"x","p":"tcp"}'}
    assert (owned["f:b"], owned["f:d"]) == ({}, {})
    assert list(typed.problems(kind, {"x": 1, "b": 1}))
