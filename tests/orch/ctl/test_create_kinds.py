from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

KINDS = {"namespaces": "Namespace", "serviceaccounts": "ServiceAccount",
         "configmaps": "ConfigMap", "secrets": "Secret"}  # fmt: skip


@pytest.fixture(autouse=True)
def _resources(api: HttpApi) -> None:
    listed = [
        {"name": plural, "kind": kind, "namespaced": plural != "namespaces"}
        for plural, kind in KINDS.items()
    ]
    api.answers["GET", "/api/v1"] = Answer({"resources": listed})


def _sent(api: HttpApi) -> dict[str, Any]:
    (request,) = api.sent("POST")
    assert request.query == {"fieldManager": "cli-create", "fieldValidation": "Strict"}
    body: dict[str, Any] = request.body
    return body


@pytest.mark.parametrize("word", ["namespace", "ns"])
async def test_a_namespace(orchctl: Orchctl, api: HttpApi, word: str) -> None:
    assert (await orchctl("create", word, "shop")).out == "namespace/shop created\n"
    assert _sent(api) == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


async def test_a_service_account(orchctl: Orchctl, api: HttpApi) -> None:
    assert (await orchctl("create", "sa", "web", "-n", "shop")).code == 0
    assert _sent(api)["metadata"] == {"name": "web", "namespace": "shop"}
    assert api.sent("POST")[0].path == "/api/v1/namespaces/shop/serviceaccounts"


async def test_a_map_of_values_and_files(orchctl: Orchctl, api: HttpApi, tmp_path: Path) -> None:
    (tmp_path / "web.conf").write_text("text")
    (tmp_path / "raw").write_bytes(b"\xff\xfe")
    words = ("--from-literal", "a=b=c", "--from-file", str(tmp_path / "web.conf"),
             "--from-file", f"bin={tmp_path / 'raw'}")  # fmt: skip
    assert (await orchctl("create", "configmap", "m", *words)).code == 0
    body = _sent(api)
    assert body["data"] == {"a": "b=c", "web.conf": "text"}
    assert body["binaryData"] == {"bin": base64.b64encode(b"\xff\xfe").decode()}


async def test_a_map_of_a_directory(orchctl: Orchctl, api: HttpApi, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    (tmp_path / "below").mkdir()
    assert (await orchctl("create", "cm", "m", "--from-file", str(tmp_path))).code == 0
    assert _sent(api)["data"] == {"a": "a", "b": "b"}


async def test_a_map_of_variables(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERE", "from the environment")
    monkeypatch.delenv("GONE", raising=False)
    (tmp_path / "env").write_text("# no\n\n A=1=2\nHERE\nGONE\nEMPTY=\n")
    assert (await orchctl("create", "cm", "m", "--from-env-file", str(tmp_path / "env"))).code == 0
    assert _sent(api)["data"] == {"A": "1=2", "HERE": "from the environment", "EMPTY": ""}
    (tmp_path / "env").write_text("A=1\nhunter 2\n")
    refused = await orchctl("create", "cm", "m", "--from-env-file", str(tmp_path / "env"))
    assert refused.err == f"error: {tmp_path}/env:2: this is not KEY=VALUE\n"


async def test_what_is_only_shown_has_no_namespace_unless_asked_for(orchctl: Orchctl) -> None:
    words = ("create", "sa", "web", "--dry-run=client", "-o", "jsonpath={.metadata.namespace}")
    assert (await orchctl(*words)).out == ""
    assert (await orchctl(*words, "-n", "shop")).out == "shop"


async def test_a_dry_run_sends_nothing(orchctl: Orchctl, api: HttpApi) -> None:
    words = ("--from-literal=a=b", "--dry-run=client", "-o", "jsonpath={.data.a}")
    assert (await orchctl("create", "configmap", "m", *words)).out == "b"
    assert api.sent("POST") == []


async def test_a_token_is_printed_and_nothing_else(orchctl: Orchctl, api: HttpApi) -> None:
    path = "/api/v1/namespaces/shop/serviceaccounts/web/token"
    api.answers["POST", path] = Answer({"status": {"token": "abc.def"}}, 201)
    words = ("--duration", "1h", "--audience", "x", "-n", "shop")
    assert (await orchctl("create", "token", "web", *words)).out == "abc.def\n"
    (sent,) = api.sent("POST")
    assert sent.body["spec"] == {"audiences": ["x"], "expirationSeconds": 3600}
    words = ("--bound-object-kind", "Pod", "--bound-object-name", "p", "-n", "shop", "-o", "json")
    shown = await orchctl("create", "token", "web", *words)
    assert json.loads(shown.out) == {"status": {"token": "abc.def"}}
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
    assert api.sent("POST")[1].body["spec"] == {"boundObjectRef": bound}
    alone = await orchctl("create", "token", "web", "--bound-object-kind", "Pod")
    assert (alone.code, "belong together" in alone.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--from-literal", "hunter2"), 2, "--from-literal is KEY=VALUE"),
        (("--from-literal", "a=1", "--from-literal", "a=2"), 2, "the key 'a' is given twice"),
        (("--from-file", "/nonexistent"), 1, "cannot read /nonexistent: No such file"),
        (("--from-literal", "a/b=1"), 2, "'a/b' is no key: it consists of letters, digits"),
        (("--from-literal", "a=1", "--from-env-file", "x"), 2, "--from-env-file does not go with"),
        (("--from-file", "k=/"), 2, "--from-file / is a directory: leave the key out"),
    ],
)
async def test_what_cannot_be_an_entry_is_refused(
    orchctl: Orchctl, words: tuple[str, ...], code: int, text: str
) -> None:
    result = await orchctl("create", "secret", "s", *words)
    assert (result.code, "hunter2" in result.err) == (code, False)
    assert text in result.err
