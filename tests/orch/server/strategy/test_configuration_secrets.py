from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from orch.server.strategy.configuration import SECRET_STRATEGY

SSH = "kubernetes.io/ssh-auth"
TLS = "kubernetes.io/tls"
DOCKER = "kubernetes.io/dockerconfigjson"
TOKEN = "kubernetes.io/service-account-token"
NOTED = {"annotations": {"kubernetes.io/service-account.name": "default"}}


def created(document: dict[str, Any]) -> dict[str, Any]:
    document.setdefault("metadata", {})
    SECRET_STRATEGY.prepare_create(document)
    return document


def test_texts_become_data_and_are_not_kept() -> None:
    secret = created({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"b": "ü", "c": ""}})
    assert secret["data"] == {"a": "eA==", "b": b64encode("ü".encode()).decode(), "c": ""}
    assert "stringData" not in secret
    assert secret["type"] == "Opaque"


# The reference system's pkg/apis/core/validation, TestValidateSecret.
@pytest.mark.parametrize(
    ("secret", "fields"),
    [
        ({"stringData": {"a/b": ""}}, ["data[a/b]"]),
        ({"type": SSH}, ["data[ssh-privatekey]"]),
        ({"type": SSH, "data": {"ssh-privatekey": ""}}, []),
        ({"type": TLS, "data": {"tls.crt": ""}}, ["data[tls.key]"]),
        ({"type": DOCKER, "stringData": {".dockerconfigjson": "{}"}}, []),
        ({"type": DOCKER, "stringData": {".dockerconfigjson": "{"}}, ["data[.dockerconfigjson]"]),
        ({"type": "kubernetes.io/basic-auth"}, ["data[username]", "data[password]"]),
        ({"type": "kubernetes.io/basic-auth", "data": {"password": ""}}, []),
        ({"type": TOKEN}, ["metadata.annotations[kubernetes.io/service-account.name]"]),
        ({"type": TOKEN, "metadata": NOTED}, []),
        ({"type": "mine/own"}, []),
    ],
)
def test_a_type_says_what_must_be_there(secret: dict[str, Any], fields: list[str]) -> None:
    assert [cause.field for cause in SECRET_STRATEGY.validate(created(secret), None)] == fields


def test_the_type_stays_and_so_does_what_is_immutable() -> None:
    old = created({"type": "a/b", "data": {"k": "eA=="}, "immutable": True})
    new: dict[str, Any] = {"stringData": {"k": "y"}, "metadata": {}}
    SECRET_STRATEGY.prepare_update(new, old)
    assert new["type"] == "a/b"
    new["type"] = "c/d"
    assert [c.field for c in SECRET_STRATEGY.validate(new, old)] == ["type", "immutable", "data"]


def test_nothing_secret_is_in_a_refusal() -> None:
    secret = created({"type": DOCKER, "stringData": {".dockerconfigjson": "hidden"}})
    found = list(SECRET_STRATEGY.validate(secret, None))
    assert found
    assert not any("hidden" in c.message or secret["data"][c.field[5:-1]] in c.message
                   for c in found)  # fmt: skip
