"""A server that asks a webhook, over HTTPS, what its callers may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.webhook import FakeReviewer, Record, serving
from tests.orch.server.harness import NAMESPACES, PODS, Api, Pki

MAPS = "/api/v1/namespaces/default/configmaps"
ROLES = "/apis/rbac.authorization.orch.io/v1/namespaces/default/roles"
REVIEWS = "/apis/authorization.orch.io/v1"


@pytest.fixture
async def webhook(server_pki: Pki) -> AsyncIterator[FakeReviewer]:
    fake = FakeReviewer(server_pki)
    async with serving(server_pki, fake.answer) as fake.port:
        yield fake


@pytest.fixture
async def api(server_pki: Pki, webhook: FakeReviewer, tmp_path: Path) -> AsyncIterator[Api]:
    file = webhook.kubeconfig(tmp_path / "webhook")
    api = await Api.start(
        server_pki, tmp_path / "data", "--authorization-mode=Node,RBAC,Webhook",
        f"--authorization-webhook-config-file={file}",
    )  # fmt: skip
    yield api
    await api.stop()


def allowing(*verbs: str) -> Any:
    def judge(spec: Record) -> Record:
        attributes = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        return {"allowed": attributes["verb"] in verbs, "reason": "as it pleases"}

    return judge


async def counted(api: Api, name: str) -> list[str]:
    page = (await api.call("GET", "/metrics", accept="*/*")).text
    return [line for line in page.splitlines() if line.startswith(name)]


async def test_the_webhook_is_asked_what_roles_do_not_allow(
    api: Api, webhook: FakeReviewer
) -> None:
    webhook.judge = allowing("list")
    assert (await api.call("GET", PODS, user="admin")).status == 200
    assert not webhook.asked
    assert (await api.call("GET", f"{PODS}?labelSelector=a", user="stranger")).status == 200
    (spec,) = webhook.asked
    assert spec == {
        "user": "stranger", "groups": ["some:group", "system:authenticated"],
        "resourceAttributes": {
            "namespace": "default", "verb": "list", "version": "v1", "resource": "pods",
            "labelSelector": {"rawSelector": "a"},
        },
    }  # fmt: skip
    assert webhook.kinds == {("authorization.k8s.io/v1", "SubjectAccessReview")}


async def test_answers_are_kept(api: Api, webhook: FakeReviewer) -> None:
    webhook.judge = allowing("list")
    for _ in range(3):
        assert (await api.call("GET", PODS, user="stranger")).status == 200
        refused = await api.call("POST", MAPS, {"metadata": {"name": "a"}}, user="stranger")
        assert refused.status == 403
        assert refused.json["message"].endswith(": as it pleases")
    assert len(webhook.asked) == 2


async def test_equal_questions_share_a_call_that_takes_nobodys_seat(
    api: Api, webhook: FakeReviewer
) -> None:
    webhook.judge, webhook.gate = allowing("list"), asyncio.Event()
    waiting = [asyncio.ensure_future(api.call("GET", PODS, user="stranger")) for _ in range(8)]
    async with asyncio.timeout(20):
        while not webhook.asked:
            await asyncio.sleep(0.01)
        waiting.pop().cancel()
        assert (await api.call("GET", PODS, user="admin")).status == 200
        while sum(api.server.flows.in_flight.values()):
            await asyncio.sleep(0.01)
        webhook.gate.set()
        assert {one.status for one in await asyncio.gather(*waiting)} == {200}
    assert len(webhook.asked) == 1


async def test_paths_are_asked_about_as_well(api: Api, webhook: FakeReviewer) -> None:
    webhook.judge = allowing("get")
    assert (await api.call("GET", "/metrics", user="stranger", accept="*/*")).status == 200
    assert webhook.asked[0]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


async def test_reviews_impersonation_and_grants_ask_the_webhook(
    api: Api, webhook: FakeReviewer
) -> None:
    allowed = ("impersonate", "create", "update", "escalate", "get")
    webhook.judge = allowing(*allowed)
    acting = {"Impersonate-User": "jane", "Impersonate-Group": "g"}
    seen = await api.call("GET", f"{PODS}/none", user="stranger", headers=acting)
    assert seen.status == 404
    verbs = [spec["resourceAttributes"]["verb"] for spec in webhook.asked]
    assert verbs == ["impersonate", "impersonate", "get"]
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    body = {"metadata": {"name": "r"}, "rules": [rule]}
    assert (await api.call("PUT", f"{ROLES}/r", body, user="stranger")).status == 201
    asked = {"resourceAuthorizationAttributes": {"verb": "get", "resource": "pods"}}
    review = {"spec": {**asked, "user": "x"}}
    path = f"{REVIEWS}/subjectaccessreviews"
    answer = await api.call("POST", path, review, user="stranger")
    assert answer.json["status"] == {"allowed": True, "reason": "as it pleases"}
    webhook.judge = lambda _spec: {"allowed": False, "denied": True}
    denied = await api.call("POST", path, {"spec": {**asked, "user": "y"}})
    assert denied.json["status"] == {"allowed": False, "denied": True}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda answer: {**answer, "kind": "Status"},
        lambda answer: {**answer, "apiVersion": "authorization.k8s.io/v1beta1"},
        lambda answer: {**answer, "status": {"allowed": "true"}},
        lambda answer: {**answer, "status": {"allowed": True, "denied": True}},
        lambda answer: {**answer, "status": None},
        lambda _answer: [],
        lambda answer: {**answer, "padding": "x" * 2**21},
    ],
)
async def test_what_is_no_answer_allows_nothing(
    api: Api, webhook: FakeReviewer, wrong: Any
) -> None:
    webhook.judge, webhook.whole = allowing("list"), wrong
    refused = await api.call("GET", PODS, user="stranger")
    assert refused.status == 403
    assert "the authorization webhook default fails" in refused.json["message"]
    (line,) = await counted(api, "apiserver_authorization_webhook_evaluations_fail_open_total{")
    assert line.endswith('{name="default",result="error"} 1.0')


CONFIGURATION = """
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: first.example.com
  webhook:
    timeout: 3s
    authorizedTTL: 10s
    subjectAccessReviewVersion: v1
    failurePolicy: POLICY
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: webhook}
- {type: RBAC, name: rbac}
"""
WITHOUT = CONFIGURATION[: CONFIGURATION.index("- type")] + "- {type: AlwaysAllow, name: all}\n"


@pytest.mark.parametrize(("policy", "status"), [("Deny", 403), ("NoOpinion", 200)])
async def test_a_file_names_the_authorizers_and_is_followed(
    server_pki: Pki, webhook: FakeReviewer, tmp_path: Path, policy: str, status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    webhook.kubeconfig(tmp_path / "webhook")
    file = tmp_path / "authorization"
    file.write_text(CONFIGURATION.replace("POLICY", policy))
    api = await Api.start(server_pki, tmp_path / "data", f"--authorization-config={file}")
    webhook.status = 500
    review = {"spec": {"resourceAuthorizationAttributes": {"verb": "get", "resource": "pods"}}}
    mine = f"{REVIEWS}/selfsubjectaccessreviews"
    assert (await api.call("GET", "/version", user="stranger")).status == status
    assert (await api.call("GET", PODS, user="stranger")).status == 403
    assert (await api.call("POST", mine, review, user="stranger")).status == 201
    for text in ("nonsense", CONFIGURATION):
        file.write_text(text)
        for _ in range(2):
            await api.turn("authorization")
        assert (await api.call("GET", PODS, user="stranger")).status == 403
    lines = [one for one in caplog.messages if "the authorizers stay as they were" in one]
    assert len(lines) == 2
    assert "failurePolicy: Input should be 'NoOpinion' or 'Deny'" in lines[1]
    file.write_text(WITHOUT)
    await api.turn("authorization")
    assert (await api.call("GET", PODS, user="stranger")).status == 200
    stem = "apiserver_authorization_config_controller_automatic_reload"
    assert await counted(api, f"{stem}s_total{{") == [
        f'{stem}s_total{{status="failure"}} 2.0', f'{stem}s_total{{status="success"}} 1.0',
    ]  # fmt: skip
    assert len(await counted(api, f"{stem}_last_timestamp_seconds{{")) == 2
    await api.stop()


async def test_a_namespace_is_made_by_whom_the_webhook_lets(
    api: Api, webhook: FakeReviewer
) -> None:
    webhook.judge = allowing("create")
    made = await api.call("POST", NAMESPACES, {"metadata": {"name": "a"}}, user="stranger")
    assert made.status == 201
