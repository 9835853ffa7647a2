"""Whom the certificates of a local cluster name, and as whom their holders are let in."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from orch.up.layout import Certificates, issue_certificates

NOW = datetime(2026, 1, 31, tzinfo=UTC)
SUBJECTS = {
    "apiserver": ("orch-apiserver", []),
    "proxy": ("system:apiserver", []),
    "nodeagent": ("n1", []),
    "node": ("system:node:n1", ["system:nodes"]),
    "controller": ("system:controller-manager", []),
    "controller_serving": ("orch-controller-manager", []),
    "admin": ("admin", ["system:masters"]),
    "monitoring": ("prometheus", ["system:monitoring"]),
    "service_account": ("service-account", []),
}
HOSTS = {
    "controller_serving": ["localhost", "127.0.0.1", "::1"],
    "apiserver": ["localhost", "127.0.0.1", "::1"],
    "nodeagent": ["n1", "localhost", "127.0.0.1", "::1"],
}


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return issue_certificates(tmp_path, "n1", now=NOW)


def loaded(certificates: Certificates, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(getattr(certificates, name).cert_file).read_bytes())


def test_every_certificate_has_a_case_here() -> None:
    assert set(SUBJECTS) == set(Certificates.__slots__) - {"ca_file"}


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_certificate_names_its_user_and_groups(certificates: Certificates, name: str) -> None:
    subject = loaded(certificates, name).subject
    (user,) = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = [one.value for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert (user.value, groups) == SUBJECTS[name]


@pytest.mark.parametrize("name", SUBJECTS)
def test_only_servers_have_host_names(certificates: Certificates, name: str) -> None:
    extensions = loaded(certificates, name).extensions
    try:
        shown = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        hosts = []
    else:
        hosts = [str(one.value) for one in shown]
    assert hosts == HOSTS.get(name, [])


@pytest.mark.parametrize("name", SUBJECTS)
def test_key_and_certificate_fit_and_the_key_is_private(
    certificates: Certificates, name: str
) -> None:
    pair = getattr(certificates, name)
    ssl.create_default_context(cafile=certificates.ca_file).load_cert_chain(
        pair.cert_file, pair.key_file
    )
    assert Path(pair.key_file).stat().st_mode & 0o777 == 0o600


def test_a_second_start_continues_with_the_same_identities(
    certificates: Certificates, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert issue_certificates(tmp_path, "n1", now=NOW) == certificates
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_another_node_name_gives_only_the_node_new_certificates(
    certificates: Certificates, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    issue_certificates(tmp_path, "n2", now=NOW)
    changed = {path.stem for path in tmp_path.iterdir() if before[path.name] != path.read_bytes()}
    assert changed == {"node", "nodeagent"}


def test_another_address_gives_only_the_api_server_a_new_certificate(
    certificates: Certificates, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    issue_certificates(tmp_path, "n1", now=NOW, host_address="192.0.2.1")
    changed = {path.stem for path in tmp_path.iterdir() if before[path.name] != path.read_bytes()}
    assert changed == {"apiserver"}
