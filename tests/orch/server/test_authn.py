from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from orch.server.authn import ANONYMOUS, chain, refuse_unknown_credentials
from orch.wire.errors import ApiError
from orch.wire.identity import Identity

ALICE = Identity("alice")


async def nobody(_request) -> None:
    return None


async def alice(_request) -> Identity:
    return ALICE


async def test_the_first_that_knows_the_caller_decides() -> None:
    request = make_mocked_request("GET", "/")
    assert await chain(nobody, alice)(request) is ALICE
    assert await chain(alice, refuse_unknown_credentials)(request) is ALICE


async def test_who_presents_nothing_is_anonymous() -> None:
    authenticate = chain(nobody, refuse_unknown_credentials)
    assert await authenticate(make_mocked_request("GET", "/")) is ANONYMOUS
    assert ANONYMOUS.name == "system:anonymous"
    assert ANONYMOUS.groups == ("system:unauthenticated",)


@pytest.mark.parametrize("credential", ["Bearer x", "Basic x", "", "Negotiate"])
async def test_a_credential_nobody_accepted_is_refused(credential: str) -> None:
    request = make_mocked_request("GET", "/", headers={"Authorization": credential})
    with pytest.raises(ApiError) as caught:
        await chain(nobody, refuse_unknown_credentials)(request)
    assert caught.value.code == 401
