from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PATH = "/api/v1/namespaces/default/pods/a"


def _file(tmp_path: Path, *names: str, kind: str = "Pod") -> str:
    documents = [f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n" for name in names]
    (tmp_path / "f.yaml").write_text("---\n".join(documents))
    return str(tmp_path / "f.yaml")


@pytest.mark.parametrize(
    ("word", "asked"), [("warn", "Warn"), ("ignore", "Ignore"), ("false", "Ignore")]
)
async def test_unknown_fields_may_be_let_through(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path, word: str, asked: str
) -> None:
    await orchctl("create", f"--validate={word}", "-f", _file(tmp_path, "a"))
    assert api.sent("POST")[0].query["fieldValidation"] == asked


async def test_objects_are_created_strictly(orchctl: Orchctl, api: HttpApi, tmp_path: Path) -> None:
    result = await orchctl("create", "-f", _file(tmp_path, "a"))
    assert (result.code, result.out) == (0, "pod/a created\n")
    (sent,) = api.sent("POST")
    assert sent.path == "/api/v1/namespaces/default/pods"
    assert sent.query == {"fieldManager": "cli-create", "fieldValidation": "Strict"}
    assert sent.body["metadata"] == {"name": "a", "namespace": "default"}


async def test_one_that_exists_fails_and_the_rest_is_created(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    api.put(PATH, {"metadata": {"name": "a"}})
    result = await orchctl("create", "-f", _file(tmp_path, "a", "b"))
    assert (result.code, result.out) == (1, "pod/b created\n")
    assert result.err.startswith('error: pods "a" already exists (AlreadyExists); change it with')


async def test_dry_runs_store_nothing(orchctl: Orchctl, api: HttpApi, tmp_path: Path) -> None:
    result = await orchctl("create", "-f", _file(tmp_path, "a"), "--dry-run=client", "-o", "name")
    assert (result.out, api.sent("POST")) == ("pod/a\n", [])
    result = await orchctl("create", "-f", _file(tmp_path, "a"), "--dry-run=server")
    assert result.out == "pod/a created (server dry run)\n"
    assert api.sent("POST")[0].query["dryRun"] == "All"


async def test_a_kind_the_server_lacks_is_named_with_its_place(
    orchctl: Orchctl, tmp_path: Path
) -> None:
    result = await orchctl("create", "-f", _file(tmp_path, "a", kind="Widget"))
    assert result.code == 1
    assert "f.yaml:1: the server has no kind 'Widget' in 'v1'" in result.err


async def test_a_token_is_printed_and_nothing_else(orchctl: Orchctl, api: HttpApi) -> None:
    accounts = {"name": "serviceaccounts", "kind": "ServiceAccount", "namespaced": True}
    api.answers["GET", "/api/v1"] = Answer({"resources": [accounts]})
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
