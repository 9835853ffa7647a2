from __future__ import annotations

import pytest

from orch.server.authn.tokens import Holder, TokenRefused, Tokens
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

ANN, BOB = Identity("ann", ("g",), "1"), Identity("bob")


def of_ann(token: str) -> Holder | None:
    return Holder(ANN) if token == "a" else None


def of_bob(token: str) -> Holder | None:
    if token == "old":
        raise TokenRefused("the token is too old")
    return Holder(BOB, ("agent", "server")) if token == "b" else None


TOKENS = Tokens((of_bob, of_ann), ("server",))


@pytest.mark.parametrize(("token", "identity"), [("a", ANN), ("b", BOB)])
async def test_whoever_knows_the_token_says_whose_it_is(token, identity) -> None:
    found = await TOKENS.authenticate(token)
    assert (found.name, found.uid) == (identity.name, identity.uid)
    assert found.groups == (*identity.groups, "system:authenticated")


@pytest.mark.parametrize("token", ["", "c", "old"])
async def test_any_other_token_is_refused_without_a_reason(token) -> None:
    with pytest.raises(ApiError) as caught:
        await TOKENS.authenticate(token)
    assert (caught.value.code, caught.value.message) == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("token", "audiences", "matched"),
    [
        ("a", (), ["server"]),
        ("a", ("server", "other"), ["server"]),
        ("b", ("agent",), ["agent"]),
        ("b", (), ["server"]),
    ],
)
async def test_a_review_tells_the_user_and_the_audiences(token, audiences, matched) -> None:
    status = await TOKENS.review(token, audiences)
    assert status.authenticated is True
    assert status.audiences == matched
    assert status.user is not None
    assert status.user.username == ("ann" if token == "a" else "bob")


@pytest.mark.parametrize(
    ("token", "audiences", "error"),
    [
        ("c", (), "invalid bearer token"),
        ("old", (), "the token is too old"),
        ("x" * 16_385, (), "the token is longer than 16384 characters"),
        ("a", ("other",), "target audiences"),
        ("b", ("other",), "target audiences"),
    ],
)
async def test_a_review_tells_why_not(token, audiences, error) -> None:
    status = await TOKENS.review(token, audiences)
    assert status.authenticated is False
    assert error in (status.error or "")


async def test_a_token_for_somebody_else_is_refused() -> None:
    tokens = Tokens((lambda _token: Holder(BOB, ("agent",)),), ("server",))
    with pytest.raises(ApiError):
        await tokens.authenticate("b")
