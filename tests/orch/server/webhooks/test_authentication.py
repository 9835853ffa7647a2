"""A server that asks a webhook, over HTTPS, whose a token is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.webhook import FakeReviewer, Record, serving
from tests.orch.server.harness import Answer, Api, Pki

WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
JANE: Record = {
    "authenticated": True,
    "user": {"username": "jane", "groups": ["g"], "uid": "7", "extra": {"k": ["v"]}},
}


@pytest.fixture
async def webhook(server_pki: Pki) -> AsyncIterator[FakeReviewer]:
    fake = FakeReviewer(server_pki)
    fake.judge = lambda spec: JANE if spec["token"] == "hers" else {"authenticated": False}
    async with serving(server_pki, fake.answer) as fake.port:
        yield fake


@pytest.fixture
async def api(server_pki: Pki, webhook: FakeReviewer, tmp_path: Path) -> AsyncIterator[Api]:
    file = webhook.kubeconfig(tmp_path / "webhook")
    tokens = tmp_path / "tokens"
    tokens.write_text("known,bob,1\n")
    tokens.chmod(0o600)
    api = await Api.start(
        server_pki, tmp_path / "data", f"--token-auth-file={tokens}",
        f"--authentication-token-webhook-config-file={file}",
    )  # fmt: skip
    yield api
    await api.stop()


async def who(api: Api, token: str) -> Answer:
    headers = {"Authorization": f"Bearer {token}"}
    return await api.call("POST", WHO, {}, user=None, headers=headers)


async def test_a_token_that_is_not_known_here_is_the_webhooks(
    api: Api, webhook: FakeReviewer
) -> None:
    for _ in range(3):
        answer = await who(api, "hers")
        assert answer.json["status"]["userInfo"] == {
            "username": "jane", "uid": "7", "groups": ["g", "system:authenticated"],
            "extra": {"k": ["v"]},
        }  # fmt: skip
    assert (await who(api, "known")).json["status"]["userInfo"]["username"] == "bob"
    for _ in range(2):
        assert (await who(api, "nobodys")).status == 401
    assert [spec["token"] for spec in webhook.asked] == ["hers", "nobodys"]
    assert webhook.kinds == {("authentication.k8s.io/v1", "TokenReview")}


async def test_a_review_of_a_token_asks_the_webhook(api: Api, webhook: FakeReviewer) -> None:
    webhook.judge = lambda spec: {**JANE, "audiences": spec["audiences"][:1]}
    asked = {"spec": {"token": "hers", "audiences": ["a", "b"]}}
    status = (await api.call("POST", REVIEWS, asked)).json["status"]
    assert (status["user"]["username"], status["audiences"]) == ("jane", ["a"])
    webhook.judge = lambda _spec: {**JANE, "audiences": ["c"]}
    refused = await api.call("POST", REVIEWS, {"spec": {"token": "other", "audiences": ["a"]}})
    assert refused.json["status"]["authenticated"] is False


@pytest.mark.parametrize(
    "wrong",
    [
        lambda answer: {**answer, "kind": "Status"},
        lambda answer: {**answer, "status": {"authenticated": True}},
        lambda answer: {**answer, "status": {"authenticated": True, "user": {"username": 7}}},
        lambda answer: {**answer, "status": {"authenticated": "true", "user": {"username": "a"}}},
        lambda answer: {
            **answer,
            "status": {"authenticated": True, "user": {"username": "a", "groups": ["g"] * 2000}},
        },
        lambda _answer: None,
    ],
)
async def test_what_is_no_answer_authenticates_nobody(
    api: Api, webhook: FakeReviewer, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    webhook.whole = wrong
    assert (await who(api, "hers")).status == 401
    assert any("the token webhook fails: " in one for one in caplog.messages)
    assert not any("hers" in one for one in caplog.messages)
