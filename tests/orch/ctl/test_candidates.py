from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orch.ctl import candidates
from tests.fakes.http_api import Answer, HttpApi


@pytest.fixture(autouse=True)
def _objects(api: HttpApi) -> None:
    for name in ("web", "web-2", "db"):
        api.put(f"/api/v1/namespaces/shop/pods/{name}", {"metadata": {"name": name}})
    for name in ("n1", "n2"):
        api.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name}})
    api.put("/api/v1/namespaces/shop", {"metadata": {"name": "shop"}})


async def _found(api: HttpApi, line: str) -> list[str]:
    words = ["--server", api.url, *line.split(" ")]
    return [word for word, _ in await asyncio.to_thread(candidates.complete, words)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("unc", ["uncordon"]),
        ("auth ", ["can-i", "whoami"]),
        ("auth w", ["whoami"]),
        ("config use", ["use-context"]),
        ("create n", ["namespace"]),
        ("create -n shop n", ["namespace"]),
        ("create --k", ["--kubeconfig"]),
        ("checkpoint l", ["list"]),
        ("drain n", ["n1", "n2"]),
        ("node summary ", ["n1", "n2"]),
        ("get po", ["pods"]),
        ("get pods web -n shop", ["shop"]),
        ("-n shop get pods w", ["web", "web-2"]),
        ("-n shop get pod/w", ["pod/web", "pod/web-2"]),
        ("get pods -n shop w", ["web", "web-2"]),
        ("logs -n shop d", ["db"]),
        ("get -n s", ["shop"]),
        ("get --namespace=s", ["--namespace=shop"]),
        ("patch --type m", ["merge"]),
        ("patch --type=j", ["--type=json"]),
        ("get pods -o cus", ["custom-columns-file=", "custom-columns="]),
        ("patch --output=n", ["--output=name"]),
        ("version -o ", ["json", "yaml"]),
        ("man unc", ["uncordon"]),
        ("man config use", ["use-context"]),
        ("man get ", []),
        ("get --sort", ["--sort-by"]),
        ("drain --dis", ["--disable-eviction"]),
        ("--tls", ["--tls-server-name"]),
        ("get pods --sort-by ", []),
        ("frobnicate x", []),
        ("version ", []),
    ],
)
async def test_what_may_stand_at_the_cursor(api: HttpApi, line: str, found: list[str]) -> None:
    assert await _found(api, line) == found


async def test_types_that_have_no_list_are_not_offered(api: HttpApi) -> None:
    types = [{"name": "pods", "verbs": ["get", "list"]}, {"name": "reviews", "verbs": ["create"]}]
    api.answers["GET", "/api/v1"] = Answer({"resources": types})
    assert await _found(api, "get ") == ["pods"]


async def test_every_command_is_offered_with_what_it_does(
    api: HttpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert candidates.main(["vers"]) == 0
    assert capsys.readouterr().out == (
        "version\tshow the versions of this command and of the server\n"
    )


@pytest.mark.parametrize("line", ["get pods ", "get ", "get pod/", "drain "])
def test_without_a_server_there_is_just_nothing(line: str) -> None:
    words = ["--server", "http://127.0.0.1:1", *line.split(" ")]
    assert candidates.complete(words) == []
    assert candidates.complete(line.split(" ")) == []


async def test_a_server_that_is_never_done_is_not_waited_for(
    api: HttpApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer comes at once, and each says that there is another page."""
    monkeypatch.setattr(candidates, "_TIMEOUT_S", 0.5)
    api.answers["GET", "/api/v1/nodes"] = Answer({"items": [], "metadata": {"continue": "more"}})
    assert await _found(api, "drain n") == []


def test_contexts_come_from_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("contexts: [{name: work}]\nclusters: [{name: c}]\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert candidates.complete(["config", "use-context", ""]) == [("work", "context")]
    assert candidates.complete(["--cluster", ""]) == [("c", "")]
    (tmp_path / "config").write_text("contexts: [")
    assert candidates.complete(["config", "use-context", ""]) == []
