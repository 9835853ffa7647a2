"""`serviceaccounts/token`: K:pkg/registry/core/serviceaccount/storage/token_test.go, validation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from orch.server.handlers.token_requests import AUDIENCE_VERB
from tests.orch.server.harness import NODES, PODS, Answer, Api, Pki, node, pod

RBAC = "/apis/rbac.authorization.orch.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path) -> AsyncIterator[Api]:
    """A server that signs tokens, with the account `bot`."""
    key = f"--service-account-signing-key-file={server_pki.server.key_file}"
    api = await Api.start(server_pki, tmp_path / "data", key, "--api-audiences=api,own")
    await api.call("POST", ACCOUNTS, {"metadata": {"name": "bot"}})
    yield api
    await api.stop()


async def request(api: Api, body: dict[str, Any], name: str = "bot", query: str = "") -> Answer:
    return await api.call("POST", f"{ACCOUNTS}/{name}/token{query}", body)


def claims_of(answer: Answer) -> dict[str, Any]:
    assert answer.status == 201
    token = answer.json["status"]["token"]
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


async def test_a_token_has_the_audiences_and_the_lifetime_asked_for(api: Api) -> None:
    claims = claims_of(await request(api, {}))
    assert claims["aud"] == ["api", "own"]
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["sub"] == "system:serviceaccount:default:bot"
    spec = {"audiences": ["agent"], "expirationSeconds": 600}
    claims = claims_of(await request(api, {"spec": spec}))
    assert (claims["aud"], claims["exp"] - claims["iat"]) == (["agent"], 600)


async def test_the_answer_says_what_was_not_asked_for(api: Api) -> None:
    # K:pkg/kubelet/token asks anew by the expirationSeconds of the answer
    assert (await request(api, {})).json["spec"] == {
        "audiences": ["api", "own"],
        "expirationSeconds": 3600,
    }
    spec = {"audiences": ["agent"], "expirationSeconds": 700}
    assert (await request(api, {"spec": spec})).json["spec"] == spec


async def test_the_answer_is_about_this_very_account(api: Api) -> None:
    account = (await api.call("GET", f"{ACCOUNTS}/bot")).json["metadata"]
    for uid in ({}, {"uid": ""}, {"uid": account["uid"]}):
        answer = (await request(api, {"metadata": uid})).json["metadata"]
        assert answer.pop("creationTimestamp") >= account["creationTimestamp"]
        assert answer == {"name": "bot", "namespace": "default", "uid": account["uid"]}
    other = await request(api, {"metadata": {"uid": "other"}})
    assert (other.status, other.json["reason"]) == (409, "Conflict")
    assert "does not match the UID of the service account" in other.json["message"]


async def test_others_find_the_keys_that_tokens_are_signed_with(api: Api) -> None:
    token = (await request(api, {})).json["status"]["token"]
    headers = {"Authorization": f"Bearer {token}"}
    found = await api.call("GET", "/.well-known/openid-configuration", user=None, headers=headers)
    assert found.headers["Cache-Control"] == "public, max-age=3600"
    configuration = found.json
    assert configuration["issuer"] == jwt.decode(token, options={"verify_signature": False})["iss"]
    assert configuration["jwks_uri"] == f"{configuration['issuer']}/openid/v1/jwks"
    keys = await api.call("GET", "/openid/v1/jwks", user=None, headers=headers)
    assert keys.headers["Content-Type"] == "application/jwk-set+json"
    (key,) = keys.json["keys"]
    assert not {"d", "p", "q"} & key.keys()
    assert [key["alg"]] == configuration["id_token_signing_alg_values_supported"]
    header = jwt.get_unverified_header(token)
    assert (header["kid"], header["alg"]) == (key["kid"], key["alg"])
    verified = jwt.decode(token, jwt.PyJWK(key), algorithms=[key["alg"]], audience="api")
    assert verified["sub"] == "system:serviceaccount:default:bot"
    for path in ("/.well-known/openid-configuration", "/openid/v1/jwks"):
        assert (await api.call("GET", path, user="stranger")).status == 403


async def test_an_issuer_that_is_no_url_is_not_to_be_found(server_pki: Pki, tmp_path: Path) -> None:
    key = f"--service-account-signing-key-file={server_pki.server.key_file}"
    api = await Api.start(server_pki, tmp_path / "other", key, "--service-account-issuer=cluster")
    assert (await api.call("GET", "/openid/v1/jwks")).status == 404
    await api.stop()


async def test_a_value_of_the_wrong_type_is_named_in_a_line(api: Api) -> None:
    message = (await request(api, {"spec": {"expirationSeconds": "700"}})).json["message"]
    assert message == (
        "TokenRequest cannot be handled: spec.expirationSeconds: "
        "must be of type integer, not string"
    )


@pytest.mark.parametrize("version", ["authentication.orch.io/v1", "authentication.k8s.io/v1"])
async def test_it_is_answered_in_the_group_it_was_asked_in(api: Api, version: str) -> None:
    answer = await request(api, {"kind": "TokenRequest", "apiVersion": version, "spec": {}})
    assert (answer.status, answer.json["apiVersion"]) == (201, version)
    assert answer.json["status"]["expirationTimestamp"]


async def test_a_token_is_bound_to_a_pod_and_its_node(api: Api) -> None:
    await api.call("POST", NODES, node("n1"))
    body = pod("p", node="n1")
    body["spec"]["serviceAccountName"] = "bot"
    created = (await api.call("POST", PODS, body)).json
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    claims = claims_of(await request(api, {"spec": {"boundObjectRef": bound}}))
    assert claims["orch.io"]["pod"] == {"name": "p", "uid": created["metadata"]["uid"]}
    assert claims["orch.io"]["node"]["name"] == "n1"
    bound["uid"] = "other"
    assert (await request(api, {"spec": {"boundObjectRef": bound}})).status == 409
    bound["name"] = "missing"
    assert (await request(api, {"spec": {"boundObjectRef": bound}})).status == 404


async def test_a_pod_of_another_account_is_no_bond(api: Api) -> None:
    await api.call("POST", PODS, pod("p"))
    bound = {"kind": "Pod", "name": "p"}
    assert (await request(api, {"spec": {"boundObjectRef": bound}})).status == 400


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"expirationSeconds": 599}, "spec.expirationSeconds"),
        ({"expirationSeconds": 2**32 + 1}, "spec.expirationSeconds"),
        ({"boundObjectRef": {"kind": "Lease", "name": "x"}}, "spec.boundObjectRef.kind"),
        ({"audiences": ["x" * 2_000_000]}, "spec.audiences"),
        ({"audiences": [""] * 10_000}, "spec.audiences"),
    ],
)
async def test_what_may_not_be_asked_for(api: Api, spec: dict[str, Any], field: str) -> None:
    answer = await request(api, {"spec": spec})
    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == field


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "Token"},
        {"apiVersion": "v1"},
        {"metadata": {"name": "other"}},
        {"metadata": {"namespace": "other"}},
        {"metadata": []},
        {"spec": {"audiences": "x"}},
    ],
)
async def test_what_is_no_request_for_this_account(api: Api, body: dict[str, Any]) -> None:
    assert (await request(api, body)).status == 400


async def test_another_kind_is_told_which_is_expected(api: Api) -> None:
    refused = await request(api, {"apiVersion": "v1"})
    assert refused.json["message"] == (
        "the apiVersion in the data (v1) does not match the expected apiVersion"
        " (authentication.orch.io/v1)"
    )
    assert (await request(api, {"kind": "", "apiVersion": ""})).json["kind"] == "TokenRequest"


async def test_there_must_be_an_account_and_a_right(api: Api) -> None:
    assert (await request(api, {}, name="nobody")).status == 404
    refused = await api.call("POST", f"{ACCOUNTS}/bot/token", {}, user="stranger")
    assert refused.status == 403
    assert (await api.call("GET", f"{ACCOUNTS}/bot/token")).status == 405


VAULT = {"path": "b", "audience": "vault"}


async def test_a_node_gets_tokens_of_its_own_pods_only(api: Api) -> None:
    bound = {}
    for name in ("n1", "n2"):
        await api.call("POST", NODES, node(name))
        body = pod(f"on-{name}", node=name)
        sources = [{"serviceAccountToken": {"path": "a"}}, {"serviceAccountToken": VAULT}]
        volume = {"name": "v", "projected": {"sources": sources}}
        body["spec"] |= {"serviceAccountName": "bot", "volumes": [volume]}
        created = (await api.call("POST", PODS, body)).json
        bound[name] = {"kind": "Pod", "name": f"on-{name}", "uid": created["metadata"]["uid"]}

    async def status(reference: dict[str, Any] | None, *audiences: str) -> int:
        own = {"audiences": list(audiences)} if audiences else {}
        spec = {"spec": own | ({"boundObjectRef": reference} if reference else {})}
        answer = await api.call("POST", f"{ACCOUNTS}/bot/token", spec, user="n1")
        return answer.status

    assert await status(bound["n1"]) == 201
    assert await status(bound["n2"]) == 403
    assert await status({**bound["n1"], "uid": None}) == 403
    assert await status(None) == 403
    assert await status(bound["n1"], "vault") == 201
    assert await status(bound["n1"], "bank") == 403
    assert await status(bound["n1"], "vault", "bank") == 403
    may_ask = {"verbs": [AUDIENCE_VERB], "apiGroups": [""], "resources": ["bank"]}
    rules = [{**may_ask, "resourceNames": ["bot"]}]
    await api.call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "bank"}, "rules": rules})
    group = "rbac.authorization.orch.io"
    subject = {"kind": "Group", "name": "system:nodes", "apiGroup": group}
    role = {"kind": "ClusterRole", "name": "bank", "apiGroup": group}
    binding = {"metadata": {"name": "bank"}, "subjects": [subject], "roleRef": role}
    made = await api.call("POST", f"{RBAC}/clusterrolebindings", binding)
    assert made.status == 201, made.json
    assert await status(bound["n1"], "vault", "bank") == 201
    assert await status(bound["n2"], "bank") == 403


async def test_a_dry_run_issues_nothing(api: Api) -> None:
    answer = await request(api, {}, query="?dryRun=All")
    assert (answer.status, answer.json["status"]["token"]) == (201, "")


async def test_without_a_key_nothing_is_signed(server_pki: Pki, tmp_path: Path) -> None:
    api = await Api.start(server_pki, tmp_path / "other")
    await api.call("POST", ACCOUNTS, {"metadata": {"name": "bot"}})
    answer = await request(api, {})
    assert answer.status == 503
    assert "--service-account-signing-key-file" in answer.json["message"]
    await api.stop()
