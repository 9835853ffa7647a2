"""Who a caller is: reading the Authorization header, reviewing tokens, anonymous callers."""

from __future__ import annotations

import asyncio
import gc
from types import FunctionType, ModuleType

import pytest
from aiohttp.test_utils import make_mocked_request

from nodeagent.auth.authentication import ANONYMOUS, Authenticator, Tokens, bearer_token
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity
from tests.fakes.reviews import FakeReviews

HEADERS = [
    (["Bearer abc"], "abc"),
    (["bearer abc"], "abc"),
    (["BEARER   abc  "], "abc"),
    (["  Bearer abc"], "abc"),
    (["Bearer"], ""),
    (["Bearer "], ""),
    (["Bearer a b"], ""),
    (["Basic dXNlcjpwYXNz"], ""),
    (["Bearerabc"], ""),
    ([""], ""),
    ([], ""),
    (["Bearer abc", "Bearer abc"], ""),
]


@pytest.mark.parametrize(("headers", "token"), HEADERS)
def test_a_token_is_read_from_one_bearer_header_only(headers: list[str], token: str) -> None:
    assert bearer_token(headers) == token


KNOWN = Identity("alice", ("devs",))


def authentication(*, anonymous: bool = False, review: bool = True) -> Authenticator:
    reviews = FakeReviews()
    reviews.tokens["good"] = KNOWN
    tokens = Tokens(reviews, keep_s=lambda: 60) if review else None
    return Authenticator(tokens=tokens, anonymous=anonymous)


async def named(authentication: Authenticator, **headers: str) -> str | None:
    identity = await authentication.identify(make_mocked_request("GET", "/", headers=headers))
    return identity.name if identity else None


CALLERS = [  # header, anonymous callers let in, tokens reviewed, who it is
    ("", False, True, None),
    ("", True, True, ANONYMOUS.name),
    ("Bearer good", False, True, "alice"),
    ("Bearer good", True, True, "alice"),
    ("Bearer bad", False, True, None),
    ("Bearer bad", True, True, None),  # a bad credential is never anonymous
    ("Basic dTpw", True, True, None),
    ("Bearer good", True, False, None),  # nobody can say whose it is
]


@pytest.mark.parametrize(("header", "anonymous", "review", "name"), CALLERS)
async def test_a_caller_is_known_by_its_token_or_anonymous_without_any(
    header: str, anonymous: bool, review: bool, name: str | None
) -> None:
    headers = {"Authorization": header} if header else {}
    assert await named(authentication(anonymous=anonymous, review=review), **headers) == name


async def test_members_of_the_token_are_authenticated() -> None:
    request = make_mocked_request("GET", "/", headers={"Authorization": "Bearer good"})
    identity = await authentication().identify(request)
    assert identity == Identity("alice", ("devs", "system:authenticated"))


@pytest.mark.looptime
async def test_good_and_bad_tokens_are_reviewed_once_per_time() -> None:
    reviews = FakeReviews()
    reviews.tokens["good"] = KNOWN
    tokens = Tokens(reviews, keep_s=lambda: 120)
    for _ in range(3):
        assert await tokens.identify("good")
        assert await tokens.identify("bad") is None
    assert reviews.asked == [("token", "good"), ("token", "bad")]
    del reviews.tokens["good"]
    await asyncio.sleep(119)
    assert await tokens.identify("good")
    await asyncio.sleep(1)
    assert await tokens.identify("good") is None


class Slow(FakeReviews):
    """A server that takes a moment; `most` were under way at once."""

    under_way = most = 0

    async def review_token(self, token: str) -> Identity | None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        return await super().review_token(token)


@pytest.mark.looptime
async def test_a_flood_of_tokens_neither_reaches_the_server_nor_delays_others() -> None:
    """Else it would take this node's share of the server, which its Lease needs."""
    reviews = Slow()
    reviews.tokens["good"] = KNOWN
    tokens = Tokens(reviews, keep_s=lambda: 120)
    flood = [asyncio.ensure_future(tokens.identify(f"{n}", "192.0.2.9")) for n in range(1000)]
    await asyncio.sleep(0.5)
    began_s = asyncio.get_running_loop().time()
    assert await tokens.identify("good", "192.0.2.1")
    assert asyncio.get_running_loop().time() - began_s < 0.2
    outcomes = await asyncio.gather(*flood, return_exceptions=True)
    refused = [one.code for one in outcomes if isinstance(one, ApiError)]
    assert outcomes.count(None) + len(refused) == 1000
    assert set(refused) == {429} and len(refused) > 900
    assert reviews.most <= 3
    assert len(reviews.asked) < 100


class Forgetful:
    async def review_token(self, token: str) -> Identity | None:
        return None


def reachable_text(root: object) -> str:
    """All texts that can be reached from an object, code apart."""
    seen: dict[int, object] = {}
    pending = [root]
    while pending:
        found = pending.pop()
        if id(found) not in seen and not isinstance(found, type | ModuleType | FunctionType):
            seen[id(found)] = found
            pending += gc.get_referents(found)
    return " ".join(repr(found) for found in seen.values() if isinstance(found, str | bytes))


async def test_no_token_stays_in_memory() -> None:
    tokens = Tokens(Forgetful(), keep_s=lambda: 120)
    await tokens.identify("canary-token")
    assert "canary-token" not in reachable_text(tokens)
