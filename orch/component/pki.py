"""Issues keys and certificates: a local cluster's CA, or a server's self-signed certificate.

Existing files are reused while they are valid for another day, so that a second start continues
with the same identities. Keys are EC P-256, mode 0600. Import this module only where it is needed:
cryptography costs 16 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orch.component.process.atomic_file import replace_file
from orch.component.process.daemon import SetupError
from orch.component.signing_requests import PublicKey, SigningRequest, general_name

AuthorityKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey

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

    def write(self, key: ec.EllipticCurvePrivateKey, *chain: x509.Certificate) -> None:
        replace_file(self.key_file, _pem(key), mode=0o600)
        pem = b"".join(cert.public_bytes(serialization.Encoding.PEM) for cert in chain)
        replace_file(self.cert_file, pem, mode=0o644)

    def key(self) -> ec.EllipticCurvePrivateKey | None:
        """The key; None without one that can be used."""
        try:
            key = serialization.load_pem_private_key(Path(self.key_file).read_bytes(), None)
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return key if isinstance(key, ec.EllipticCurvePrivateKey) else None

    def read(
        self, now: datetime, renew_before: timedelta = _RENEW_BEFORE
    ) -> x509.Certificate | None:
        """The certificate; None unless it is there with its key and lasts for long enough."""
        try:
            cert = x509.load_pem_x509_certificate(Path(self.cert_file).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        lasts = cert.not_valid_after_utc - now >= renew_before
        return cert if lasts and Path(self.key_file).exists() else None


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a certificate: its user, groups, and the hosts it may serve as."""

    file_name: str
    common_name: str
    organizations: Sequence[str] = ()
    hosts: Sequence[str] = ()  # DNS names and addresses; a server certificate when not empty
    with_ca: bool = False  # its file holds the CA as well, so that a server sends it


class Authority:
    """A CA in a directory; `issue` creates or reuses a certificate that it signed.

    `renew_before` its end a certificate is issued anew, for the same key. With `keep`, a CA that is
    there is never replaced: SetupError when it cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        *,
        now: datetime,
        name: str = "ca",
        common_name: str = "orch-up",
        renew_before: timedelta = _RENEW_BEFORE,
        keep: bool = False,
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._now = now
        self._common_name = common_name
        self._renew_before = renew_before
        self._pair = KeyPair.at(directory, name)
        made = Path(self._pair.cert_file).exists()
        unfinished = None if made else self._pair.key()  # its certificate was still to be written
        if keep and (made or (unfinished is None and Path(self._pair.key_file).exists())):
            read_authority(self._pair)
        self.ca_file = self._pair.cert_file
        loaded = self._load_ca()
        if loaded is None and keep and made:
            raise SetupError(
                f"the CA {self.ca_file} has ended, or ends within a day: move it and its key away"
                " to have another made, which every machine then joins anew"
            )
        self._key, self._cert = loaded or self._create_ca(unfinished)

    def issue(self, subject: Subject) -> KeyPair:
        """The subject's key pair; replaced when missing, foreign, expiring or of other names."""
        pair = KeyPair.at(self._directory, subject.file_name)
        if not self._reusable(pair.read(self._now, self._renew_before), subject):
            key = pair.key() or ec.generate_private_key(ec.SECP256R1())
            chain = (self._cert,) if subject.with_ca else ()
            pair.write(key, self._sign(subject, key.public_key()), *chain)
        return pair

    def renew(self, name: str) -> bool:
        """Issue `<name>.crt` anew for another year, if this CA signed it and it ends soon.

        Returns whether it did; what others signed is left alone.
        """
        path = Path(KeyPair.at(self._directory, name).cert_file)
        try:
            old, *chain = x509.load_pem_x509_certificates(path.read_bytes())
            old.verify_directly_issued_by(self._cert)
        except (FileNotFoundError, ValueError, TypeError, InvalidSignature):
            return False
        if old.not_valid_after_utc - self._now >= self._renew_before:
            return False
        builder = (
            x509.CertificateBuilder()
            .subject_name(old.subject)
            .issuer_name(self._cert.subject)
            .public_key(old.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _BACKDATE)
            .not_valid_after(self._now + _LEAF_LIFETIME)
        )
        for extension in old.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        certificates = (builder.sign(self._key, hashes.SHA256()), *chain)
        pem = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)
        replace_file(path, pem, mode=0o644)
        return True

    def _load_ca(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None:
        cert = self._pair.read(self._now)
        if cert is None:
            return None
        key = self._pair.key()
        return (key, cert) if key is not None else None

    def _create_ca(
        self, key: ec.EllipticCurvePrivateKey | None
    ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key = key or ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._common_name)])
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


_BIT = {"digital signature": "digital_signature", "key encipherment": "key_encipherment"}
_PURPOSE = {
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
}
USAGES = (*_BIT, *_PURPOSE)  # that `sign` knows


def sign(
    ca: KeyPair, request: SigningRequest, usages: Sequence[str], lifetime: timedelta, now: datetime
) -> bytes:
    """A certificate for what is requested, as PEM; it ends with its CA at the latest.

    `usages` are of USAGES. SetupError when the CA cannot be used. Blocking I/O.
    """
    key, authority = read_authority(ca)
    if authority.not_valid_after_utc <= now:
        ended = authority.not_valid_after_utc
        raise SetupError(f"the CA {ca.cert_file} expired on {ended:%Y-%m-%d}: renew it")
    end = min(now + lifetime, authority.not_valid_after_utc)
    bits = {_BIT[usage]: True for usage in usages if usage in _BIT}
    builder = (
        _builder(request.subject, request.public_key, end - now, now)
        .issuer_name(authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
    )
    if bits:  # one without any is no certificate to OpenSSL
        builder = builder.add_extension(_key_usage(**bits), critical=True)
    purposes = [_PURPOSE[usage] for usage in usages if usage in _PURPOSE]
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    hosts = (*request.dns_names, *request.addresses)
    if hosts:
        builder = builder.add_extension(_alternative_names(hosts), critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


def read_authority(ca: KeyPair) -> tuple[AuthorityKey, x509.Certificate]:
    """The key and certificate of a CA; SetupError names the file that cannot be used."""
    try:
        path = ca.cert_file
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
        path = ca.key_file
        key = serialization.load_pem_private_key(Path(path).read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise SetupError(f"cannot use {path} to sign certificates: {error}") from error
    if not isinstance(key, AuthorityKey):
        raise SetupError(f"{ca.key_file} has no EC, Ed25519 or RSA key to sign certificates with")
    if key.public_key() != certificate.public_key():
        raise SetupError(f"the key {ca.key_file} does not belong to the CA {ca.cert_file}")
    return key, certificate


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
    name: x509.Name, public_key: PublicKey, lifetime: timedelta, now: datetime
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


def hosts_in(pair: KeyPair) -> tuple[str, ...]:
    """The hosts of a server's certificate; () without one."""
    try:
        cert = x509.load_pem_x509_certificate(Path(pair.cert_file).read_bytes())
    except (FileNotFoundError, ValueError):
        return ()
    return tuple(str(name.value) for name in _names_in(cert) or ())


def _name(subject: Subject) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in subject.organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name)])


def _alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([general_name(host) for host in dict.fromkeys(hosts)])


def _names_in(cert: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _usage(*, ca: bool) -> x509.KeyUsage:
    return _key_usage(digital_signature=True, key_cert_sign=ca, crl_sign=ca)


def _key_usage(
    *,
    digital_signature: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
