"""TLS of the servers, and the renewal of certificates and CAs without a restart.

TLS 1.2 or newer, and only suites with forward secrecy and AEAD (CIS 4.2.12); older or weaker ones
cannot be configured. Client certificates are optional: a client without one may send a token.
Files are compared by content, so that a retargeted link is noticed too. Unusable files (half a
pair, no PEM) are retried and logged once per cause; meanwhile the old ones stay in use.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from orch.component.certificates import ServerEnd, end_of_file
from orch.component.process.daemon import SetupError
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_DEFAULT_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
}
# Always enabled with TLS 1.3; listed so that naming them is no error.
_SUITES_OF_13 = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
# Everybody has it. By default the other side may choose one that takes 130 ms (ffdhe8192), and a
# server, with TLS 1.2, one of its own (DHE): of 10,000 bits it takes 800 ms.
_GROUP = "prime256v1"
_CLIENT_SUITES = "ECDHE+AES:ECDHE+CHACHA20:kRSA+AES"
_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}


def server_context(
    cert_file: str,
    key_file: str,
    *,
    client_ca_file: str | None,
    min_version: str = "",
    cipher_suites: Sequence[str] = (),
) -> ssl.SSLContext:
    """The context of a listener; client certificates are verified when `client_ca_file` is given.

    `min_version` is VersionTLS12 or VersionTLS13, `cipher_suites` are IANA names; empty means the
    defaults. SetupError names the unusable file or name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = ServerEnd
    context.minimum_version = _version(min_version)
    context.set_ciphers(openssl_suites(cipher_suites))
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ecdh_curve(_GROUP)
    context.num_tickets = 0  # nobody resumes sessions; two tickets are 40 % of a handshake's CPU
    load_certificate(context, cert_file, key_file)
    if client_ca_file:
        try:
            context.load_verify_locations(client_ca_file)
        except OSError as error:
            raise SetupError(
                f"cannot use the client CA file {client_ca_file}: {_cause(error)}"
            ) from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context() -> ssl.SSLContext:
    """TLS 1.2 or newer, without a key exchange that takes long at the server's choice."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CLIENT_SUITES)
    context.set_ecdh_curve(_GROUP)
    return context


def load_certificate(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    """Present this certificate from now on; existing connections keep the old one."""
    try:
        context.load_cert_chain(cert_file, key_file, password=refuse_password)
    except (OSError, ValueError) as error:
        raise SetupError(
            f"cannot use the TLS certificate {cert_file} with the key {key_file}: {_cause(error)}"
            f"{_next_step(error, key_file)}"
        ) from error


def _next_step(error: Exception, key_file: str) -> str:
    """Where the key that does not fit is a copy that the unit made, at start and reload."""
    handed_over = os.environ.get("RUNTIME_DIRECTORY", "")
    if getattr(error, "reason", "") != "KEY_VALUES_MISMATCH" or not handed_over:
        return ""
    if not Path(key_file).is_relative_to(handed_over):
        return ""
    return "; it is a copy that the unit made: reload the unit (systemctl reload) if the key is new"


def _version(name: str) -> ssl.TLSVersion:
    version = _VERSIONS.get(name)
    if version is None:
        known = ", ".join(known for known in _VERSIONS if known)
        raise SetupError(f"the TLS version {name!r} is not supported: use one of {known}")
    return version


def openssl_suites(names: Sequence[str]) -> str:
    """OpenSSL's list for IANA names, the defaults for none; SetupError names an unknown suite."""
    if not names:
        return _DEFAULT_SUITES
    unknown = [name for name in names if name not in _SUITES and name not in _SUITES_OF_13]
    if unknown:
        raise SetupError(
            f"the TLS cipher suite {unknown[0]!r} is unknown or not safe: use one of"
            f" {', '.join(sorted({*_SUITES, *_SUITES_OF_13}))}"
        )
    return ":".join(_SUITES[name] for name in names if name in _SUITES) or _DEFAULT_SUITES


def refuse_password() -> str:
    raise ValueError("the key is encrypted: decrypt it first")


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key does not belong to the certificate"
        return f"no usable PEM data ({(error.reason or 'empty').replace('_', ' ').lower()})"
    return getattr(error, "strerror", None) or str(error)


INTERVAL_S = 10.0
_MAX_FILE_BYTES = 4 * 1024 * 1024


class Renewable(Protocol):
    """A listener or client; `name` is what the log calls it."""

    name: str

    def renew(self, context: ssl.SSLContext, *, end_connections: bool) -> None: ...


class TlsFiles:
    """Certificate and CA files, with digests of their contents at construction.

    Construct it before the first context, so that no change in between is missed.
    """

    def __init__(self, files: Sequence[str], client_ca_file: str | None = None) -> None:
        self._files = tuple(files)
        self._ca_files = (client_ca_file,) if client_ca_file else ()
        self.certificate_end: datetime | None = None  # as of the last look; None: unknown
        self.seen = self.look()

    def look(self) -> tuple[bytes, bytes]:
        """Digests of the certificate files and of the CA file."""
        self.certificate_end = end_of_file(self._files[0]) if self._files else None
        return _digest(self._files), _digest(self._ca_files)


class TlsRenewal:
    """`step` checks the files once; `make` builds a context from them.

    A changed client CA also ends the connections that the previous one verified. `words` are what
    the log calls the certificate and the CA.
    """

    def __init__(
        self,
        user: Renewable,
        make: Callable[[], ssl.SSLContext],
        files: TlsFiles,
        *,
        words: tuple[str, str] = ("serving certificate", "client CA"),
    ) -> None:
        self.renewals = 0
        self.certificate_end = files.certificate_end  # of the one in use
        self._user = user
        self._words = words
        self._make = make
        self._files = files
        self._used = files.seen
        self._unusable = OnceLog(log, logging.ERROR)

    async def step(self) -> None:
        """Renew when a file differs from the one in use."""
        seen = await asyncio.to_thread(self._files.look)
        if seen == self._used:
            self._unusable.recovered()
            return
        try:
            context = await asyncio.to_thread(self._make)
        except SetupError as error:
            self._unusable.failed("%s keeps its previous TLS files: %s", self._user.name, error)
            return
        ca_changed = self._used[1] != seen[1]
        self._used = seen
        self.certificate_end = self._files.certificate_end
        self._unusable.recovered()
        self._user.renew(context, end_connections=ca_changed)
        self.renewals += 1
        log.info("%s uses its new %s", self._user.name, self._words[ca_changed])


def _digest(files: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for path in files:
        try:
            with Path(path).open("rb") as file:
                digest.update(file.read(_MAX_FILE_BYTES))
        except OSError as error:
            digest.update(f"{error.errno}".encode())
        digest.update(b"\0")
    return digest.digest()
