"""Issues keys and certificates: a local cluster's CA, or a server's self-signed certificate.

Existing files are reused while they are valid for another day, so that a second start continues
with the same identities. Keys are EC P-256, mode 0600. Import this module only where it is needed:
cryptography costs 16 MiB.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orch.component.process.atomic_file import replace_file

_CA_LIFETIME = timedelta(days=3650)
_LEAF_LIFETIME = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=1)
_BACKDATE = timedelta(minutes=5)  # tolerates clocks that are slightly behind


@dataclass(frozen=True, slots=True)
class KeyPair:
    cert_file: str
    key_file: str

    @classmethod
    def at(cls, directory: Path, name: str) -> KeyPair:
        return cls(str(directory / f"{name}.crt"), str(directory / f"{name}.key"))

    def write(self, key: ec.EllipticCurvePrivateKey, cert: x509.Certificate) -> None:
        replace_file(self.key_file, _pem(key), mode=0o600)
        replace_file(self.cert_file, cert.public_bytes(serialization.Encoding.PEM), mode=0o644)

    def read(self, now: datetime) -> x509.Certificate | None:
        """The certificate; None unless it is there with its key and valid for another day."""
        try:
            cert = x509.load_pem_x509_certificate(Path(self.cert_file).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        lasts = cert.not_valid_after_utc - now >= _RENEW_BEFORE
        return cert if lasts and Path(self.key_file).exists() else None


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a certificate: its user, groups, and the hosts it may serve as."""

    file_name: str
    common_name: str
    organizations: Sequence[str] = ()
    hosts: Sequence[str] = ()  # DNS names and addresses; a server certificate when not empty


class Authority:
    """A CA in a directory; `issue` creates or reuses a certificate that it signed."""

    def __init__(self, directory: Path, *, now: datetime) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._now = now
        self._pair = KeyPair.at(directory, "ca")
        self.ca_file = self._pair.cert_file
        self._key, self._cert = self._load_ca() or self._create_ca()

    def issue(self, subject: Subject) -> KeyPair:
        """The subject's key pair; replaced when missing, foreign, expiring or of other names."""
        pair = KeyPair.at(self._directory, subject.file_name)
        if not self._reusable(pair.read(self._now), subject):
            key = ec.generate_private_key(ec.SECP256R1())
            pair.write(key, self._sign(subject, key.public_key()))
        return pair

    def _load_ca(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None:
        cert = self._pair.read(self._now)
        if cert is None:
            return None
        try:
            key_pem = Path(self._pair.key_file).read_bytes()
            key = serialization.load_pem_private_key(key_pem, password=None)
        except ValueError:
            return None
        return (key, cert) if isinstance(key, ec.EllipticCurvePrivateKey) else None

    def _create_ca(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "orch-up")])
        cert = (
            _builder(name, key.public_key(), _CA_LIFETIME, self._now)
            .issuer_name(name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        self._pair.write(key, cert)
        return key, cert

    def _sign(self, subject: Subject, public_key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if subject.hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(_name(subject), public_key, _LEAF_LIFETIME, self._now)
            .issuer_name(self._cert.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if subject.hosts:
            builder = builder.add_extension(_alternative_names(subject.hosts), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _reusable(self, cert: x509.Certificate | None, subject: Subject) -> bool:
        if cert is None or cert.subject != _name(subject):
            return False
        if subject.hosts and _alternative_names(subject.hosts) != _names_in(cert):
            return False
        try:
            cert.verify_directly_issued_by(self._cert)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def self_signed(directory: Path, name: str, hosts: Sequence[str], *, now: datetime) -> KeyPair:
    """A self-signed server certificate `<name>.crt` for these hosts.

    For a server without a configured certificate: clients must be told to trust this very file.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    pair, names = KeyPair.at(directory, name), _alternative_names(hosts)
    present = pair.read(now)
    if present and _names_in(present) == names:
        return pair
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    cert = (
        _builder(subject, key.public_key(), _LEAF_LIFETIME, now)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pair.write(key, cert)
    return pair


def _builder(
    name: x509.Name, public_key: ec.EllipticCurvePublicKey, lifetime: timedelta, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _name(subject: Subject) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in subject.organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name)])


def _alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _names_in(cert: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
