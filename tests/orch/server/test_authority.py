"""`orch-apiserver init`: what it makes works together, and what is there it keeps."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from orch.client.kubeconfig import load_kubeconfig
from orch.component import pki
from orch.component.pki import Authority, KeyPair, Subject
from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.server import authority, main

NOW = clock.utc_now()
SYSTEMD = Path(__file__).resolve().parents[3] / "systemd"


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


def flags_of(text: str, start: str) -> dict[str, str]:
    """The names of the files that a command over several lines gives its flags."""
    found = re.search(rf"^ *{start} ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert found, text
    return {flag: Path(value).name for flag, value in re.findall(r"--(\S+?)=(\S+)", found[1])}


@pytest.mark.parametrize("program", ["orch-apiserver", "orch-controller-manager"])
def test_the_printed_commands_give_the_files_that_the_units_give(
    tmp_path: Path, program: str
) -> None:
    told = authority.make(tmp_path, ["10.0.0.1"], 6443, 3600.0, NOW)
    unit = (SYSTEMD / f"{program}.service").read_text()
    expected = flags_of(unit, f"ExecStart=/usr/bin/{program}")
    expected.pop("data-dir", None)  # where it is by default
    assert flags_of(told, program) == expected


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


def test_renewing_touches_only_what_the_authority_issued_and_what_ends_soon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "keys"
    then = NOW - timedelta(days=300)
    authority.make(directory, ["10.0.0.1"], 6443, 3600.0, then)
    stranger = Authority(tmp_path / "other", now=then).issue(Subject("m", "prometheus"))
    for name, source in (("crt", stranger.cert_file), ("key", stranger.key_file)):
        (directory / f"monitoring.{name}").write_bytes(Path(source).read_bytes())
    (directory / "admin.crt").unlink()
    before, subject = contents(directory), pki.hosts_in(KeyPair.at(directory, "tls"))
    held = ["init", "--renew", "--dir", str(directory)]
    assert main.main(held) == 0
    told = "renewed: controller-manager nodeagent-client service-account tls\n"
    assert capsys.readouterr().out == told
    after = contents(directory)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {f"{name}.crt" for name in told.split()[1:]}
    pair = KeyPair.at(directory, "tls")
    renewed = pair.read(NOW, timedelta(days=364))
    assert renewed is not None, "for a year"
    assert pki.hosts_in(pair) == subject
    assert after["tls.crt"].endswith(after["ca.crt"]), "as before it holds the CA"
    ssl.create_default_context().load_cert_chain(pair.cert_file, pair.key_file)
    assert main.main(held) == 0
    assert capsys.readouterr().out == "renewed: nothing ends soon\n"


def test_renewed_credentials_of_the_administrator_are_in_the_kubeconfig(tmp_path: Path) -> None:
    authority.make(tmp_path, ["10.0.0.1"], 6443, 3600.0, NOW - timedelta(days=300))
    assert "admin" in authority.renew(tmp_path, NOW)
    config = load_kubeconfig(str(tmp_path / "admin.kubeconfig"))
    assert config.cert_data == (tmp_path / "admin.crt").read_bytes()
    daemon = load_kubeconfig(str(tmp_path / "controller-manager.kubeconfig"))
    assert daemon.cert_file == str(tmp_path / "controller-manager.crt")


def test_the_controller_s_key_goes_along_with_its_kubeconfig(tmp_path: Path) -> None:
    made, copies = tmp_path / "made", tmp_path / "copies"
    authority.make(made, ["10.0.0.1"], 6443, 3600.0, NOW)
    copies.mkdir()
    for path in made.glob("controller-manager.k*"):
        shutil.copyfile(path, copies / path.name)
    config = load_kubeconfig(str(copies / "controller-manager.kubeconfig"))
    assert config.cert_file == str(made / "controller-manager.crt"), "where it is renewed"
    assert config.key_file == str(copies / "controller-manager.key")


def test_only_the_keys_are_kept_from_the_servers_own_user(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    authority.make(directory, ["10.0.0.1"], 6443, 3600.0, NOW)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o711
    for path in directory.iterdir():
        expected = 0o644 if path.suffix == ".crt" else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_a_ca_that_ends_is_not_replaced_either(tmp_path: Path) -> None:
    authority.make(tmp_path, ["10.0.0.1"], 6443, 3600.0, NOW)
    before = contents(tmp_path)
    late = NOW + timedelta(days=3650)
    for again in (
        lambda: authority.make(tmp_path, [], 6443, 3600.0, late),
        lambda: authority.renew(tmp_path, late),
    ):
        with pytest.raises(SetupError, match="has ended, or ends within a day"):
            again()
    assert contents(tmp_path) == before


def test_nothing_is_renewed_where_there_is_no_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["init", "--renew", "--dir", str(tmp_path)]) == 1
    assert "there is no authority in" in capsys.readouterr().err
    assert contents(tmp_path) == {}


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
