"""Asking the API server: one contract for the real one and the fake, and what failures become."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nodeagent.auth.authentication import TokenReviewer
from nodeagent.auth.authorization import AccessReviewer
from nodeagent.auth.reviews import ApiReviews, ReviewError
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport, TransportError
from orch.component.process import clock
from orch.wire.errors import ApiError, service_unavailable
from orch.wire.records.authentication import Identity, TokenReview, TokenReviewStatus, UserInfo
from orch.wire.records.authorization import SubjectAccessReview, SubjectAccessReviewStatus
from tests.fakes.reviews import FakeReviews
from tests.orch.server.harness import Api, make_pki

MONITORING = Identity("prometheus", ("system:monitoring", "system:authenticated"))


class Reviewer(TokenReviewer, AccessReviewer):
    """Both questions."""


@pytest_asyncio.fixture(params=["fake", "real"])
async def reviews(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """Somebody to ask, who knows what the group system:monitoring may do, as node n1's agent."""
    if request.param == "fake":
        fake = FakeReviews()
        for part in ("metrics", "stats", "healthz"):
            fake.rights.add(("system:monitoring", "get", part))
        yield fake
        return
    pki = make_pki(tmp_path / "pki", clock.utc_now())
    api = await Api.start(pki, tmp_path / "data")
    pair = pki.users["n1"]
    config = ClientConfig(
        server=f"https://127.0.0.1:{api.port}",
        ca_file=pki.ca_file,
        cert_file=pair.cert_file,
        key_file=pair.key_file,
    )
    client = ApiClient(Transport(config))
    yield ApiReviews(client, "n1")
    await client.transport.close()
    await api.stop()


@pytest.mark.may_block
async def test_rights_and_tokens_are_reviewed(reviews: Reviewer) -> None:
    assert await reviews.review_access(MONITORING, "get", "metrics")
    assert await reviews.review_access(MONITORING, "get", "stats")
    assert not await reviews.review_access(MONITORING, "create", "checkpoint")
    assert not await reviews.review_access(Identity("nobody", ()), "get", "metrics")
    assert await reviews.review_token("unknown") is None


class Server:
    """An API server that answers each review with the next of its answers."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def create(self, review: Any) -> Any:
        self.asked.append(review)
        answer = self.answers.pop(0)
        if answer == "hang":
            await asyncio.sleep(3600)
        if isinstance(answer, Exception):
            raise answer
        return review.model_copy(update={"status": answer})


def asking(*answers: Any) -> tuple[Server, ApiReviews]:
    server = Server(*answers)
    return server, ApiReviews(server, "n1")  # type: ignore[arg-type]


async def test_a_question_names_the_caller_the_node_and_the_part() -> None:
    server, reviews = asking(SubjectAccessReviewStatus(allowed=True))
    identity = Identity("alice", ("devs",), "7", {"scopes": ("a", "b")})
    assert await reviews.review_access(identity, "get", "stats")
    (review,) = server.asked
    assert isinstance(review, SubjectAccessReview)
    assert review.spec.model_dump(exclude_defaults=True) == {
        "user": "alice",
        "groups": ["devs"],
        "uid": "7",
        "extra": {"scopes": ["a", "b"]},
        "resourceAuthorizationAttributes": {
            "verb": "get", "version": "v1", "resource": "nodes",
            "subresource": "stats", "name": "n1",
        },
    }  # fmt: skip


ANSWERS = [  # what the status says, whether it lets in
    (SubjectAccessReviewStatus(allowed=True), True),
    (SubjectAccessReviewStatus(allowed=False), False),
    (SubjectAccessReviewStatus(allowed=False, denied=True), False),
    (SubjectAccessReviewStatus(allowed=True, denied=True), False),
    (None, False),
]


@pytest.mark.parametrize(("status", "allowed"), ANSWERS)
async def test_only_a_clear_yes_lets_in(status: Any, allowed: bool) -> None:
    _, reviews = asking(status)
    assert await reviews.review_access(MONITORING, "get", "stats") is allowed


TOKENS = [
    (TokenReviewStatus(authenticated=True, user=UserInfo(username="a", groups=["g"])), "a"),
    (TokenReviewStatus(authenticated=True, user=UserInfo(username="")), None),
    (TokenReviewStatus(authenticated=True), None),
    (TokenReviewStatus(authenticated=False, user=UserInfo(username="a")), None),
    (TokenReviewStatus(authenticated=False, error="expired"), None),
    (None, None),
]


@pytest.mark.parametrize(("status", "name"), TOKENS)
async def test_only_an_authenticated_user_with_a_name_is_an_identity(
    status: Any, name: str | None
) -> None:
    server, reviews = asking(status)
    identity = await reviews.review_token("secret")
    assert (identity.name if identity else None) == name
    assert isinstance(server.asked[0], TokenReview)
    if identity:
        assert identity.groups == ("g", "system:authenticated")


@pytest.mark.looptime
async def test_a_temporary_failure_is_retried() -> None:
    answers = (TransportError("refused"), service_unavailable("starting"))
    server, reviews = asking(*answers, SubjectAccessReviewStatus(allowed=True))
    assert await reviews.review_access(MONITORING, "get", "stats")
    assert len(server.asked) == 3
    assert 1.25 <= asyncio.get_running_loop().time() <= 1.5  # 0.5 s and 0.75 s, up to 20 % more


@pytest.mark.looptime
async def test_five_tries_are_enough() -> None:
    server, reviews = asking(*[TransportError("refused")] * 9)
    with pytest.raises(ReviewError, match="refused"):
        await reviews.review_access(MONITORING, "get", "stats")
    assert len(server.asked) == 5


@pytest.mark.looptime
async def test_a_silent_server_times_out_after_ten_seconds() -> None:
    _, reviews = asking("hang")
    with pytest.raises(ReviewError, match="no answer within 10 s"):
        await reviews.review_token("t")
    assert asyncio.get_running_loop().time() == 10


async def test_a_refusal_is_not_retried() -> None:
    server, reviews = asking(ApiError(403, "Forbidden", "a node may not"))
    with pytest.raises(ReviewError, match="a node may not"):
        await reviews.review_access(MONITORING, "get", "stats")
    assert len(server.asked) == 1


async def test_an_outage_and_its_end_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    refused = ApiError(403, "Forbidden", "a node may not")
    good = SubjectAccessReviewStatus(allowed=True)
    _, reviews = asking(refused, refused, good, good)
    for _ in range(2):
        with pytest.raises(ReviewError):
            await reviews.review_access(MONITORING, "get", "stats")
    for _ in range(2):
        await reviews.review_access(MONITORING, "get", "stats")
    assert [text.partition(" (after ")[0] for text in caplog.messages] == [
        "the API server cannot review who may use this agent: a node may not",
        "the API server reviews again who may use this agent",
    ]
