"""Certificates in files, with their keys, and the findings about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orch.component.diagnostics.certificate_findings import (
    AS_ROOT,
    Advice,
    CertificateFacts,
    check_certificate,
    read_pair,
)
from tests.conftest import Pki

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_a_key_of_another_certificate_and_a_readable_key_are_seen(pki: Pki) -> None:
    one, other = pki.server(), pki.server()
    Path(other.key_file).chmod(0o644)
    facts = read_pair("serving", one.cert_file, other.key_file)
    assert facts.problem == f"the key {other.key_file} does not match it"
    assert facts.exposed_key == other.key_file


# certificate, key → problem
BAD = [
    (None, b"", "No such file or directory"),
    (b"", b"", "it contains no PEM certificate"),
    (b"good", None, "the key {key}: No such file or directory"),
    (b"good", b"x", "the key {key} contains no usable PEM key"),
]


@pytest.mark.parametrize(("cert", "key", "problem"), BAD)
def test_files_that_cannot_be_used_are_named(
    pki: Pki, tmp_path: Path, cert: bytes | None, key: bytes | None, problem: str
) -> None:
    cert_file, key_file = tmp_path / "c.pem", tmp_path / "k.pem"
    if cert is not None:
        cert_file.write_bytes(Path(pki.server().cert_file).read_bytes() if cert else b"")
    if key is not None:
        key_file.write_bytes(key)
    facts = read_pair("serving", str(cert_file), str(key_file))
    assert facts.problem == problem.format(key=key_file)
    assert not facts.usable(datetime.now(UTC))


FINDINGS = [
    (CertificateFacts("serving", "/c"), ["note"]),
    (CertificateFacts("serving", "/c", problem="no PEM"), ["fail"]),
    (CertificateFacts("serving", "/c", NOW), ["fail"]),
    (CertificateFacts("serving", "/c", NOW + timedelta(days=29)), ["warn"]),
    (CertificateFacts("serving", "/c", NOW + timedelta(days=30)), ["ok"]),
    (CertificateFacts("serving", "/c", NOW + timedelta(days=99), "", "/k"), ["ok", "warn"]),
]


@pytest.mark.parametrize(("facts", "verdicts"), FINDINGS)
def test_facts_become_findings(facts: CertificateFacts, verdicts: list[str]) -> None:
    assert [finding.verdict for finding in check_certificate(facts, NOW)] == verdicts


def test_a_file_that_may_not_be_read_is_a_matter_of_rights_and_not_of_its_content() -> None:
    advice = Advice(correct="put another there")
    for closed, step in ((True, AS_ROOT), (False, "put another there")):
        facts = CertificateFacts("serving", "/c", problem="Permission denied", closed=closed)
        assert [finding.advice for finding in check_certificate(facts, NOW, advice)] == [step]
