"""The facts in a certificate, and a server's words about one that it refuses.

When a handshake fails, asyncio closes the socket together with what waits to be sent: the alert
that tells the client why. `ServerEnd` lets that be sent first. cryptography would take 16 MiB.
"""

from __future__ import annotations

import contextlib
import hashlib
import ssl
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_MAX_FILE_BYTES = 4 * 1024 * 1024
_SUBJECT_LENGTH = 200  # that is shown
_DECODED_LENGTH = 16 * 1024  # as PEM: a client can send 100 kB of names, which take 50 ms
_REASONS = {  # of OpenSSL's X509_V_ERR_*
    2: "unknown_authority", 9: "not_yet_valid", 10: "expired", 18: "unknown_authority",
    19: "unknown_authority", 20: "unknown_authority", 21: "unknown_authority",
}  # fmt: skip
REASONS = ("expired", "not_yet_valid", "other", "unknown_authority")
_NEXT = {  # what to do
    "expired": "; renew it (a node: 'nodeagent join')",
    "not_yet_valid": "; compare the clocks of both machines",
    "unknown_authority": "; it is of no authority in the client CA file",
}
_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"}

refused: Counter[str] = Counter(
    dict.fromkeys(REASONS, 0)
)  # client certificates, by reason, since the start


@dataclass(slots=True)
class Handshake:
    """One attempt; `refusal` says which client certificate was refused and why."""

    refusal: str = ""


handshake: ContextVar[Handshake | None] = ContextVar("handshake", default=None)


class ServerEnd(ssl.SSLObject):
    """For `SSLContext.sslobject_class`: a client whose certificate is refused gets the alert.

    The refusal is raised only when more comes from the client, or its end, or the deadline: until
    then asyncio takes it that data are missing, and sends the alert meanwhile.
    """

    _refusal: ssl.SSLCertVerificationError | None = None

    def do_handshake(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as error:
            self._refusal = error
            reason = _REASONS.get(error.verify_code, "other")
            refused[reason] += 1
            attempt = handshake.get()
            if attempt is not None:
                attempt.refusal = f"{self._shown()}: {error.verify_message}{_NEXT.get(reason, '')}"
            raise ssl.SSLWantReadError from error

    def _shown(self) -> str:
        """The certificate that was refused; the public methods want a handshake that worked."""
        inner: Any = self._sslobj  # type: ignore[attr-defined]
        chain = inner.get_verified_chain() or ()
        for certificate in chain:
            if len(certificate.public_bytes()) > _DECODED_LENGTH:
                return "too large to be shown"
            info = certificate.get_info()
            return f"{_name(info['subject'])}, valid until {info['notAfter']}"
        return "unknown"


def _name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    pairs = [pair for rdn in subject for pair in rdn]
    text = ",".join(f"{_SHORT.get(key, key)}={value}" for key, value in pairs)
    return text if len(text) <= _SUBJECT_LENGTH else f"{text[:_SUBJECT_LENGTH]}…"


def expiry(pem: bytes) -> datetime:
    """When the first certificate expires; ValueError when there is none."""
    return validity(pem)[1]


def validity(pem: bytes) -> tuple[datetime, datetime]:
    """From when until when the first certificate is valid; ValueError when there is none."""
    with _reading():
        start, end = (_time(tag, text.decode("ascii")) for tag, text in _values(_field(pem, 3)))
        return start, end


def public_key_hash(pem: bytes) -> str:
    """`sha256:…` of the first certificate's public key (SPKI); ValueError when there is none."""
    with _reading():
        content = _field(pem, 5)
    size = len(content)
    octets = size.to_bytes((size.bit_length() + 7) // 8)
    length = octets if size < 0x80 else bytes((0x80 | len(octets),)) + octets
    digest = hashlib.sha256(bytes((_SEQUENCE,)) + length + content)
    return f"sha256:{digest.hexdigest()}"


def _field(pem: bytes, index: int) -> bytes:
    """A part of the first certificate: serial, algorithm, issuer, validity, subject, public key."""
    _, found, rest = pem.partition(b"-----BEGIN CERTIFICATE-----")
    body, ended, _ = rest.partition(b"-----END CERTIFICATE-----")
    if not (found and ended):
        raise ValueError("there is no PEM certificate")
    whole = f"{ssl.PEM_HEADER}{body.decode('ascii')}{ssl.PEM_FOOTER}"
    # Certificate, its first part; there: version (if any), serial, …
    signed = next(_values(next(_values(ssl.PEM_cert_to_DER_cert(whole)))[1]))[1]
    return [value for tag, value in _values(signed) if tag != _VERSION][index]


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (StopIteration, IndexError) as error:
        raise ValueError("the certificate is cut off") from error


def end_of_file(path: str) -> datetime | None:
    """`expiry` of a file; None when it cannot be told. Blocking I/O."""
    try:
        with Path(path).open("rb") as file:
            return expiry(file.read(_MAX_FILE_BYTES))
    except (OSError, ValueError):
        return None


_VERSION, _UTC_TIME, _SEQUENCE = 0xA0, 0x17, 0x30


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and content of each value, one after the other."""
    position = 0
    while position < len(der):
        tag, length = der[position], der[position + 1]
        position += 2
        if length & 0x80:
            octets = length & 0x7F
            length = int.from_bytes(der[position : position + octets])
            position += octets
        if position + length > len(der):
            raise IndexError("a value is longer than the data")
        yield tag, der[position : position + length]
        position += length


def _time(tag: int, text: str) -> datetime:
    if tag == _UTC_TIME:  # two digits of the year: RFC 5280 puts the turn at 1950
        text = f"{'19' if int(text[:2]) >= 50 else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
