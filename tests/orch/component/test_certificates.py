"""The end of a certificate's time, read as cryptography reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from orch.component.certificates import expiry
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
