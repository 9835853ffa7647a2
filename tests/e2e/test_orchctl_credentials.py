"""Every way to say who one is, told to the real server: options, files, environment, others."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.pki import Authority, Subject
from orch.server.authn.credential_files import hash_password
from tests.e2e.apiserver import ApiServer, running
from tests.orch.ctl.conftest import Result, run_command


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    folder = tmp_path_factory.mktemp("apiserver")
    hashed = hash_password("s3cret-word")
    for name, line in (("tokens", 's3cret-token,ann,1,"ops,dev"'), ("basic", f"{hashed},bob,2")):
        (folder / name).write_text(f"{line}\n")
        (folder / name).chmod(0o600)
    flags = (f"--token-auth-file={folder / 'tokens'}", f"--basic-auth-file={folder / 'basic'}")
    with running(folder, *flags) as server:
        yield server


REVIEW = {"apiVersion": "authentication.orch.io/v1", "kind": "SelfSubjectReview"}


def review(*words: str) -> Result:
    """Ask the server as whom it knows this client."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(REVIEW, file)
        file.flush()
        return run_command("create", "-f", file.name, "-o", "json", *words)


def whoami(*words: str) -> dict[str, Any]:
    """The user as the server sees them."""
    result = review(*words)
    assert result.code == 0, result.err
    assert "s3cret" not in result.out + result.err
    user: dict[str, Any] = json.loads(result.out)["status"]["userInfo"]
    return user


def at(server: ApiServer) -> tuple[str, ...]:
    authority = str(server.directory / "pki" / "ca.crt")
    return ("-s", f"https://127.0.0.1:{server.port}", "--certificate-authority", authority)


def admin(server: ApiServer) -> ClientConfig:
    authority = Authority(server.directory / "pki", now=datetime.now(UTC))
    pair = authority.issue(Subject("ctl-admin", "ctl-admin", ("system:masters",)))
    return ClientConfig(
        f"https://127.0.0.1:{server.port}", ca_file=authority.ca_file,
        cert_file=pair.cert_file, key_file=pair.key_file,
    )  # fmt: skip


def test_a_token(server: ApiServer) -> None:
    user = whoami(*at(server), "--token", "s3cret-token", "-v")
    assert (user["username"], {"ops", "dev"} <= set(user["groups"])) == ("ann", True)


def test_a_name_and_a_password(server: ApiServer) -> None:
    words = ("--username", "bob", "--password", "s3cret-word", "-v")
    assert whoami(*at(server), *words)["username"] == "bob"
    wrong = review(*at(server), *words[:3], "s3cret-wrong")
    assert (wrong.code, "Unauthorized" in wrong.err, "s3cret" in wrong.err) == (1, True, False)


def test_a_certificate(server: ApiServer) -> None:
    config = admin(server)
    words = ("--client-certificate", config.cert_file, "--client-key", config.key_file)
    assert whoami(*at(server), *words)["username"] == "ctl-admin"


def test_a_server_that_is_not_verified_or_called_otherwise(server: ApiServer) -> None:
    address = ("-s", f"https://localhost:{server.port}", "--token", "s3cret-token")
    assert whoami(*address, "--insecure-skip-tls-verify")["username"] == "ann"
    authority = str(server.directory / "pki" / "ca.crt")
    trusting = (*address, "--certificate-authority", authority)
    refused = review(*trusting, "--tls-server-name", "elsewhere.example")
    assert (refused.code, "certificate verify failed" in refused.err) == (1, True)
    assert whoami(*trusting, "--tls-server-name", "127.0.0.1")["username"] == "ann"


@pytest.mark.parametrize("place", ["option", "environment", ".orch/config", ".kube/config"])
def test_a_file_is_found_where_it_may_be(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    path = tmp_path / (place if place.startswith(".") else "config")
    path.parent.mkdir(exist_ok=True)
    write_kubeconfig(str(path), admin(server))
    if place == "environment":
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing{os.pathsep}{path}")
    words = ("--kubeconfig", str(path)) if place == "option" else ()
    assert whoami(*words)["username"] == "ctl-admin"


def test_entries_of_the_file_are_chosen_and_overridden(server: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "config"
    config = ("--kubeconfig", str(path))
    authority = str(server.directory / "pki" / "ca.crt")
    here = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": authority}
    nowhere = {"server": "https://127.0.0.1:1"}
    bob = {"username": "bob", "password": "s3cret-word"}
    record = {
        "clusters": [{"name": "here", "cluster": here}, {"name": "nowhere", "cluster": nowhere}],
        "users": [{"name": "ann", "user": {"token": "s3cret-token"}}, {"name": "bob", "user": bob}],
        "contexts": [{"name": "a", "context": {"cluster": "here", "user": "ann"}},
                     {"name": "b", "context": {"cluster": "nowhere", "user": "bob"}}],
        "current-context": "a",
    }  # fmt: skip
    path.write_text(json.dumps(record))
    assert whoami(*config)["username"] == "ann"
    assert whoami(*config, "--user", "bob")["username"] == "bob"
    assert whoami(*config, "--context", "b", "--cluster", "here")["username"] == "bob"
    assert (
        whoami(*config, "--context", "b", "--cluster", "here", "--token", "s3cret-token")[
            "username"
        ]
        == "ann"
    )
    assert "s3cret" not in run_command("config", "view", *config).out


def test_acting_as_somebody_else(server: ApiServer, tmp_path: Path) -> None:
    path = str(tmp_path / "config")
    write_kubeconfig(path, admin(server))
    user = whoami(
        "--kubeconfig", path, "--as", "jane", "--as-group", "ops", "--as-group", "dev",
        "--as-uid", "7", "--as-user-extra", "scope=a", "--as-user-extra", "scope=b",
    )  # fmt: skip
    assert (user["username"], user["uid"], user["extra"]) == ("jane", "7", {"scope": ["a", "b"]})
    assert {"ops", "dev"} <= set(user["groups"])
    account = whoami("--kubeconfig", path, "--as", "system:serviceaccount:shop:web")
    assert "system:serviceaccounts:shop" in account["groups"]
    refused = review(*at(server), "--token", "s3cret-token", "--as", "jane")
    assert (refused.code, 'cannot impersonate resource "users"' in refused.err) == (1, True)
