from __future__ import annotations

from pathlib import Path

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl


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
