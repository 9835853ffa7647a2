from __future__ import annotations

from pathlib import Path

import pytest

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

NODES = ("GET", "/api/v1/nodes")


async def test_requests_are_shown_when_asked_for(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl("get", "nodes", "-v")
    shown = result.err.splitlines()
    assert shown[0].startswith(f"GET {api.url}/api/v1: 200 in ")
    assert shown[1].startswith(f"GET {api.url}/api/v1/nodes?limit=500: 200 in ")


async def test_warnings_of_the_server_are_shown(orchctl: Orchctl, api: HttpApi) -> None:
    headers = {"Warning": '299 - "unknown field \x1b[1m", 299 - "old version"'.replace("\x1b", "")}
    api.answers[NODES] = Answer({"kind": "NodeList", "items": []}, headers=headers)
    result = await orchctl("get", "nodes", "-o", "name")
    assert result.err.splitlines() == ["Warning: unknown field [1m", "Warning: old version"]


async def test_quotes_in_a_warning_are_part_of_it(orchctl: Orchctl, api: HttpApi) -> None:
    headers = {"Warning": '299 - "unknown field \\"spec.x\\"", 299 - "a \\\\ b"'}
    api.answers[NODES] = Answer({"kind": "NodeList", "items": []}, headers=headers)
    result = await orchctl("get", "nodes", "-o", "name")
    assert result.err.splitlines() == ['Warning: unknown field "spec.x"', "Warning: a \\ b"]


async def test_a_status_is_told_in_the_server_s_words(orchctl: Orchctl, api: HttpApi) -> None:
    body = {"kind": "Status", "message": "nodes is forbidden", "reason": "Forbidden", "code": 403}
    api.answers[NODES] = Answer(body, status=403)
    result = await orchctl("get", "nodes")
    assert result.code == 1
    assert result.err == (
        "error: nodes is forbidden (Forbidden); ask an administrator for a role that allows it\n"
    )


async def test_a_plain_text_refusal_is_quoted(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers[NODES] = Answer("the runtime\nis gone", 500)
    result = await orchctl("get", "nodes")
    assert result.err.startswith("error: the server answered 500: the runtime is gone (Internal")


async def test_pages_of_markup_are_not_quoted(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers[NODES] = Answer("<html>Bad gateway</html>", 502)
    result = await orchctl("get", "nodes")
    assert result.err.startswith("error: the server answered 502 (Unknown)")


async def test_an_answer_that_is_no_object_is_an_error(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers[NODES] = Answer("hello")
    result = await orchctl("get", "nodes")
    assert result.code == 1
    assert "answered what is not JSON" in result.err


async def test_an_answer_that_says_to_be_nothing_is_no_object_and_no_list(
    orchctl: Orchctl, api: HttpApi
) -> None:
    for words in (("get", "nodes"), ("drain", "n"), ("wait", "--for=delete", "node/n")):
        api.put("/api/v1/nodes/n", {"metadata": {"name": "n"}})
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            api.answers["GET", path] = Answer({})
        if words[0] == "wait":
            api.answers["GET", "/api/v1/nodes/n"] = Answer({})
        result = await orchctl(*words)
        assert result.code == 1
        assert "answered what is not a" in result.err, result


async def test_words_that_are_not_utf_8_do_not_break_the_command(orchctl: Orchctl) -> None:
    missing = await orchctl("get", "node", "a\udcff")
    assert (missing.code, "Traceback" in missing.err) == (1, False)
    refused = await orchctl("patch", "node", "n", "-p", '{"a": "\udcff"}', "--type=merge")
    assert refused.code == 1


@pytest.mark.parametrize("value", ['"\udcff"', "123456789012345678901234567890"])
async def test_what_json_cannot_carry_is_refused(
    orchctl: Orchctl, api: HttpApi, value: str
) -> None:
    api.put("/api/v1/nodes/n", {"metadata": {"name": "n"}})
    result = await orchctl("patch", "node", "n", "--type=merge", "-p", f'{{"a": {value}}}')
    assert result.code == 1
    assert "cannot be written as JSON" in result.err


async def test_names_are_single_segments_of_the_path(orchctl: Orchctl, api: HttpApi) -> None:
    for name in ("a?b#c", "system:x"):
        await orchctl("get", "node", name)
        assert api.requests[-2].path == f"/api/v1/nodes/{name}"


@pytest.mark.parametrize(("name", "hint"), [("wroker-1", ": did you mean 'worker-1'?"), ("db", "")])
async def test_a_missing_object_brings_up_one_called_nearly_so(
    orchctl: Orchctl, api: HttpApi, name: str, hint: str
) -> None:
    api.put("/api/v1/nodes/worker-1", {"metadata": {"name": "worker-1"}})
    result = await orchctl("get", "node", name)
    assert result.err.startswith(f'error: nodes "{name}" not found{hint} (NotFound); ')
    api.answers["GET", "/api/v1/nodes"] = Answer("", 403)
    result = await orchctl("get", "node", name)
    assert result.err.startswith(f'error: nodes "{name}" not found (NotFound); ')


async def test_the_context_s_namespace_is_used_when_none_is_named(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    path = str(tmp_path / "config")
    write_kubeconfig(path, ClientConfig(api.url, namespace="team"))
    await orchctl("get", "pods", "--kubeconfig", path)
    assert api.requests[-1].path == "/api/v1/namespaces/team/pods"
    await orchctl("get", "pods", "--kubeconfig", path, "-n", "other")
    assert api.requests[-1].path == "/api/v1/namespaces/other/pods"


async def test_without_any_the_namespace_is_default(orchctl: Orchctl, api: HttpApi) -> None:
    await orchctl("get", "pods")
    assert api.requests[-1].path == "/api/v1/namespaces/default/pods"


async def test_requests_carry_identity_and_impersonation(orchctl: Orchctl, api: HttpApi) -> None:
    await orchctl("get", "nodes", "--token", "t", "--as", "ann", "--as-group", "ops")
    headers = api.requests[-1].headers
    assert headers["User-Agent"] == "orchctl"
    assert headers["Authorization"] == "Bearer t"
    assert headers["Impersonate-User"] == "ann"
    assert headers["Impersonate-Group"] == "ops"


async def test_the_key_of_an_extra_value_arrives_escaped(orchctl: Orchctl, api: HttpApi) -> None:
    words = ("--as", "ann", "--as-user-extra", "example.org/scope=read write")
    assert (await orchctl("get", "nodes", *words)).code == 0
    assert api.requests[-1].headers["Impersonate-Extra-example.org%2Fscope"] == "read write"
