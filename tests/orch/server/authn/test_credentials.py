"""Every way in over TLS: who is known by what, and that a bad credential is never anonymous."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.orch.server.authn.test_credential_files import cheap
from tests.orch.server.harness import PODS, Answer, Api, Pki

WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/orch-system/secrets"


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path) -> AsyncIterator[Api]:
    """A server that takes every kind of credential."""
    tokens, passwords = tmp_path / "tokens.csv", tmp_path / "basic.csv"
    tokens.write_text('ann-token,ann,7,"devs"\n')
    passwords.write_text(f"{cheap('hunter2')},bob,8\n")
    api = await Api.start(
        server_pki,
        tmp_path / "data",
        f"--token-auth-file={tokens}",
        f"--basic-auth-file={passwords}",
        f"--service-account-signing-key-file={server_pki.server.key_file}",
    )
    yield api
    await api.stop()


async def ask(api: Api, credential: str, method: str = "POST", path: str = WHO) -> Answer:
    headers = {"Authorization": credential}
    body = {} if method == "POST" else None
    return await api.call(method, path, body, user=None, headers=headers)


async def user_of(api: Api, credential: str) -> dict[str, Any]:
    answer = await ask(api, credential)
    assert answer.status == 201
    found: dict[str, Any] = answer.json["status"]["userInfo"]
    return found


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def account_token(api: Api, **spec: Any) -> str:
    assert (await api.call("POST", ACCOUNTS, {"metadata": {"name": "bot"}})).status in (201, 409)
    answer = await api.call("POST", f"{ACCOUNTS}/bot/token", {"spec": spec})
    assert answer.status == 201
    return str(answer.json["status"]["token"])


async def test_a_static_token(api: Api) -> None:
    user = await user_of(api, "Bearer ann-token")
    assert user == {"username": "ann", "uid": "7", "groups": ["devs", "system:authenticated"]}
    assert (await ask(api, "bearer ann-token", "GET", PODS)).status == 403


async def test_a_password(api: Api) -> None:
    assert (await user_of(api, basic("bob", "hunter2")))["username"] == "bob"


async def test_a_service_account_token(api: Api) -> None:
    user = await user_of(api, f"Bearer {await account_token(api)}")
    assert user["username"] == "system:serviceaccount:default:bot"
    assert user["groups"] == [
        "system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated",
    ]  # fmt: skip


async def test_a_token_ends_with_its_account(api: Api) -> None:
    token = await account_token(api)
    await api.call("DELETE", f"{ACCOUNTS}/bot")
    assert (await ask(api, f"Bearer {token}")).status == 401
    await api.call("POST", ACCOUNTS, {"metadata": {"name": "bot"}})
    assert (await ask(api, f"Bearer {token}")).status == 401


async def test_a_token_for_somebody_else_is_for_them_only(api: Api) -> None:
    token = await account_token(api, audiences=["agent"])
    assert (await ask(api, f"Bearer {token}")).status == 401
    for audiences, good in ((["agent"], True), ([], False), (["other"], False)):
        body = {"spec": {"token": token, "audiences": audiences}}
        status = (await api.call("POST", REVIEWS, body)).json["status"]
        assert status["authenticated"] is good
        assert good or status["error"]


async def test_a_bootstrap_token(api: Api) -> None:
    data = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
    }
    body = {
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }
    assert (await api.call("POST", SECRETS, body)).status == 201
    user = await user_of(api, "Bearer abcdef.0123456789abcdef")
    assert user["username"] == "system:bootstrap:abcdef"
    assert (await ask(api, "Bearer abcdef.0123456789abcdeX")).status == 401


@pytest.mark.parametrize("path", ["/healthz", PODS])
async def test_a_bad_credential_is_never_anonymous(api: Api, path: str) -> None:
    for bad in ("Bearer wrong", "Bearer a.b.c", basic("bob", "wrong"), "Digest x", "Bearer"):
        answer = await ask(api, bad, "GET", path)
        assert (answer.status, answer.json["message"]) == (401, "Unauthorized"), bad
        assert answer.headers["WWW-Authenticate"].startswith("Basic"), bad


async def test_without_passwords_none_are_asked_for(server_pki: Pki, tmp_path: Path) -> None:
    api = await Api.start(server_pki, tmp_path / "other")
    answer = await ask(api, "Bearer wrong", "GET", PODS)
    assert answer.status == 401
    assert "WWW-Authenticate" not in answer.headers
    assert (await ask(api, basic("bob", "hunter2"))).status == 401
    await api.stop()
