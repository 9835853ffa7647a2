"""ApiError and its Status record, both ways; the texts are those of apimachinery api/errors."""

from typing import Any

import pytest

from orch.wire import errors
from orch.wire.errors import ApiError, Cause

GROUP = "coordination.orch.io"
NO_NAME, NO_NUMBER = (
    Cause("FieldValueRequired", "Required value", "metadata.name"),
    Cause("FieldValueInvalid", "must be a number", "spec.x"),
)
MADE = [
    (errors.bad_request("what?"), 400, "BadRequest", "what?"),
    (errors.unauthorized(), 401, "Unauthorized", "Unauthorized"),
    (errors.forbidden("no", name="n"), 403, "Forbidden", "no"),
    (errors.not_found("pods", "web"), 404, "NotFound", 'pods "web" not found'),
    (errors.not_found("leases", "n1", GROUP), 404, "NotFound", f'leases.{GROUP} "n1" not found'),
    (errors.already_exists("pods", "web"), 409, "AlreadyExists", 'pods "web" already exists'),
    (
        errors.conflict("leases", "n1", "it was modified", GROUP),
        409,
        "Conflict",
        f'Operation cannot be fulfilled on leases.{GROUP} "n1": it was modified',
    ),
    (
        errors.invalid("Pod", "web", (NO_NAME,)),
        422,
        "Invalid",
        'Pod "web" is invalid: metadata.name: Required value',
    ),
    (
        errors.invalid("Pod", "", (NO_NAME, NO_NUMBER, NO_NAME)),
        422,
        "Invalid",
        'Pod "" is invalid: [metadata.name: Required value, spec.x: must be a number]',
    ),
    (errors.expired("too old"), 410, "Expired", "too old"),
    (errors.service_unavailable("later"), 503, "ServiceUnavailable", "later"),
]


@pytest.mark.parametrize(("error", "code", "reason", "message"), MADE)
def test_every_refusal_has_its_code_word_and_sentence(
    error: ApiError, code: int, reason: str, message: str
) -> None:
    assert (error.code, error.reason, error.message) == (code, reason, message)
    assert str(error) == message
    assert errors._REASONS[code] in (reason, "Conflict")  # AlreadyExists shares 409


@pytest.mark.parametrize("error", [one[0] for one in MADE])
def test_a_status_read_back_is_the_same_error(error: ApiError) -> None:
    assert vars(ApiError.from_status(error.to_status(), code=0)) == vars(error)


def test_the_record_of_a_refusal() -> None:
    error = errors.invalid("Pod", "web", (NO_NAME,))
    error.retry_after_s = 3
    assert error.to_status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Pod "web" is invalid: metadata.name: Required value',
        "reason": "Invalid",
        "details": {
            "name": "web",
            "kind": "Pod",
            "retryAfterSeconds": 3,
            "causes": [
                {
                    "reason": "FieldValueRequired",
                    "message": "Required value",
                    "field": "metadata.name",
                }
            ],
        },
        "code": 422,
    }
    assert "details" not in errors.bad_request("x").to_status()


@pytest.mark.parametrize("body", [None, "text", [], {"kind": "Pod", "message": "secret"}])
@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (418, "Unknown")])
def test_a_body_that_is_no_status_is_not_quoted(body: Any, code: int, reason: str) -> None:
    error = ApiError.from_status(body, code=code)
    assert (error.code, error.reason) == (code, reason)
    assert error.message == f"the server answered {code}"


def test_what_a_status_leaves_out_comes_from_the_answers_code() -> None:
    error = ApiError.from_status({"kind": "Status"}, code=409)
    assert (error.code, error.reason, error.causes) == (409, "Conflict", ())
