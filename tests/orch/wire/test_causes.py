from __future__ import annotations

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
