"""Reads requests for certificates (PKCS #10), and makes them; pure.

Whoever may ask may send anything, so size and kind of the key are judged before the signature is:
checking that takes less than a millisecond for every key that is accepted.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MAX_BYTES = 16 * 1024  # of PEM; a usual request has 500 to 1,700
MAX_NAMES = 100  # in a subject, and of hosts
_RSA_BITS = (2048, 4096)
_RSA_EXPONENT_BITS = 33  # 65537 has 17; a long one makes checking slow
_BEGIN, _END = b"-----BEGIN CERTIFICATE REQUEST-----", b"-----END CERTIFICATE REQUEST-----"
_BAD = (
    ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.InvalidVersion,
    x509.UnsupportedGeneralNameType, InvalidSignature,
)  # fmt: skip
_KEYS = (ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey, rsa.RSAPublicKey)
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_PURPOSES = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
_SHOWN = 200  # characters of what OpenSSL says

PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """What is asked for. `others` names what else is in it, which no certificate would get."""

    common_name: str
    organizations: tuple[str, ...]
    dns_names: tuple[str, ...]
    addresses: tuple[str, ...]
    others: tuple[str, ...]
    subject: x509.Name
    public_key: PublicKey


def read(pem: bytes) -> SigningRequest:
    """ValueError says what is wrong with it: its form, its key or its signature. Text may come
    before it, as in the files that OpenSSL writes.
    """
    if len(pem) > MAX_BYTES:
        raise ValueError(f"it has {len(pem)} bytes, may have at most {MAX_BYTES}")
    before, begin, rest = pem.strip().partition(_BEGIN)
    text = begin + rest
    glued = before and not before.endswith(b"\n")
    if glued or not text.endswith(_END) or b"-----BEGIN" in before + rest:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_pem_x509_csr(text)
        key = _checked_key(request)
        if not request.is_signature_valid:
            raise ValueError("its signature does not fit its key")
        return _read(request, key)
    except _BAD as error:
        raise ValueError(str(error)[:_SHOWN] or type(error).__name__) from None


def _checked_key(request: x509.CertificateSigningRequest) -> PublicKey:
    key = request.public_key()
    if not isinstance(key, _KEYS):
        raise ValueError("its key is of a kind that is not accepted: use EC, Ed25519 or RSA")
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name not in _CURVES:
        raise ValueError(f"the curve {key.curve.name} is not accepted: use {', '.join(_CURVES)}")
    if isinstance(key, rsa.RSAPublicKey):
        least, most = _RSA_BITS
        if not least <= key.key_size <= most:
            raise ValueError(f"an RSA key has {least} to {most} bits, this one {key.key_size}")
        if key.public_numbers().e.bit_length() > _RSA_EXPONENT_BITS:
            raise ValueError("the exponent of its RSA key is too large: use 65537")
    return key


def _read(request: x509.CertificateSigningRequest, key: PublicKey) -> SigningRequest:
    subject = list(request.subject)
    commons = [_text(a) for a in subject if a.oid == NameOID.COMMON_NAME]
    organizations = [_text(a) for a in subject if a.oid == NameOID.ORGANIZATION_NAME]
    others = ["more than a common name and organizations in its subject"] * (
        len(commons) > 1 or len(commons) + len(organizations) < len(subject)
    )
    dns: list[str] = []
    addresses: list[str] = []
    for extension in request.extensions:
        if _is_usual(extension.value):
            continue
        if not isinstance(extension.value, x509.SubjectAlternativeName):
            others.append(f"the extension {extension.oid.dotted_string}")
            continue
        for name in extension.value:
            match name:
                case x509.DNSName():
                    dns.append(name.value)
                case x509.IPAddress():
                    addresses.append(str(name.value))
                case _:
                    others.append(f"a {type(name).__name__} among its names")
    if max(len(subject), len(dns) + len(addresses), len(others)) > MAX_NAMES:
        raise ValueError(f"it has more than {MAX_NAMES} names")
    return SigningRequest(
        commons[0] if commons else "",
        tuple(organizations),
        tuple(dns),
        tuple(addresses),
        tuple(others),
        request.subject,
        key,
    )


def _is_usual(value: x509.ExtensionType) -> bool:
    """Whether every request by OpenSSL may say it. It counts for nothing: the usages of a
    certificate are those that come beside the request.
    """
    match value:
        case x509.BasicConstraints():
            return not value.ca
        case x509.ExtendedKeyUsage():
            return set(value) <= _PURPOSES
        case x509.KeyUsage():
            return not (value.key_cert_sign or value.crl_sign)
    return False


def _text(attribute: x509.NameAttribute[str | bytes]) -> str:
    if not isinstance(attribute.value, str):
        raise ValueError("its subject has a value that is no text")
    return attribute.value


def make_key() -> bytes:
    """A new private key (EC P-256) as PEM."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_request(
    key_pem: bytes, common_name: str, organization: str, hosts: Sequence[str] = ()
) -> bytes:
    """A request for that subject as PEM, signed with the key; ValueError for an unusable key."""
    key = serialization.load_pem_private_key(key_pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("it is no key of an elliptic curve")
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if hosts:
        names = x509.SubjectAlternativeName([general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def fingerprint(key_pem: bytes) -> str:
    """A name of the key that tells nothing of it; ValueError for an unusable key."""
    public = serialization.load_pem_private_key(key_pem, password=None).public_key()
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()[:32]


def belongs(certificate_pem: bytes, key_pem: bytes) -> bool:
    """Whether the first certificate is of that key; ValueError for what is no certificate."""
    key = serialization.load_pem_private_key(key_pem, password=None)
    return x509.load_pem_x509_certificate(certificate_pem).public_key() == key.public_key()


def hosts_of(certificate_pem: bytes) -> tuple[tuple[str, ...], bool]:
    """The names and addresses in the first certificate, and whether it is self-signed."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = tuple(str(name.value) for name in names)
    except x509.ExtensionNotFound:
        hosts = ()
    return hosts, certificate.issuer == certificate.subject


def general_name(host: str) -> x509.GeneralName:
    """A DNS name or an address, as certificates name it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def is_address(host: str) -> bool:
    """Whether it is an IP address."""
    return isinstance(general_name(host), x509.IPAddress)
