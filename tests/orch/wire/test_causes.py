from __future__ import annotations

import time

import pytest

from orch.wire import causes


@pytest.mark.parametrize(
    ("cause", "reason", "message"),
    [  # AM:util/validation/field/errors.go
        (causes.required("f"), "FieldValueRequired", "Required value"),
        (causes.required("f", "say it"), "FieldValueRequired", "Required value: say it"),
        (causes.invalid_value("f", "x", "why"), "FieldValueInvalid", 'Invalid value: "x": why'),
        (causes.invalid_value("f", 7, "why"), "FieldValueInvalid", "Invalid value: 7: why"),
        (causes.invalid_value("f", None, "why"), "FieldValueInvalid", "Invalid value: null: why"),
        (
            causes.not_supported("f", "x", ("b", "a")),
            "FieldValueNotSupported",
            'Unsupported value: "x": supported values: "a", "b"',
        ),
        (causes.forbidden("f", "why"), "FieldValueForbidden", "Forbidden: why"),
        (causes.duplicate("f", "x"), "FieldValueDuplicate", 'Duplicate value: "x"'),
        (causes.not_found("f", "x"), "FieldValueNotFound", 'Not found: "x"'),
        (causes.too_long("f", "why"), "FieldValueTooLong", "Too long: why"),
    ],
)
def test_causes_read_as_clients_know_them(cause, reason, message) -> None:
    assert (cause.field, cause.reason, cause.message) == ("f", reason, message)


def test_a_value_is_shown_whatever_it_is_and_only_its_beginning() -> None:
    assert "100000000000000000000000" in causes.invalid_value("f", 10**23, "why").message
    [cause] = causes.invalid_values(causes.at_key("f", "k" * 5000), ["x" * 5000], ["why"])
    assert cause.message.startswith('Invalid value: ["xxx') and cause.message.endswith("…: why")
    assert len(cause.message) < 1100 and len(cause.field) < 1100
    [missing] = causes.unless_given({"a": 1, "b": ""}, "f", "a", "b")
    assert missing == causes.required("f.b")
    assert not [*causes.unless_one_of({"a": ""}, "a", ("x",), "f")]


def test_a_hundred_causes_about_one_long_text_are_told_at_once() -> None:
    """A pod whose files in a volume share a path kept the thread of large objects for seconds."""
    text = "x" * 3_000_000
    began_s = time.thread_time()
    for _ in range(500):
        causes.invalid_value("f", text, "why")
    assert time.thread_time() - began_s < 1.0
