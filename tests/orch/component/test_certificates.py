"""The end of a certificate's time, read as cryptography reads it."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from orch.component import certificates
from orch.component.certificates import expiry
from orch.component.tls import server_context
from tests.conftest import Pki


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9999])
def test_the_end_is_read_in_both_notations_of_time(year: int) -> None:
    end = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    start = datetime(1990, 1, 1, tzinfo=UTC)
    leaf = trustme.CA().issue_cert("localhost", not_before=start, not_after=end)
    pem = leaf.cert_chain_pems[0].bytes()
    assert expiry(pem) == end == x509.load_pem_x509_certificate(pem).not_valid_after_utc
    assert expiry(b"a comment\n" + pem + trustme.CA().cert_pem.bytes()) == end


def test_what_is_no_certificate_is_a_value_error(pki: Pki) -> None:
    whole = Path(pki.ca_file).read_bytes()
    head, body, tail = b"-----BEGIN CERTIFICATE-----\n", b"MIIB", b"\n-----END CERTIFICATE-----\n"
    for pem in (
        b"",
        b"x",
        head,
        whole[:-30],
        head + tail,
        head + b"\xff" + tail,
        head + b"=" + tail,
    ):
        with pytest.raises(ValueError):
            expiry(pem)
    lines = whole.split(b"\n")
    for length in range(4, 240, 4):
        body = b"".join(lines[1:])[:length]
        with pytest.raises(ValueError):
            expiry(head + body + tail)


@pytest.mark.parametrize(("names", "shown"), [(1, "O=trustme"), (1000, "too large to be shown")])
def test_of_a_refused_certificate_with_endless_names_none_is_read(
    pki: Pki, tmp_path: Path, names: int, shown: str
) -> None:
    """A stranger's 80 kB of them took 47 ms of the event loop with each handshake."""
    (tmp_path / "other").mkdir()
    foreign = Pki(tmp_path / "other").server(*(f"{number}.example" for number in range(names)))
    pair = pki.server()
    ours = server_context(pair.cert_file, pair.key_file, client_ca_file=pki.ca_file)
    theirs = ssl.create_default_context(cafile=pki.ca_file)
    theirs.load_cert_chain(foreign.cert_file, foreign.key_file)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = theirs.wrap_bio(down, up, server_hostname="localhost"), ours.wrap_bio(up, down, True)
    attempt = certificates.Handshake()
    certificates.handshake.set(attempt)
    for end in ends * 4:
        with contextlib.suppress(ssl.SSLError):
            end.do_handshake()
    assert attempt.refusal.startswith(shown)
    assert "unable to get local issuer" in attempt.refusal
