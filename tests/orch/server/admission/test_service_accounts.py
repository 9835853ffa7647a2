"""K:plugin/pkg/admission/serviceaccount/admission_test.go, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from orch.wire.names import ANNOTATION_CONFIG_MIRROR
from orch.wire.podrules.references import PULL_SECRETS
from tests.orch.server.harness import PODS, Answer, Api, pod


async def created(
    api: Api, spec: dict[str, Any], path: str = PODS, *, mirror: bool = False
) -> Answer:
    annotations = {ANNOTATION_CONFIG_MIRROR: "x"} if mirror else {}
    sent = pod(node="n1" if mirror else None, annotations=annotations)
    return await api.call("POST", path, sent | {"spec": {**sent["spec"], **spec}})


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
async def test_a_pod_of_an_unknown_account_is_refused(api: Api, field: str) -> None:
    refused = await created(api, {field: "nope"})
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"] == (
        'pods "p1" is forbidden: error looking up service account default/nope:'
        ' serviceaccount "nope" not found'
    )
    assert (await api.call("GET", f"{PODS}/p1")).status == 404
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await api.call("POST", accounts, {"metadata": {"name": "nope"}})
    accepted = await created(api, {field: "nope"})
    assert (accepted.status, accepted.json["spec"]["serviceAccountName"]) == (201, "nope")
    gone = await api.call("DELETE", f"{accounts}/nope")
    change = {"metadata": {"labels": {"a": "b"}}}
    patched = await api.call(
        "PATCH", f"{PODS}/p1", change, content_type="application/merge-patch+json"
    )
    assert (gone.status, patched.status) == (200, 200)


async def test_the_default_account_needs_not_be_there_yet_and_a_mirror_pod_none(api: Api) -> None:
    missing = await api.call("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    assert missing.status == 404
    unnamed: tuple[dict[str, Any], ...] = ({}, {"serviceAccountName": ""})
    for spec in (*unnamed, {"serviceAccountName": "default"}):
        assert (await created(api, spec)).status == 201
        await api.call("DELETE", f"{PODS}/p1")
    assert (await created(api, {"serviceAccountName": "nope"}, mirror=True)).status == 201


async def test_a_missing_namespace_is_not_found_whatever_account_is_named(api: Api) -> None:
    away = await created(api, {"serviceAccountName": "nope"}, "/api/v1/namespaces/away/pods")
    assert (away.status, away.json["details"]["kind"]) == (404, "namespaces")


@pytest.mark.parametrize("account", ["default", "bot"])
async def test_a_pod_without_pull_secrets_gets_those_of_its_account(api: Api, account: str) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    secrets = [{"name": "a"}, {"name": "b"}]
    made = {"metadata": {"name": account}, "imagePullSecrets": secrets}
    assert (await api.call("POST", accounts, made)).status == 201
    named = {} if account == "default" else {"serviceAccountName": account}
    given: tuple[tuple[dict[str, Any], list[dict[str, str]]], ...] = (
        ({}, secrets),
        ({"imagePullSecrets": []}, secrets),
        ({"imagePullSecrets": [{"name": "own"}]}, [{"name": "own"}]),
    )
    for spec, expected in given:
        answer = await created(api, {**named, **spec})
        assert (answer.status, answer.json["spec"]["imagePullSecrets"]) == (201, expected)
        await api.call("DELETE", f"{PODS}/p1")
    mirror = await created(api, named, mirror=True)
    assert "imagePullSecrets" not in mirror.json.get("spec", {})


async def test_an_account_gives_no_more_pull_secrets_than_an_agent_reads(api: Api) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    secrets = [{"name": f"s{number}"} for number in range(1000)]
    await api.call("POST", accounts, {"metadata": {"name": "bot"}, "imagePullSecrets": secrets})
    answer = await created(api, {"serviceAccountName": "bot"})
    assert answer.json["spec"]["imagePullSecrets"] == secrets[:PULL_SECRETS]
