"""A server of TLS that agrees on nothing but a group of its own, in which a key exchange takes a
client 0.8 s.
"""

from __future__ import annotations

import base64
import ssl
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from orch.component.process import clock

BITS = 10_000  # of more OpenSSL wants nothing
HOST = "localhost"


def server(directory: Path) -> tuple[ssl.SSLContext, str]:
    """Its context, and the file of its certificate for `HOST`, which it signed itself."""
    group, file = directory / "group.pem", directory / "slow.pem"
    group.write_text(_group())
    file.write_bytes(_certificate())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("DHE+AESGCM:@SECLEVEL=0")
    context.load_dh_params(str(group))
    return context, str(file)


def refuse(client: ssl.SSLContext, context: ssl.SSLContext) -> bool:
    """Whether the two do not agree, in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=HOST)
    other = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(2):
        for end in (one, other):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return True
    return False


def _group() -> str:
    """Of PKCS #3."""
    parts = _sized(0x02, b"\0" + b"\xff" * (BITS // 8)) + _sized(0x02, b"\2")
    encoded = base64.encodebytes(_sized(0x30, parts)).decode()
    return f"-----BEGIN DH PARAMETERS-----\n{encoded}-----END DH PARAMETERS-----\n"


def _sized(kind: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82, *size.to_bytes(2, "big")])
    return bytes([kind]) + length + content


def _certificate() -> bytes:
    """With its key, which is of RSA: it signs the group."""
    key, now = rsa.generate_private_key(65537, 2048), clock.utc_now()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
