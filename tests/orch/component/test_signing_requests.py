"""Requests for certificates that are read or refused: form, size, keys, names."""

from __future__ import annotations

import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orch.component import signing_requests
from orch.component.signing_requests import MAX_BYTES, MAX_NAMES

KEY = signing_requests.make_key()
GOOD = signing_requests.make_request(KEY, "system:node:n1", "system:nodes", ("n1", "10.0.0.1"))
NAMED = [x509.NameAttribute(NameOID.COMMON_NAME, "n")]


def request(
    key: object = None,
    subject: list[x509.NameAttribute[str]] | None = None,
    *extensions: x509.ExtensionType,
) -> bytes:
    signer = key or ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name(NAMED if subject is None else subject)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    digest = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    made = builder.sign(signer, digest)  # type: ignore[arg-type]
    return made.public_bytes(serialization.Encoding.PEM)


def usage(**bits: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**(dict.fromkeys(every, False) | bits))


def forged() -> bytes:
    """The signature of another request."""
    lines = request().decode().splitlines()
    return "\n".join([*lines[:-2], "A" * (len(lines[-2]) - 2) + "==", lines[-1]]).encode()


def test_a_request_says_what_is_asked_for() -> None:
    read = signing_requests.read(GOOD)
    assert read.common_name == "system:node:n1"
    assert read.organizations == ("system:nodes",)
    assert (read.dns_names, read.addresses, read.others) == (("n1",), ("10.0.0.1",), ())


def test_text_may_come_before_a_request() -> None:
    described = b"# of a test\nCertificate Request:\n    Data:\n" + GOOD
    assert signing_requests.read(described) == signing_requests.read(GOOD)


@pytest.mark.parametrize(
    "key",
    [ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP521R1()),
     rsa.generate_private_key(65537, 2048)],
    ids=["ed25519", "p521", "rsa"],
)  # fmt: skip
def test_keys_of_today_are_accepted(key: object) -> None:
    assert signing_requests.read(request(key)).common_name == "n"


@pytest.mark.parametrize(
    ("pem", "why"),
    [
        (b"", "PEM block type must be"),
        (b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "PEM block type"),
        (GOOD + GOOD, "PEM block type"),
        (b"# one line " + GOOD, "PEM block type"),
        (b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n" + GOOD, "PEM block"),
        (GOOD.replace(b"\n", b"\n!!", 2), ""),
        (GOOD[:200] + GOOD[-40:], ""),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----", ""),
        (b" " * (MAX_BYTES + 1), "may have at most"),
        (forged(), ""),
        (request(dsa.generate_private_key(1024)), "kind that is not accepted"),
        (request(rsa.generate_private_key(65537, 1024)), "2048 to 4096 bits"),
        (request(ec.generate_private_key(ec.SECP256K1())), "curve secp256k1 is not accepted"),
        (request(ec.generate_private_key(ec.SECP192R1())), "not accepted"),
        (request(None, NAMED, x509.SubjectAlternativeName(
            [x509.DNSName(f"h{i}") for i in range(MAX_NAMES + 1)])), "more than 100 names"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_in_one_line(pem: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why or ".+") as caught:
        signing_requests.read(pem)
    assert "\n" not in str(caught.value)
    assert 0 < len(str(caught.value)) <= 250


@pytest.mark.parametrize(
    ("pem", "what"),
    [
        (request(None, [*NAMED, *NAMED]), "common name"),
        (request(None, [*NAMED, x509.NameAttribute(NameOID.LOCALITY_NAME, "x")]), "common name"),
        (request(None, NAMED, x509.BasicConstraints(ca=True, path_length=None)), "2.5.29.19"),
        (request(None, NAMED, usage(key_cert_sign=True)), "2.5.29.15"),
        (request(None, NAMED, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])),
         "2.5.29.37"),
        (request(None, NAMED, x509.SubjectAlternativeName([x509.RFC822Name("a@b.c")])), "RFC822"),
        (request(None, NAMED, x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("::1")),
             x509.UniformResourceIdentifier("spiffe://a")])), "UniformResource"),
    ],
)  # fmt: skip
def test_what_no_certificate_would_have_is_named(pem: bytes, what: str) -> None:
    assert what in signing_requests.read(pem).others[0]


def test_what_openssl_asks_for_by_default_is_nothing_special() -> None:
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    pem = request(
        None, NAMED, x509.BasicConstraints(ca=False, path_length=None),
        usage(content_commitment=True, digital_signature=True, key_encipherment=True),
        x509.ExtendedKeyUsage(purposes),
    )  # fmt: skip
    assert signing_requests.read(pem).others == ()


def test_a_key_has_a_name_that_does_not_tell_it() -> None:
    assert signing_requests.fingerprint(KEY) == signing_requests.fingerprint(KEY)
    assert signing_requests.fingerprint(KEY) != signing_requests.fingerprint(
        signing_requests.make_key()
    )
    with pytest.raises(ValueError, match=r".+"):
        signing_requests.fingerprint(b"no key")
