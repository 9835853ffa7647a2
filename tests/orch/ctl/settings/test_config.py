from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.ctl.settings.config import redacted
from tests.orch.ctl.conftest import Result, run_command

CONFIG = ClientConfig("https://a", ca_data=b"ca", cert_data=b"c", key_data=b"k", token="secret")


def test_the_kubeconfig_is_shown_without_its_secrets(tmp_path: Path) -> None:
    path = str(tmp_path / "config")
    write_kubeconfig(path, CONFIG)
    result = run_command("config", "view", "--kubeconfig", path)
    shown = yaml.safe_load(result.out)
    assert shown["clusters"][0]["cluster"]["server"] == "https://a"
    assert shown["users"][0]["user"] == {
        "token": "REDACTED",
        "client-key-data": "DATA+OMITTED",
        "client-certificate-data": "DATA+OMITTED",
    }
    assert "secret" not in result.out


def test_secrets_are_shown_when_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "config")
    write_kubeconfig(path, CONFIG)
    result = run_command("config", "view", "--raw", "-o", "json", "--kubeconfig", path)
    assert json.loads(result.out)["users"][0]["user"]["token"] == "secret"


def test_every_kind_of_secret_is_redacted() -> None:
    user = {
        "password": "p",
        "exec": {"env": ["x"]},
        "auth-provider": {"config": 1},
        "username": "u",
    }
    assert redacted({"users": [user]}) == {
        "users": [
            {**dict.fromkeys(("password", "exec", "auth-provider"), "REDACTED"), "username": "u"}
        ]
    }


def test_the_password_of_an_address_is_redacted(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("clusters: [{name: c, cluster: {server: 'https://me:pass@host:1/a@b'}}]\n")
    shown = run_command("config", "view", "--kubeconfig", str(path)).out
    assert "server: https://REDACTED@host:1/a@b\n" in shown


def test_a_flat_file_holds_all_it_needs(tmp_path: Path) -> None:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(name)
    path = tmp_path / "config"
    path.write_text(
        "clusters: [{name: c, cluster: {certificate-authority: ca}}]\n"
        "users: [{name: u, user: {client-certificate: crt, client-key: key, token: t}}]\n"
    )
    words = ("config", "view", "--kubeconfig", str(path))
    plain = yaml.safe_load(run_command(*words).out)
    assert plain["clusters"][0]["cluster"] == {"certificate-authority": str(tmp_path / "ca")}
    flat = yaml.safe_load(run_command(*words, "--flatten").out)
    assert flat["clusters"][0]["cluster"] == {"certificate-authority-data": "Y2E="}
    assert flat["users"][0]["user"] == {
        "client-certificate-data": "Y3J0", "client-key-data": "a2V5", "token": "t",
    }  # fmt: skip
    (tmp_path / "key").unlink()
    missing = run_command(*words, "--flatten")
    assert missing.err == f"error: cannot read {tmp_path}/key: No such file or directory\n"


def test_what_cannot_be_shown_is_explained(tmp_path: Path) -> None:
    assert "name one with --kubeconfig" in run_command("config", "view").err
    missing = run_command("config", "view", "--kubeconfig", str(tmp_path / "x"))
    assert missing.err.startswith(f"error: there is no kubeconfig {tmp_path}/x: name one with")
    (tmp_path / "bad").write_text("a: [")
    broken = run_command("config", "view", "--kubeconfig", str(tmp_path / "bad"))
    assert (broken.code, "bad:2: did not find expected" in broken.err) == (1, True)


def test_only_what_the_context_uses_may_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "clusters: [{name: a, cluster: {server: 'https://a'}}, {name: b, cluster: {}}]\n"
        "users: [{name: u, user: {token: t}}, {name: v, user: {}}]\n"
        "contexts: [{name: one, context: {cluster: a, user: u}}, {name: two, context: {}}]\n"
        "current-context: one\n"
    )
    words = ("config", "view", "--minify", "-o", "json", "--kubeconfig", str(path))
    shown = json.loads(run_command(*words).out)
    assert [[e["name"] for e in shown[s]] for s in ("clusters", "users", "contexts")] == [
        ["a"], ["u"], ["one"],
    ]  # fmt: skip
    assert shown["users"][0]["user"] == {"token": "REDACTED"}
    assert json.loads(run_command(*words, "--context", "two").out)["clusters"] == []
    near = run_command(*words, "--context", "on")
    assert (near.code, "no context 'on': did you mean 'one'?" in near.err) == (1, True)


TEXT = """
contexts:
- {name: work, context: {cluster: w, user: jane, namespace: shop}}
- {name: lab, context: {cluster: l, user: me}}
current-context: lab
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config").write_text(TEXT)
    return tmp_path / "config"


def _config(file: Path, *words: str) -> Result:
    return run_command("config", *words, "--kubeconfig", str(file))


def test_contexts_are_listed_and_the_one_in_use_marked(file: Path) -> None:
    assert [line.split() for line in _config(file, "get-contexts").lines] == [
        ["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"],
        ["*", "lab", "l", "me"],
        ["work", "w", "jane", "shop"],
    ]
    assert _config(file, "get-contexts", "-o", "name").lines == ["lab", "work"]
    assert len(_config(file, "get-contexts", "work", "--no-headers").lines) == 1


def test_another_context_is_used(file: Path) -> None:
    assert _config(file, "use-context", "work").out == 'Switched to context "work".\n'
    assert _config(file, "get-contexts", "--no-headers").lines[1].split()[:2] == ["*", "work"]


@pytest.mark.parametrize("command", ["use-context", "use", "get-contexts"])
def test_a_name_nearly_right_brings_up_the_right_one(file: Path, command: str) -> None:
    result = _config(file, command, "wrok")
    assert (result.code, file.read_text()) == (1, TEXT)
    assert result.err == "error: the kubeconfig has no context 'wrok': did you mean 'work'?\n"
    assert "there are work, lab" in _config(file, command, "zzz").err


def test_several_files_are_read_as_one_and_the_first_one_changed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.write_text(
        "contexts: [{name: home, context: {cluster: h}}, {name: lab, context: {cluster: hidden}}]\n"
    )
    missing = tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", f"{missing}:{file}:{other}")
    shown = run_command("config", "get-contexts", "--no-headers").lines
    assert [line.split()[:3] for line in shown] == [
        ["home", "h"], ["*", "lab", "l"], ["work", "w", "jane"],
    ]  # fmt: skip
    assert run_command("config", "use-context", "home").code == 0
    assert "current-context: home" in file.read_text()
