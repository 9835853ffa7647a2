"""K:plugin/pkg/admission/serviceaccount/admission_test.go, over HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orch.server.admission.service_accounts import TOKEN_PATH
from orch.wire.names import ANNOTATION_CONFIG_MIRROR
from orch.wire.podrules.references import PULL_SECRETS
from tests.orch.server.harness import NODES, PODS, Answer, Api, Pki, node, pod

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
OWN_TOKEN = {"serviceAccountToken": {"path": "t"}}


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


async def test_a_dry_run_in_a_new_namespace_succeeds_and_makes_no_account(api: Api) -> None:
    await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "young"}})
    path = "/api/v1/namespaces/young/pods"
    tried = await created(api, {}, f"{path}?dryRun=All")
    assert (tried.status, tried.json["spec"]["serviceAccountName"]) == (201, "default")
    listed = await api.call("GET", "/api/v1/namespaces/young/serviceaccounts")
    assert listed.json["items"] == []
    refused = await created(api, {"serviceAccountName": "nope"}, f"{path}?dryRun=All")
    assert refused.status == 403


async def test_the_default_account_is_made_for_the_first_pod(api: Api) -> None:
    missing = await api.call("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    assert missing.status == 404
    unnamed: tuple[dict[str, Any], ...] = ({}, {"serviceAccountName": ""})
    for spec in (*unnamed, {"serviceAccountName": "default"}):
        assert (await created(api, spec)).status == 201
        await api.call("DELETE", f"{PODS}/p1")
    found = await api.call("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    assert found.status == 200


async def test_a_quota_without_room_for_the_account_leaves_the_pod_without_one(api: Api) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/serviceaccounts": "0"}}}
    await api.call("POST", "/api/v1/namespaces/default/resourcequotas", quota)
    await api.turn("quotas")
    refused = await created(api, {})
    assert refused.json["message"].endswith('serviceaccount "default" not found')


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"serviceAccountName": "nope"}, "may not reference service accounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "may not reference secrets"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "may not reference secrets"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [OWN_TOKEN]}}]},
            "may not use ServiceAccountToken volume projections",
        ),
    ],
)
async def test_a_mirror_pod_that_needs_something_of_the_api_is_refused(
    api: Api, spec: dict[str, Any], text: str
) -> None:
    refused = await created(api, spec, mirror=True)
    assert (refused.status, text in refused.json["message"]) == (403, True)


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


@pytest.fixture
async def giving(server_pki: Pki, tmp_path: Path) -> AsyncIterator[Api]:
    """A server whose pods get tokens."""
    key = f"--service-account-signing-key-file={server_pki.server.key_file}"
    root = f"--root-ca-file={server_pki.ca_file}"
    api = await Api.start(server_pki, tmp_path / "giving", key, root)
    yield api
    await api.stop()


def mounted(container: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = container.get("volumeMounts", [])
    return found


async def test_every_container_has_the_token_where_clients_look_for_it(giving: Api) -> None:
    init = {"name": "i", "image": "i", "volumeMounts": [{"name": "e", "mountPath": "/e"}]}
    answer = await created(giving, {"initContainers": [init], "volumes": [{"name": "e"}]})
    spec = answer.json["spec"]
    own, given = spec["volumes"]
    assert own["name"] == "e"
    assert re.fullmatch("kube-api-access-[a-z0-9]{5}", given["name"])
    assert given == {
        "name": given["name"],
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {
                    "configMap": {
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        "name": "kube-root-ca.crt",
                    }
                },
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "namespace",
                                "fieldRef": {
                                    "apiVersion": "v1",
                                    "fieldPath": "metadata.namespace",
                                },
                            }
                        ]
                    }
                },
            ],
        },
    }
    mount = {"name": given["name"], "readOnly": True, "mountPath": TOKEN_PATH}
    assert mounted(spec["containers"][0]) == [mount]
    assert mounted(spec["initContainers"][0]) == [{"name": "e", "mountPath": "/e"}, mount]
    root = await giving.call("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
    assert root.json["data"] == {"ca.crt": Path(giving.pki.ca_file).read_text()}
    # What the server gave may be sent back, and comes once.
    assert (await giving.call("PUT", f"{PODS}/p1", answer.json)).status == 200
    copied = {**answer.json, "metadata": {"name": "p2"}}
    assert (await giving.call("POST", PODS, copied)).json["spec"]["volumes"] == spec["volumes"]


@pytest.mark.parametrize(
    ("of_pod", "of_account", "given"),
    [
        (None, None, True), (None, False, False), (None, True, True),
        (False, None, False), (False, True, False), (True, False, True),
    ],
)  # fmt: skip
async def test_the_word_of_the_pod_counts_before_the_account_s(
    giving: Api, of_pod: bool | None, of_account: bool | None, given: bool
) -> None:
    account = {"metadata": {"name": "bot"}, "automountServiceAccountToken": of_account}
    await giving.call("POST", ACCOUNTS, account)
    asked = {"serviceAccountName": "bot", "automountServiceAccountToken": of_pod}
    answer = await created(giving, asked)
    assert answer.status == 201
    assert bool(mounted(answer.json["spec"]["containers"][0])) is given
    assert ("volumes" in answer.json["spec"]) is given


async def test_a_container_with_something_else_there_keeps_it(giving: Api) -> None:
    mount = {"name": "own", "mountPath": TOKEN_PATH}
    volume = {"name": "own", "emptyDir": {}}
    container = {"name": "c", "image": "i", "volumeMounts": [mount]}
    answer = await created(giving, {"containers": [container], "volumes": [volume]})
    assert mounted(answer.json["spec"]["containers"][0]) == [mount]
    assert answer.json["spec"]["volumes"] == [volume]


async def test_a_token_is_of_use_while_its_pod_is_there(giving: Api) -> None:
    """As the agent asks for it, and a pod uses it; the review tells where the pod runs."""
    await giving.call("POST", NODES, node("n1"))
    await created(giving, {"nodeName": "n1"})
    metadata = (await giving.call("GET", f"{PODS}/p1")).json["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p1", "uid": metadata["uid"]}
    spec = {"expirationSeconds": 3607, "boundObjectRef": bound}
    asked = await giving.call("POST", f"{ACCOUNTS}/default/token", {"spec": spec}, user="n1")
    token = asked.json["status"]["token"]
    review = {"spec": {"token": token}}
    reviews = "/apis/authentication.orch.io/v1/tokenreviews"
    said = (await giving.call("POST", reviews, review)).json["status"]
    assert (said["authenticated"], said["user"]["username"]) == (
        True,
        "system:serviceaccount:default:default",
    )
    extra = {key.rpartition("/")[2]: value for key, value in said["user"]["extra"].items()}
    assert extra["pod-name"] == ["p1"]
    assert extra["pod-uid"] == [metadata["uid"]]
    assert extra["node-name"] == ["n1"]
    assert extra["node-uid"] == [(await giving.call("GET", f"{NODES}/n1")).json["metadata"]["uid"]]
    headers = {"Authorization": f"Bearer {token}"}
    who = "/apis/authentication.orch.io/v1/selfsubjectreviews"
    assert (await giving.call("POST", who, {}, user=None, headers=headers)).status == 201
    await giving.call("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0})
    assert (await giving.call("POST", who, {}, user=None, headers=headers)).status == 401
    gone = (await giving.call("POST", reviews, review)).json["status"]
    assert gone == {"authenticated": False, "error": "pods default/p1 no longer exists"}
