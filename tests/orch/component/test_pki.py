"""Certificates of a local cluster: made once, kept while good, made anew when unfit."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from orch.component import pki, signing_requests
from orch.component.pki import Authority, KeyPair, Subject, self_signed
from orch.component.process.daemon import SetupError

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SERVER = Subject("server", "node-a", (), ("node-a", "127.0.0.1"))


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def test_a_certificate_names_user_groups_and_hosts_and_its_key_is_private(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", now=NOW)
    pair = authority.issue(Subject("x", "system:node:a", ("system:nodes",), ("a", "127.0.0.1")))
    cert = x509.load_pem_x509_certificate(read(pair.cert_file))
    assert cert.subject.rfc4514_string() == "CN=system:node:a,O=system:nodes"
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a"]
    assert Path(pair.key_file).stat().st_mode & 0o777 == 0o600
    assert Path(tmp_path / "pki").stat().st_mode & 0o777 == 0o700


def test_a_second_start_keeps_what_is_good(tmp_path: Path) -> None:
    first = Authority(tmp_path, now=NOW).issue(SERVER)
    before = read(first.cert_file)
    assert read(Authority(tmp_path, now=NOW).issue(SERVER).cert_file) == before


CHANGES = [
    (Subject("server", "node-b", (), SERVER.hosts), NOW),
    (Subject("server", "node-a", (), ("node-a", "::1")), NOW),
    (SERVER, NOW + timedelta(days=365)),
]


@pytest.mark.parametrize(("subject", "now"), CHANGES)
def test_other_names_or_an_approaching_end_make_a_new_one(
    tmp_path: Path, subject: Subject, now: datetime
) -> None:
    before = read(Authority(tmp_path, now=NOW).issue(SERVER).cert_file)
    assert read(Authority(tmp_path, now=now).issue(subject).cert_file) != before


def test_a_lost_authority_makes_all_certificates_anew(tmp_path: Path) -> None:
    before = read(Authority(tmp_path, now=NOW).issue(SERVER).cert_file)
    (tmp_path / "ca.key").write_text("torn")
    assert read(Authority(tmp_path, now=NOW).issue(SERVER).cert_file) != before


def test_a_ca_that_was_interrupted_before_its_certificate_is_finished(tmp_path: Path) -> None:
    Authority(tmp_path, now=NOW, keep=True)
    key = read(str(tmp_path / "ca.key"))
    (tmp_path / "ca.crt").unlink()
    Authority(tmp_path, now=NOW, keep=True)
    assert read(str(tmp_path / "ca.key")) == key
    pki.read_authority(KeyPair.at(tmp_path, "ca"))


def test_a_key_that_cannot_be_used_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "ca.key").write_text("torn")
    with pytest.raises(SetupError):
        Authority(tmp_path, now=NOW, keep=True)
    assert read(str(tmp_path / "ca.key")) == b"torn"


def test_a_server_without_a_certificate_makes_its_own_and_keeps_it(tmp_path: Path) -> None:
    first = self_signed(tmp_path, "agent", ["node-a", "127.0.0.1"], now=NOW)
    before = read(first.cert_file)
    assert (
        read(self_signed(tmp_path, "agent", ["node-a", "127.0.0.1"], now=NOW).cert_file) == before
    )
    assert read(self_signed(tmp_path, "agent", ["node-b"], now=NOW).cert_file) != before
    assert Path(first.key_file).stat().st_mode & 0o777 == 0o600


def test_a_request_is_signed_until_the_ca_ends_and_not_after(tmp_path: Path) -> None:
    authority = Authority(tmp_path, now=NOW)
    ca = KeyPair.at(tmp_path, "ca")
    key = signing_requests.make_key()
    asked = signing_requests.read(signing_requests.make_request(key, "a", "b", ("h", "10.0.0.1")))
    usages = ("digital signature", "server auth")
    end = pki.read_authority(ca)[1].not_valid_after_utc
    pem = pki.sign(ca, asked, usages, timedelta(days=99), end - timedelta(days=1))
    issued = x509.load_pem_x509_certificate(pem)
    assert issued.not_valid_after_utc == end
    issued.verify_directly_issued_by(
        x509.load_pem_x509_certificate(Path(authority.ca_file).read_bytes())
    )
    assert signing_requests.hosts_of(pem) == (("h", "10.0.0.1"), False)
    with pytest.raises(SetupError, match=r"the CA .*ca\.crt expired on .*: renew it"):
        pki.sign(ca, asked, usages, timedelta(days=1), end)
    Path(ca.key_file).write_bytes(signing_requests.make_key())
    with pytest.raises(SetupError, match="does not belong to the CA"):
        pki.sign(ca, asked, usages, timedelta(days=1), NOW)


@pytest.mark.parametrize(
    "usages", [("client auth",), ("server auth",), ("digital signature", "client auth")]
)
def test_openssl_believes_a_certificate_whatever_its_usages(
    tmp_path: Path, usages: tuple[str, ...]
) -> None:
    now = datetime.now(UTC)
    authority = Authority(tmp_path, now=now)
    asked = signing_requests.read(
        signing_requests.make_request(signing_requests.make_key(), "a", "b", ())
    )
    signed = tmp_path / "signed.crt"
    signed.write_bytes(pki.sign(KeyPair.at(tmp_path, "ca"), asked, usages, timedelta(days=1), now))
    purpose = "sslserver" if "server auth" in usages else "sslclient"
    told = subprocess.run(
        ["openssl", "verify", "-purpose", purpose, "-CAfile", authority.ca_file, str(signed)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout.strip() == f"{signed}: OK", told.stderr
