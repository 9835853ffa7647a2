"""`orch-apiserver doctor`: each trouble of the servers' certificates is a line with a next step."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orch.component.diagnostics.findings import Finding, exit_code
from orch.component.pki import Authority, Subject
from orch.component.process import clock
from orch.server import authority, doctor, main
from orch.server.doctor import UnitFiles

NOW = clock.utc_now()
DAY = timedelta(days=1)
_NOBODY = 65534


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The directory of a cluster's servers, as `init` makes it."""
    directory = tmp_path / "keys"
    before = os.umask(0o077)
    authority.make(directory, ["10.0.0.1"], 6443, 3600.0, NOW)
    os.umask(before)
    return directory


def troubles(files: Path | UnitFiles, now: datetime = NOW) -> dict[str, Finding]:
    examined = UnitFiles(files) if isinstance(files, Path) else files
    found = [one for one in doctor.examine(examined, now) if one.verdict != "ok"]
    assert len({one.check for one in found}) == len(found), "each is said once"
    return {one.check: one for one in found}


def stranger(directory: Path, name: str, *hosts: str) -> None:
    """Put a pair of another authority in the place of one that `init` made."""
    other = Authority(directory.parent / "other", now=NOW)
    pair = other.issue(Subject(name, name, (), hosts))
    shutil.copyfile(pair.cert_file, directory / f"{name}.crt")
    shutil.copyfile(pair.key_file, directory / f"{name}.key")


def test_what_init_makes_is_in_order(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["doctor", "--dir", str(made), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {one["verdict"] for one in found} == {"ok"}
    assert [one["check"] for one in found] == [
        "certificate authority", "certificate authority of agents",
        "certificate authority of clients", "certificate serving", "certificate for agents",
        "certificate of service accounts", "certificate controller manager",
        "certificate admin", "certificate monitoring", "authority of nodeagent-client",
        "authority of monitoring", "kubeconfig controller-manager",
        "certificate in admin.kubeconfig", "kubeconfig admin",
    ]  # fmt: skip


def test_ends_are_told_before_and_after(made: Path) -> None:
    soon = troubles(made, NOW + 340 * DAY)
    assert exit_code(soon.values()) == 2
    assert soon["certificate serving"].message.startswith(f"{made}/tls.crt expires at ")
    assert soon["certificate serving"].advice == "run 'orch-apiserver init' soon"
    ended = troubles(made, NOW + 366 * DAY)
    assert ended["certificate serving"].message.startswith(f"{made}/tls.crt expired at ")
    assert ended["certificate for agents"].verdict == "fail"
    ca = troubles(made, NOW + 3651 * DAY)["certificate authority"]
    assert ca.advice.endswith("every machine then joins anew")


def test_an_ended_credential_of_the_administrator_is_told_once(tmp_path: Path) -> None:
    directory, kept = tmp_path / "keys", tmp_path / "kept"
    authority.make(directory, ["10.0.0.1"], 6443, 3600.0, NOW - 366 * DAY)
    shutil.copyfile(directory / "admin.kubeconfig", kept)
    authority.make(directory, [], 6443, 3600.0, NOW)
    shutil.copyfile(kept, directory / "admin.kubeconfig")
    found = troubles(directory)
    assert list(found) == ["certificate in admin.kubeconfig"]
    assert found["certificate in admin.kubeconfig"].advice == "run 'orch-apiserver init'"


def test_a_key_of_another_certificate_is_named(made: Path) -> None:
    shutil.copyfile(made / "admin.key", made / "tls.key")
    found = troubles(made)
    assert list(found) == ["certificate serving"]
    assert found["certificate serving"].message == (
        f"{made}/tls.crt: the key {made}/tls.key does not match it"
    )


def test_a_serving_certificate_of_another_authority_is_not_believed(made: Path) -> None:
    stranger(made, "tls", "10.0.0.1")
    found = troubles(made)
    assert list(found) == ["kubeconfig controller-manager", "kubeconfig admin"]
    for one in found.values():
        assert ".kubeconfig does not believe tls.crt: " in one.message
        assert one.advice.startswith("put the authority of tls.crt into it, or move tls.crt away")


@pytest.mark.parametrize(
    ("name", "ca"), [("nodeagent-client", "ca.crt"), ("monitoring", "client-ca.crt")]
)
def test_a_client_certificate_of_another_authority_is_refused(
    made: Path, name: str, ca: str
) -> None:
    stranger(made, name)
    found = troubles(made)
    assert list(found) == [f"authority of {name}"]
    (one,) = found.values()
    assert one.message.startswith(f"{made}/{ca} does not hold the authority of {made}/{name}.crt")


def test_a_client_ca_that_knows_no_client_is_told_for_each(made: Path) -> None:
    Authority(made.parent / "other", now=NOW)
    shutil.copyfile(made.parent / "other" / "ca.crt", made / "client-ca.crt")
    assert list(troubles(made)) == [
        "authority of monitoring", "kubeconfig controller-manager", "kubeconfig admin",
    ]  # fmt: skip


def test_an_address_that_the_certificate_lacks_is_told(made: Path) -> None:
    held = made / "admin.kubeconfig"
    held.write_text(held.read_text().replace("10.0.0.1", "10.0.0.9"))
    (one,) = troubles(made).values()
    assert one.check == "kubeconfig admin" and "'10.0.0.9'" in one.message
    assert "--host" in one.advice


def test_a_clock_that_is_behind_is_no_matter_of_authorities(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    authority.make(directory, ["10.0.0.1"], 6443, 3600.0, NOW + 9 * DAY)
    found = troubles(directory)
    assert len(found) == 4
    assert {one.advice for one in found.values()} == {"set the clock of this machine"}


def test_a_host_without_any_is_told_once(tmp_path: Path) -> None:
    (one,) = troubles(tmp_path).values()
    assert one.message == f"there are no certificates in {tmp_path}"
    assert one.advice.startswith("run 'orch-apiserver init', or give --dir")


def test_of_service_accounts_the_key_is_enough(made: Path) -> None:
    (made / "service-account.crt").unlink()
    assert troubles(made) == {}
    (made / "service-account.key").unlink()
    assert list(troubles(made)) == ["certificate of service accounts"]


def test_missing_and_spoilt_files_are_named(made: Path) -> None:
    (made / "nodeagent-client.crt").unlink()
    (made / "nodeagent-ca.crt").write_text("spoilt")
    (made / "client-ca.crt").unlink()
    (made / "controller-manager.kubeconfig").write_text("spoilt")
    found = troubles(made)
    assert found["certificate for agents"].message.endswith(
        "nodeagent-client.crt: No such file or directory"
    )
    assert found["certificate authority of agents"].advice.startswith("restore it from a backup")
    assert found["certificate authority of clients"].advice == "run 'orch-apiserver init'"
    assert found["kubeconfig controller-manager"].advice.endswith("which writes it anew")


def test_the_keys_of_the_authority_may_be_elsewhere(made: Path) -> None:
    (made / "ca.key").unlink()
    (made / "nodeagent-ca.key").unlink()
    assert troubles(made) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be somebody else for a while")
def test_somebody_who_may_not_read_the_keys_is_told_to_be_root() -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "keys")
        authority.make(directory, ["10.0.0.1"], 6443, 3600.0, NOW)
        Path(folder).chmod(0o711)
        os.seteuid(_NOBODY)
        try:
            found = troubles(directory)
        finally:
            os.seteuid(0)
    assert len(found) == 10, "every key and kubeconfig"
    for one in found.values():
        assert one.message.endswith(": Permission denied")
        assert one.advice == "run this as root"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("APISERVER_ARGS=--tls-cert-file=/own/tls.crt -v 4", "/own/tls.crt"),
        ("APISERVER_ARGS='-v 4 --tls-cert-file /own/tls.crt'", "/own/tls.crt"),
        ('# theirs\nAPISERVER_ARGS="-v=4 \\\n --tls-cert-file=/own/tls.crt"\n', "/own/tls.crt"),
        ("APISERVER_ARGS='--tls-cert-file=\"/own/a b.crt\"'", "/own/a b.crt"),
        ("APISERVER_ARGS=--tls-cert-file=/a\nAPISERVER_ARGS=--tls-cert-file=/b", "/b"),
        ("APISERVER_ARGS=--tls-cert-file=/a --tls-cert-file=/b", "/b"),
        ("OTHER_ARGS=--tls-cert-file=/own/tls.crt", "/keys/tls.crt"),
        ("APISERVER_ARGS=-v 4", "/keys/tls.crt"),
        ("APISERVER_ARGS=", "/keys/tls.crt"),
    ],
)
def test_flags_in_the_settings_name_other_files(tmp_path: Path, text: str, path: str) -> None:
    """Words as systemd.exec(5) and systemd.service(5) take them; of two flags the last counts."""
    (tmp_path / "orch-apiserver").write_text(text)
    files = doctor.of_the_units(Path("/keys"), tmp_path, tmp_path)
    assert files.at("tls.crt") == Path(path)
    assert files.at("tls.key") == Path("/keys/tls.key")


def test_settings_that_systemd_would_not_take_either_are_named(tmp_path: Path) -> None:
    (tmp_path / "orch-apiserver").write_text('APISERVER_ARGS="-v')
    with pytest.raises(ValueError, match=f"{tmp_path}/orch-apiserver: APISERVER_ARGS: No closing"):
        doctor.of_the_units(Path("/keys"), tmp_path, tmp_path)


def test_the_doctor_looks_at_the_files_that_the_flags_name(tmp_path: Path) -> None:
    keys, own = tmp_path / "keys", tmp_path / "own"
    authority.make(keys, ["10.0.0.1"], 6443, 3600.0, NOW)
    own.mkdir()
    shutil.move(keys / "tls.crt", own)
    shutil.move(keys / "tls.key", own)
    shutil.move(keys / "controller-manager.kubeconfig", own / "kubeconfig")
    shutil.copyfile(keys / "controller-manager.key", own / "controller-manager.key")
    flags = f"--tls-cert-file={own}/tls.crt --tls-private-key-file={own}/tls.key"
    (tmp_path / "orch-apiserver").write_text(f"APISERVER_ARGS={flags}\n")
    said = f"CONTROLLER_MANAGER_ARGS=--kubeconfig={own}/kubeconfig\n"
    (tmp_path / "orch-controller-manager").write_text(said)
    files = doctor.of_the_units(keys, tmp_path, tmp_path)
    assert troubles(files) == {}
    assert str(own / "kubeconfig") in str([*doctor.examine(files, NOW)])

    stranger = Authority(tmp_path / "other", now=NOW).issue(Subject("tls", "x", (), ("10.0.0.1",)))
    shutil.copyfile(stranger.cert_file, own / "tls.crt")
    (one,) = troubles(files).values()
    assert one.message == f"{own}/tls.crt: the key {own}/tls.key does not match it"
    assert one.advice == "correct the file, or the flag that names it"


def test_a_copy_of_before_is_told_until_the_unit_is_reloaded(tmp_path: Path) -> None:
    keys, copies = tmp_path / "keys", tmp_path / "run"
    authority.make(keys, ["10.0.0.1"], 6443, 3600.0, NOW)
    for unit, names in (
        ("orch-apiserver", ("tls.key", "nodeagent-client.key")),
        ("orch-controller-manager", ("controller-manager.kubeconfig", "controller-manager.key")),
    ):
        (copies / unit).mkdir(parents=True)
        for name in names:
            shutil.copyfile(keys / name, copies / unit / name)
    files = doctor.of_the_units(keys, tmp_path / "no", copies)
    assert troubles(files) == {}
    (keys / "tls.crt").unlink()
    (keys / "tls.key").unlink()
    authority.make(keys, ["10.0.0.1"], 6443, 3600.0, NOW)
    (one,) = troubles(files).values()
    assert (one.check, one.verdict) == ("copy of tls.key", "warn")
    assert one.advice == "systemctl reload orch-apiserver"
    shutil.copyfile(keys / "tls.key", copies / "orch-apiserver" / "tls.key")
    assert troubles(files) == {}
