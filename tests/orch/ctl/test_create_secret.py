from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Pki
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl


@pytest.fixture(autouse=True)
def _resources(api: HttpApi) -> None:
    secrets = {"name": "secrets", "kind": "Secret", "namespaced": True}
    api.answers["GET", "/api/v1"] = Answer({"resources": [secrets]})


def _sent(api: HttpApi) -> dict[str, Any]:
    (request,) = api.sent("POST")
    body: dict[str, Any] = request.body
    return body


@pytest.mark.parametrize("words", [("login",), ("generic", "login")])
async def test_a_secret_of_values(orchctl: Orchctl, api: HttpApi, words: tuple[str, ...]) -> None:
    result = await orchctl("create", "secret", *words, "--from-literal", "key=hunter2")
    assert result.out == "secret/login created\n"
    assert _sent(api)["data"] == {"key": "aHVudGVyMg=="}
    assert "type" not in _sent(api)


async def test_a_secret_has_the_type_asked_for(orchctl: Orchctl, api: HttpApi) -> None:
    await orchctl("create", "secret", "generic", "login", "--type", "example.org/own")
    assert (_sent(api)["type"], "data" in _sent(api)) == ("example.org/own", False)


async def test_a_certificate_and_its_key(orchctl: Orchctl, api: HttpApi, pki: Pki) -> None:
    pair = pki.client("web")
    words = ("tls", "web", "--cert", pair.cert_file, "--key", pair.key_file)
    assert (await orchctl("create", "secret", *words)).out == "secret/web created\n"
    assert _sent(api)["type"] == "kubernetes.io/tls"
    assert _sent(api)["data"] == {
        "tls.crt": base64.b64encode(Path(pair.cert_file).read_bytes()).decode(),
        "tls.key": base64.b64encode(Path(pair.key_file).read_bytes()).decode(),
    }


async def test_a_key_of_another_certificate_is_refused(orchctl: Orchctl, pki: Pki) -> None:
    web, other = pki.client("web"), pki.client("other")
    words = ("tls", "web", "--cert", web.cert_file, "--key", other.key_file)
    result = await orchctl("create", "secret", *words)
    assert result.err == (
        f"error: {web.cert_file} and {other.key_file} are no pair: key values mismatch\n"
    )


async def test_a_login_at_a_registry(orchctl: Orchctl, api: HttpApi) -> None:
    words = ("--docker-server", "registry.example", "--docker-username", "jane",
             "--docker-password", "hunter2", "--docker-email", "jane@example.org")  # fmt: skip
    result = await orchctl("create", "secret", "docker-registry", "pull", *words)
    assert (result.out, "hunter2" in result.err) == ("secret/pull created\n", False)
    data = json.loads(base64.b64decode(_sent(api)["data"][".dockerconfigjson"]))
    login = {"username": "jane", "password": "hunter2", "email": "jane@example.org",
             "auth": base64.b64encode(b"jane:hunter2").decode()}  # fmt: skip
    assert data == {"auths": {"registry.example": login}}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("tls", "web"), "a tls secret needs --cert and --key"),
        (("docker-registry", "p"), "give --docker-username and --docker-password, or --from-file"),
        (("generic", "s", "--cert", "x"), "--cert is for 'create secret tls', not for generic"),
        (("tls", "s", "--docker-email", "x"), "--docker-email is for 'create secret docker-reg"),
        (("tsl", "s"), "'tsl' is none of generic, tls, docker-registry: did you mean 'tls'?"),
    ],
)
async def test_options_belong_to_a_kind(
    orchctl: Orchctl, words: tuple[str, ...], text: str
) -> None:
    result = await orchctl("create", "secret", *words)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert text in result.err
