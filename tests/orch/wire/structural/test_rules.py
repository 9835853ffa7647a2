"""Rules that keep a schema from being structural.

Cases from the reference's apiextensions-apiserver/pkg/apiserver/schema/validation_test.go and
pkg/apis/apiextensions/validation/validation_test.go.
"""

from __future__ import annotations

from typing import Any

import pytest

from orch.wire.structural import rules

TEXT = {"type": "string"}
PRESERVE = "x-kubernetes-preserve-unknown-fields"
EITHER = "x-kubernetes-int-or-string"


def found(schema: Any) -> list[str]:
    root = {"type": "object", "properties": {"a": schema}}
    return [cause.field.removeprefix("s.properties[a]") for cause in rules.violations(root, "s")]


@pytest.mark.parametrize(
    "schema",
    [
        TEXT,
        {PRESERVE: True},
        {EITHER: True},
        {EITHER: True, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^1%?$"},
        {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "properties": {"b": TEXT}, "additionalProperties": True},
        {"type": "object", "x-kubernetes-embedded-resource": True, PRESERVE: True},
        {
            "type": "object",
            "properties": {"b": {"type": "array", "items": TEXT}},
            "anyOf": [{"required": ["b"]}, {"properties": {"b": {"items": {"maxLength": 3}}}}],
        },
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {**TEXT, "default": "x"}}},
        },
    ],
)
def test_structural_schemas_have_no_violation(schema: Any) -> None:
    assert found(schema) == []


@pytest.mark.parametrize(
    ("schema", "at"),
    [
        ({}, ".type"),
        ({"type": "text"}, ".type"),
        ({"type": "array"}, ".items"),
        ({"type": "string", EITHER: True}, ".type"),
        ({"type": "object", PRESERVE: False}, f".{PRESERVE}"),
        ({"type": "object", "additionalProperties": False}, ".additionalProperties"),
        (
            {"type": "object", "properties": {"b": TEXT}, "additionalProperties": TEXT},
            ".additionalProperties",
        ),
        ({**TEXT, "$ref": "#/x"}, ".$ref"),
        ({**TEXT, "patternProperties": {}}, ".patternProperties"),
        ({**TEXT, "pattern": "(?=a)"}, ".pattern"),
        ({**TEXT, "pattern": "(a{1000}){1000}"}, ".pattern"),
        ({**TEXT, "pattern": "a" * 3000}, ".pattern"),
        ({**TEXT, "maxLength": "3"}, ".maxLength"),
        ({**TEXT, "maxLength": -1}, ".maxLength"),
        ({"type": "number", "multipleOf": 0}, ".multipleOf"),
        ({"type": "array", "items": TEXT, "uniqueItems": True}, ".uniqueItems"),
        ({"type": "object", "required": [1]}, ".required"),
        ({"type": "object", "x-kubernetes-validations": []}, ".x-kubernetes-validations"),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, ".properties"),
        ({**TEXT, "anyOf": []}, ".anyOf"),
        ({**TEXT, "anyOf": [{"type": "string"}]}, ".anyOf[0].type"),
        ({"type": "object", "not": {"properties": {"b": {}}}}, ".not.properties[b]"),
        ({"type": "object", "oneOf": [{"items": {}}]}, ".oneOf[0].items"),
        ({**TEXT, "x-kubernetes-list-type": "set"}, ".type"),
        ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "bag"},
         ".x-kubernetes-list-type"),
        ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "map"},
         ".x-kubernetes-list-map-keys"),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
             "items": {"type": "object", "properties": {"k": TEXT}}},
            ".x-kubernetes-list-map-keys[0]",
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
            ".items.type",
        ),
        ({**TEXT, "x-kubernetes-map-type": "atomic"}, ".type"),
        ("text", ""),
    ],
)  # fmt: skip
def test_each_violation_has_the_path_of_its_keyword(schema: Any, at: str) -> None:
    assert found(schema) == [at]


def test_the_root_is_an_object_of_the_api() -> None:
    assert [c.field for c in rules.violations({"type": "string"}, "s")] == ["s.type"]
    metadata = {"type": "object", "properties": {"labels": {"type": "object"}, "name": TEXT}}
    root = {"type": "object", "properties": {"metadata": metadata}}
    assert [c.field for c in rules.violations(root, "s")] == [
        "s.properties[metadata].properties[labels]"
    ]


def test_what_a_schema_may_cost_is_bounded() -> None:
    deep: Any = TEXT
    for _ in range(rules.MAX_DEPTH + 1):
        deep = {"type": "object", "properties": {"a": deep}}
    assert len(found(deep)) == 1
    wide = {"type": "object", "properties": {f"f{n}": TEXT for n in range(rules.MAX_NODES)}}
    assert found(wide)
    choices = {**TEXT, "anyOf": [{"minLength": n} for n in range(rules.MAX_ALTERNATIVES + 1)]}
    assert len(found(choices)) == 1
    count = rules.MAX_PATTERNS + 1
    patterns = {f"f{n}": {**TEXT, "pattern": f"^a{n}$"} for n in range(count)}
    plain = dict.fromkeys(("x", "y", "z"), TEXT)
    assert len(found({"type": "object", "properties": patterns | plain})) == 1
    more = {f"g{n}": {**TEXT, "pattern": f"^b{n}$"} for n in range(500)}
    assert len(found({"type": "object", "properties": patterns | more})) <= 100
    assert not found({"type": "object", "properties": dict.fromkeys(patterns, patterns["f0"])})
    assert found({**TEXT, "pattern": r"\d" * 60})
