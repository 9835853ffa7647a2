"""Finds a cluster's authority by the hash of its key, before anything secret is sent.

The server shows its chain of certificates over a connection that trusts nobody; the one with that
hash is then all that is trusted. Blocking I/O.
"""

from __future__ import annotations

import hmac
import re
import socket
import ssl
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from orch.component.certificates import public_key_hash
from orch.component.process.daemon import SetupError
from orch.wire.names import APISERVER_PORT

TIMEOUT_S = 10.0
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_ENDED, _EARLY, _OTHER_NAME = 10, 9, (62, 64)  # of OpenSSL's X509_V_ERR_*
_ANEW = "'orchctl token create --print-join-command' shows the right command"


def address_of(server: str) -> tuple[str, int]:
    """Host and port of `https://…`; SetupError."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, parts.port or APISERVER_PORT
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme != "https" or parts.path.strip("/") or parts.username:
        raise SetupError(f"{server!r} is no address of an API server: use https://HOST:6443")
    return host, port


def find_authority(server: str, wanted_hash: str, now: datetime) -> bytes:
    """The certificate of the authority with this hash as PEM; SetupError names what is wrong."""
    if not _HASH.fullmatch(wanted_hash):
        raise SetupError(f"--ca-hash {wanted_hash!r} is not sha256: and 64 hexadecimal digits")
    host, port = address_of(server)
    try:
        shown = presented(host, port)
    except OSError as error:
        raise SetupError(_unreachable(server, error)) from error
    for pem in shown:
        if hmac.compare_digest(public_key_hash(pem), wanted_hash):
            require_trust(server, pem, now)
            return pem
    found = public_key_hash(shown[-1]) if shown else "nothing"
    raise SetupError(
        f"{server} does not belong to the authority of --ca-hash: it shows {found}. Either the hash"
        f" is of another cluster ({_ANEW}), or another server answers; or its --tls-cert-file lacks"
        " the authority's certificate, which --ca-file can name instead"
    )


def require_trust(server: str, authority: bytes, now: datetime) -> None:
    """SetupError unless the server shows a certificate of this authority, for this host, valid."""
    host, port = address_of(server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise SetupError(f"the authority's certificate cannot be used: {error}") from error
    try:
        with _connected(host, port) as raw, context.wrap_socket(raw, server_hostname=host):
            return
    except ssl.SSLCertVerificationError as error:
        raise SetupError(_explained(server, host, error, now)) from error
    except OSError as error:
        raise SetupError(_unreachable(server, error)) from error


def presented(host: str, port: int) -> list[bytes]:
    """The certificates that a server sends as PEM, its own first. Nothing is verified; OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with _connected(host, port) as raw, context.wrap_socket(raw, server_hostname=host) as tls:
        inner: Any = tls._sslobj  # type: ignore[attr-defined]  # public from Python 3.13 on
        return [one.public_bytes().encode() for one in inner.get_unverified_chain() or ()]


def _connected(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), timeout=TIMEOUT_S)


def _unreachable(server: str, error: OSError) -> str:
    why = getattr(error, "reason", "") or error.strerror or str(error) or type(error).__name__
    return (
        f"cannot reach {server}: {why}. Check the address, that orch-apiserver runs, and that no"
        " firewall is between"
    )


def _explained(server: str, host: str, error: ssl.SSLCertVerificationError, now: datetime) -> str:
    clock = f"by the clock of this machine, {now:%Y-%m-%d %H:%M}Z"
    match error.verify_code:
        case code if code == _ENDED:
            why = f"has expired {clock}: set the clock, or renew it with 'orch-apiserver init'"
        case code if code == _EARLY:
            why = f"is not valid yet {clock}: set the clock (timedatectl)"
        case code if code in _OTHER_NAME:
            why = f"does not name {host}: 'orch-apiserver init --host {host}' makes one that does"
        case _:
            why = f"is not to be trusted: {error.verify_message}"
    return f"the certificate of {server} {why}"
