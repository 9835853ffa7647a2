from __future__ import annotations

import time
from typing import Any

import pytest

from orch.wire.structural.validator import compile_schema, pattern_problem


def found(schema: dict[str, Any], value: Any) -> list[tuple[str, str]]:
    root = {"type": "object", "properties": {"a": schema}}
    problems = compile_schema(root).problems({"a": value})
    return [(cause.field, cause.message.rpartition(": ")[2]) for cause in problems]


@pytest.mark.parametrize(
    ("schema", "fits", "does_not", "text"),
    [
        ({"type": "integer", "minimum": 2}, 2, 1, "should be greater than or equal to 2"),
        ({"type": "integer", "maximum": 2, "exclusiveMaximum": True}, 1, 2,
         "should be less than 2"),
        ({"type": "string", "maxLength": 1}, "a", "ab", "should be at most 1 chars long"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "a", "A", "should match '^[a-z]+$'"),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z", "x",
         "should be in the format date-time"),
        ({"type": "string", "format": "of-nobody"}, "x", 1, "must be of type string"),
        ({"type": "integer"}, 1.0, "1", "must be of type integer"),
        ({"type": "string", "nullable": True}, None, 1, "must be of type null or string"),
        ({"x-kubernetes-int-or-string": True}, "1", True, "must be of type integer or string"),
        ({"type": "string", "enum": ["a"]}, "a", "b", '"a"'),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a"], ["a", "b"],
         "should have at most 1 items"),
        ({"type": "integer", "not": {"enum": [3]}}, 2, 3, "must not fit the schema in not"),
    ],
)  # fmt: skip
def test_values_are_held_against_every_rule(
    schema: dict[str, Any], fits: Any, does_not: Any, text: str
) -> None:
    assert found(schema, fits) == []
    assert found(schema, does_not) == [("a", text)]


def test_a_large_schema_is_compiled_in_parts_and_means_the_same() -> None:
    fields = {f"f{n}": {"type": "string", "pattern": "^a+$"} for n in range(400)}
    record = {"type": "object", "properties": fields, "required": ["f0"], "maxProperties": 2}
    for schema, wrap in (
        (record, lambda value: value),
        ({"type": "array", "items": record}, lambda value: [value]),
        ({"type": "object", "additionalProperties": record}, lambda value: {"k": value}),
    ):
        assert found(schema, wrap({"f0": "a"})) == []
        paths = [path for path, _ in found(schema, wrap({"f0": "b"}))]
        assert len(paths) == 1
        assert paths[0].endswith("f0")
        assert len(found(schema, wrap({}))) == 1


def test_patterns_are_matched_in_linear_time() -> None:
    began_s = time.perf_counter()
    assert found({"type": "string", "pattern": "^(a+)+$"}, "a" * 60_000 + "b")
    assert time.perf_counter() - began_s < 5
    assert pattern_problem("^(a+)+$") == ""
    for refused in ("(?=a)", r"(a)\1", "(a{1000}){1000}", "["):
        assert pattern_problem(refused)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [("^[a-z]+$", 65_536), ("(a|b)*a(a|b){15}x", 8_192), ("(a|b)*a(a|b){200}x", 2_048)],
)
def test_the_larger_a_compiled_pattern_the_shorter_the_texts_it_is_held_against(
    pattern: str, most: int
) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert any("should match" in text for _, text in found(schema, "0" * most))
    assert any("too long" in text for _, text in found(schema, "0" * (most + 1)))


@pytest.mark.parametrize("fields", [1, 400])
def test_a_schema_knows_whether_it_has_patterns(fields: int) -> None:
    plain = {f"f{n}": {"type": "string"} for n in range(fields)}
    assert not compile_schema({"type": "object", "properties": plain}).has_patterns
    inner = {"type": "array", "items": {"type": "string", "pattern": "^a"}}
    assert compile_schema({"type": "object", "properties": {**plain, "x": inner}}).has_patterns


def test_many_escapes_of_classes_and_controls_are_refused() -> None:
    for escape in (r"\d", r"\W", r"\cA", r"[\cA]"):
        assert pattern_problem(escape * 51)
    assert pattern_problem(r"\cA" * 50) == ""


@pytest.mark.parametrize(
    "member",
    [
        {"multipleOf": 0.03},
        {"not": {"multipleOf": 3}},
        {"properties": {"b": {"enum": [1.5]}}},
        {"allOf": [{"minLength": 1}] * 200},
    ],
)
def test_junctors_hold_no_list_against_what_takes_long(member: dict[str, Any]) -> None:
    items = {"type": "object", "properties": {"b": {"type": "number"}}}
    for junctor in ({"anyOf": [{"items": member}]}, {"not": {"items": member}}):
        with pytest.raises(ValueError, match="items of a list"):
            compile_schema({"type": "array", "items": items, **junctor})
    assert compile_schema({"type": "array", "items": {**items, **member}})
    assert compile_schema({"type": "number", "anyOf": [{"multipleOf": 3}, {"multipleOf": 0.5}]})


def test_all_fields_that_a_small_object_lacks_are_told_and_one_of_a_larger() -> None:
    schema = {"type": "object", "required": [f"r{number}" for number in range(1000)]}
    assert len(found(schema, {"x": "y" * 3_900})) == 1000
    assert len(found(schema, {"x": "y" * 5_000})) == 1
    assert len(found(schema, {f"x{number}": 1 for number in range(50)})) == 1


def test_of_a_large_value_the_first_problem_is_told() -> None:
    schema = {"type": "array", "items": {"type": "string"}}
    assert [path for path, _ in found(schema, [1] * 5000)] == ["a[0]"]
    assert len(found(schema, [1] * 5)) == 5
