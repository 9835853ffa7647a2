from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from orch.server.authn.credentials import ANONYMOUS, by_bearer, chain
from orch.server.authn.tokens import Holder, Tokens
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

ALICE = Identity("alice")
TOKENS = Tokens((lambda token: Holder(ALICE) if token == "good" else None,), ("server",))


async def nobody(_request) -> None:
    return None


async def alice(_request) -> Identity:
    return ALICE


async def test_the_first_that_knows_the_caller_decides() -> None:
    request = make_mocked_request("GET", "/")
    assert await chain(nobody, alice)(request) is ALICE
    assert await chain(alice, by_bearer(TOKENS))(request) is ALICE


async def test_who_presents_nothing_is_anonymous() -> None:
    authenticate = chain(nobody, by_bearer(TOKENS))
    assert await authenticate(make_mocked_request("GET", "/")) is ANONYMOUS
    assert ANONYMOUS.name == "system:anonymous"
    assert ANONYMOUS.groups == ("system:unauthenticated",)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_the_holder_of_a_token_is_known(scheme: str) -> None:
    headers = {"Authorization": f"{scheme} good"}
    request = make_mocked_request("GET", "/", headers=headers, sslcontext=object())
    assert (await chain(nobody, by_bearer(TOKENS))(request)).name == "alice"


async def test_a_token_in_the_clear_is_refused() -> None:
    request = make_mocked_request("GET", "/", headers={"Authorization": "Bearer good"})
    with pytest.raises(ApiError):
        await by_bearer(TOKENS)(request)


@pytest.mark.parametrize("credential", ["Bearer x", "Basic x", "", "Negotiate", "Bearer"])
async def test_a_credential_nobody_accepted_is_refused(credential: str) -> None:
    request = make_mocked_request(
        "GET", "/", headers={"Authorization": credential}, sslcontext=object()
    )
    with pytest.raises(ApiError) as caught:
        await chain(nobody, by_bearer(TOKENS))(request)
    assert caught.value.code == 401
