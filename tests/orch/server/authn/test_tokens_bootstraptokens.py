"""Bootstrap tokens: K:plugin/pkg/auth/authenticator/token/bootstrap/bootstrap_test.go."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from orch.server.authn.tokens import Holder, TokenRefused, authenticator

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "abcdef.0123456789abcdef"
GOOD = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-authentication": "true",
    "expiration": "2026-01-01T00:00:01Z",
}


def secret(changes: dict[str, str | None], **fields: Any) -> dict[str, Any]:
    data = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "data": encoded,
        **fields,
    }


def ask(token: str, stored: dict[str, Any]) -> Holder | None:
    return authenticator({"bootstrap-token-abcdef": stored}.get, lambda: NOW)(token)


def test_a_good_token_makes_a_bootstrapper() -> None:
    groups = {"auth-extra-groups": "system:bootstrappers:foo, system:bootstrappers:bar"}
    holder = ask(TOKEN, secret(groups))
    assert holder is not None
    assert holder.identity.name == "system:bootstrap:abcdef"
    assert holder.identity.groups == (
        "system:bootstrappers", "system:bootstrappers:foo", "system:bootstrappers:bar",
    )  # fmt: skip


@pytest.mark.parametrize(
    "token", ["abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef", "", f"{TOKEN}\n"]
)
def test_another_shape_is_for_others(token: str) -> None:
    assert ask(token, secret({})) is None


def test_an_unknown_id_is_not_known() -> None:
    assert ask("aaaaaa.0123456789abcdef", secret({})) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"token-secret": "0123456789abcdeX"},
        {"token-secret": None},
        {"token-id": "other0"},
        {"usage-bootstrap-authentication": "false"},
        {"usage-bootstrap-authentication": None},
        {"expiration": "2026-01-01T00:00:00Z"},
        {"expiration": "never"},
        {"auth-extra-groups": "system:masters"},
        {"auth-extra-groups": "system:bootstrappers:foo,system:masters"},
    ],
)
def test_what_is_not_in_order_is_refused(changes: dict[str, str | None]) -> None:
    with pytest.raises(TokenRefused) as caught:
        ask(TOKEN, secret(changes))
    assert "0123456789" not in str(caught.value)


def test_a_token_without_an_end_is_good() -> None:
    assert ask(TOKEN, secret({"expiration": None})) is not None


@pytest.mark.parametrize(
    "fields",
    [{"type": "Opaque"}, {"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}}],
)
def test_only_a_secret_of_its_type_that_stays_counts(fields: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        ask(TOKEN, secret({}, **fields))
