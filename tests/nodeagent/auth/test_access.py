"""Path to subresource, and the decision about one request: the reference agent's table and texts.

The decision over real connections is in test_access_table.
"""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from nodeagent.auth.access import Access, Attributes, attributes_of
from nodeagent.auth.authentication import Authenticator, Tokens
from nodeagent.auth.authorization import AlwaysAllow, Reviewed
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity
from tests.fakes.reviews import FakeReviews

# nodeagent.md §8.2: method, path, verb, subresources with the gate, and without it
PATHS = [
    ("GET", "/stats/summary", "get", ("stats",), ("stats",)),
    ("POST", "/stats/summary", "create", ("stats",), ("stats",)),
    ("GET", "/pressure", "get", ("stats",), ("stats",)),
    ("GET", "/metrics", "get", ("metrics",), ("metrics",)),
    ("GET", "/metrics/resource", "get", ("metrics",), ("metrics",)),
    ("DELETE", "/metrics/slis", "delete", ("metrics",), ("metrics",)),
    ("GET", "/logs/syslog", "get", ("log",), ("log",)),
    ("POST", "/checkpoint/ns/pod/c", "create", ("checkpoint",), ("checkpoint",)),
    ("GET", "/pods", "get", ("pods", "proxy"), ("proxy",)),
    ("GET", "/runningpods/", "get", ("pods", "proxy"), ("proxy",)),
    ("GET", "/healthz", "get", ("healthz", "proxy"), ("proxy",)),
    ("GET", "/healthz/ping", "get", ("healthz", "proxy"), ("proxy",)),
    ("GET", "/configz", "get", ("configz", "proxy"), ("proxy",)),
    ("GET", "/statusz", "get", ("statusz", "proxy"), ("proxy",)),
    ("GET", "/flagz", "get", ("proxy",), ("proxy",)),
    ("GET", "/containerLogs/a/b/c", "get", ("proxy",), ("proxy",)),
    ("POST", "/run/a/b/c", "create", ("proxy",), ("proxy",)),
    ("GET", "/statsfoo", "get", ("proxy",), ("proxy",)),
    ("GET", "/podsx", "get", ("proxy",), ("proxy",)),
    ("GET", "/", "get", ("proxy",), ("proxy",)),
    ("HEAD", "/pods", "get", ("pods", "proxy"), ("proxy",)),
    ("PUT", "/pods", "update", ("pods", "proxy"), ("proxy",)),
    ("PATCH", "/pods", "patch", ("pods", "proxy"), ("proxy",)),
    ("TRACE", "/pods", "", ("pods", "proxy"), ("proxy",)),
    ("OPTIONS", "/metrics", "", ("metrics",), ("metrics",)),
]


@pytest.mark.parametrize(("method", "path", "verb", "fine", "coarse"), PATHS)
def test_a_request_asks_for_the_subresources_of_its_path(
    method: str, path: str, verb: str, fine: tuple[str, ...], coarse: tuple[str, ...]
) -> None:
    assert attributes_of(method, path) == Attributes(verb, fine)
    assert attributes_of(method, path, fine_grained=False) == Attributes(verb, coarse)


async def decide(reviews: FakeReviews, method: str, path: str, token: str = "t") -> ApiError | None:
    """The refusal of a request with a bearer token; None when it may go on."""
    reviews.tokens.setdefault("t", Identity("alice"))
    authorizer = Reviewed(reviews, keep_s=lambda _: 0)
    access = Access(Authenticator(tokens=Tokens(reviews, keep_s=lambda: 0)), authorizer)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        await access.check(make_mocked_request(method, path, headers=headers))
    except ApiError as error:
        return error
    return None


async def test_the_fine_grained_right_is_reviewed_before_the_fallback() -> None:
    reviews = FakeReviews()
    reviews.rights.add(("alice", "get", "proxy"))
    assert await decide(reviews, "GET", "/pods") is None
    reviews.rights.add(("alice", "get", "pods"))
    assert await decide(reviews, "GET", "/pods") is None
    asked = [one for one in reviews.asked if one[0] == "alice"]
    assert asked == [("alice", "get", "pods"), ("alice", "get", "proxy"), ("alice", "get", "pods")]


REFUSALS = [  # token, gone, method, code, body
    ("", False, "GET", 401, "Unauthorized"),
    ("unknown", False, "GET", 401, "Unauthorized"),
    ("t", True, "GET", 401, "Unauthorized"),  # nobody can say whose the token is
    (
        "t", False, "GET", 403,
        "Forbidden (user=alice, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
    ),
    (
        "t", False, "TRACE", 403,
        "Forbidden (user=alice, verb=, resource=nodes, subresource(s)=[pods proxy])\n",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("token", "gone", "method", "code", "body"), REFUSALS)
async def test_who_is_refused_hears_why(
    token: str, gone: bool, method: str, code: int, body: str
) -> None:
    reviews = FakeReviews()
    reviews.gone = gone
    refusal = await decide(reviews, method, "/pods", token)
    assert refusal
    assert (refusal.code, refusal.message) == (code, body)


async def test_a_method_without_a_verb_is_not_reviewed() -> None:
    reviews = FakeReviews()
    await decide(reviews, "TRACE", "/pods")
    assert reviews.asked == [("token", "t")]


class _Known(Authenticator):
    async def identify(self, request: object) -> Identity:
        return Identity("alice")


async def test_a_decision_that_cannot_be_had_is_the_servers_error() -> None:
    reviews = FakeReviews()
    reviews.gone = True
    access = Access(_Known(), Reviewed(reviews, keep_s=lambda _: 0))
    with pytest.raises(ApiError) as caught:
        await access.check(make_mocked_request("GET", "/metrics"))
    assert (caught.value.code, caught.value.message) == (
        500,
        "Authorization error (user=alice, verb=get, resource=nodes, subresource=metrics)\n"
        "The API server gave no answer; /readyz on healthzPort of this node needs none.\n",
    )


async def test_always_allow_admits_authenticated_callers_only() -> None:
    access = Access(_Known(), AlwaysAllow())
    await access.check(make_mocked_request("POST", "/checkpoint/a/b/c"))
    with pytest.raises(ApiError, match="Unauthorized"):
        await Access(Authenticator(), AlwaysAllow()).check(make_mocked_request("GET", "/pods"))
