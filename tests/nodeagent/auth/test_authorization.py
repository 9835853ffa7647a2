"""The rights of a caller, by each of the three rules."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.auth.authorization import AlwaysAllow, BuiltInGroups, Reviewed
from nodeagent.auth.reviews import ReviewError
from orch.wire.records.authentication import Identity
from tests.fakes.reviews import FakeReviews

ADMIN = Identity("admin", ("system:masters",))
APISERVER = Identity("system:apiserver", ())
MONITORING = Identity("prometheus", ("system:monitoring",))
NOBODY = Identity("somebody", ("system:authenticated",))

RIGHTS = [
    (ADMIN, "create", "checkpoint", True),
    (APISERVER, "create", "checkpoint", True),
    (MONITORING, "get", "metrics", True),
    (MONITORING, "get", "stats", True),
    (MONITORING, "get", "healthz", True),
    (MONITORING, "delete", "metrics", False),
    (MONITORING, "get", "pods", False),
    (MONITORING, "get", "proxy", False),
    (NOBODY, "get", "healthz", False),
]


@pytest.mark.parametrize(("identity", "verb", "subresource", "allowed"), RIGHTS)
async def test_alone_the_group_of_the_certificate_decides(
    identity: Identity, verb: str, subresource: str, allowed: bool
) -> None:
    assert await BuiltInGroups().allows(identity, verb, subresource) is allowed


async def test_always_allow_allows() -> None:
    assert await AlwaysAllow().allows(NOBODY, "create", "checkpoint")


def reviewed(reviews: FakeReviews) -> Reviewed:
    return Reviewed(reviews, keep_s=lambda allowed: 300 if allowed else 30)


@pytest.mark.looptime
async def test_changed_rights_take_effect_when_the_cache_expires() -> None:
    reviews = FakeReviews()
    reviews.rights.add(("somebody", "get", "metrics"))
    authorizer = reviewed(reviews)
    assert await authorizer.allows(NOBODY, "get", "metrics")
    assert not await authorizer.allows(NOBODY, "get", "pods")
    reviews.rights = {("somebody", "get", "pods")}
    await asyncio.sleep(29)
    assert not await authorizer.allows(NOBODY, "get", "pods")
    await asyncio.sleep(1)
    assert await authorizer.allows(NOBODY, "get", "pods")
    await asyncio.sleep(269)
    assert await authorizer.allows(NOBODY, "get", "metrics")
    await asyncio.sleep(1)
    assert not await authorizer.allows(NOBODY, "get", "metrics")


@pytest.mark.looptime
async def test_without_an_api_server_what_was_answered_holds_for_its_time() -> None:
    reviews = FakeReviews()
    reviews.rights.add(("somebody", "get", "metrics"))
    authorizer = reviewed(reviews)
    assert await authorizer.allows(NOBODY, "get", "metrics")
    reviews.gone = True
    await asyncio.sleep(299)
    assert await authorizer.allows(NOBODY, "get", "metrics")
    await asyncio.sleep(1)
    with pytest.raises(ReviewError):
        await authorizer.allows(NOBODY, "get", "metrics")


async def test_every_attribute_is_part_of_the_cache_key() -> None:
    reviews = FakeReviews()
    authorizer = reviewed(reviews)
    for identity in (
        NOBODY,
        replace(NOBODY, uid="1"),
        replace(NOBODY, extra={"scopes": ("a",)}),
        replace(NOBODY, extra={"scopes": ("b",)}),
        replace(NOBODY, groups=("x",)),
    ):
        await authorizer.allows(identity, "get", "metrics")
        await authorizer.allows(identity, "get", "metrics")
    assert len(reviews.asked) == 5


async def test_attributes_of_ten_thousand_characters_are_not_cached() -> None:
    reviews = FakeReviews()
    authorizer = reviewed(reviews)
    long = replace(NOBODY, extra={"note": ("x" * 10_000,)})
    assert not await authorizer.allows(long, "get", "metrics")
    assert not await authorizer.allows(long, "get", "metrics")
    assert len(reviews.asked) == 2
