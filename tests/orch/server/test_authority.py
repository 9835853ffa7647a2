"""`orch-apiserver init`: what it makes works together, and what is there it keeps."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from orch.client.kubeconfig import load_kubeconfig
from orch.component import pki
from orch.component.pki import KeyPair
from orch.component.process import clock
from orch.server import authority, main

NOW = clock.utc_now()


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    first = authority.make(tmp_path, ["api.example.com"], 6443, 3600.0, NOW)
    made = contents(tmp_path)
    assert re.search(
        r"nodeagent join https://api\.example\.com:6443 --token [a-z0-9]{6}\.[a-z0-9]{16}"
        r" --ca-hash sha256:[0-9a-f]{64}\n", first,
    )  # fmt: skip
    assert authority.make(tmp_path, [], 6443, 3600.0, NOW) == first
    assert contents(tmp_path) == made
    keys = [path for path in tmp_path.iterdir() if path.suffix in (".key", ".kubeconfig")]
    assert len(keys) == 10
    for path in [*keys, tmp_path / "bootstrap-token"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    config = load_kubeconfig(str(tmp_path / "admin.kubeconfig"))
    assert config.server == "https://api.example.com:6443"


def test_certificates_and_tokens_are_renewed_and_keys_are_not(tmp_path: Path) -> None:
    authority.make(tmp_path, ["10.0.0.1"], 6443, 3600.0, NOW)
    before = contents(tmp_path)
    authority.make(tmp_path, ["10.0.0.2"], 6443, 3600.0, NOW + timedelta(days=300))
    after = contents(tmp_path)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {
        "tls.crt", "admin.crt", "controller-manager.crt", "nodeagent-client.crt",
        "service-account.crt", "bootstrap-token", "admin.kubeconfig",
        "controller-manager.kubeconfig", "monitoring.crt",
    }  # fmt: skip
    assert pki.hosts_in(KeyPair.at(tmp_path, "tls"))[0] == "10.0.0.2"


def test_a_ca_that_cannot_be_used_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ca.key").write_text("precious")
    assert main.main(["init", "--dir", str(tmp_path)]) == 1
    assert str(tmp_path / "ca.crt") in capsys.readouterr().err
    assert (tmp_path / "ca.key").read_text() == "precious"


def test_a_machine_names_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["init", "--dir", str(tmp_path), "--port", "7443"]) == 0
    assert ":7443 --token" in capsys.readouterr().out
    assert "127.0.0.1" in pki.hosts_in(KeyPair.at(tmp_path, "tls"))
