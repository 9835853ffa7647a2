import ssl
from pathlib import Path

import pytest

from orch.component import tls
from orch.component.process.daemon import SetupError
from tests.conftest import Pki


def test_only_new_versions_and_authenticated_suites_with_forward_secrecy(pki: Pki) -> None:
    pair = pki.server()
    context = tls.server_context(pair.cert_file, pair.key_file, client_ca_file=None)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in context.get_ciphers()}
    # CIS 4.2.12, and the three of TLS 1.3
    assert names == {
        *(
            f"ECDHE-{key}-{suite}"
            for key in ("ECDSA", "RSA")
            for suite in ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")
        ),
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_GCM_SHA256",
    }
    assert context.verify_mode is ssl.CERT_NONE


def test_client_certificates_are_requested_when_an_authority_is_given(pki: Pki) -> None:
    pair = pki.server()
    context = tls.server_context(pair.cert_file, pair.key_file, client_ca_file=pki.ca_file)
    assert context.verify_mode is ssl.CERT_OPTIONAL
    assert len(context.get_ca_certs()) == 1


def test_version_and_suites_can_be_narrowed(pki: Pki) -> None:
    pair = pki.server()
    context = tls.server_context(
        pair.cert_file,
        pair.key_file,
        client_ca_file=None,
        min_version="VersionTLS13",
        cipher_suites=["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"],
    )
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    names = {c["name"] for c in context.get_ciphers() if c["protocol"] == "TLSv1.2"}
    assert names == {"ECDHE-RSA-AES128-GCM-SHA256"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_version": "VersionTLS10"}, "use one of VersionTLS12, VersionTLS13"),
        ({"cipher_suites": ["TLS_RSA_WITH_AES_128_CBC_SHA"]}, "TLS_RSA_WITH_AES_128_CBC_SHA"),
        ({"cipher_suites": ["NULL"]}, "is unknown or not safe: use one of TLS_AES_128_GCM"),
    ],
)
def test_weak_settings_are_refused(pki: Pki, options: dict[str, str], text: str) -> None:
    pair = pki.server()
    with pytest.raises(SetupError, match=text):
        tls.server_context(pair.cert_file, pair.key_file, client_ca_file=None, **options)  # type: ignore[arg-type]


def test_files_that_do_not_fit_are_named_with_the_cause(pki: Pki, tmp_path: Path) -> None:
    one, other = pki.server(), pki.server()
    empty = tmp_path / "empty"
    empty.touch()
    for cert, key, ca, text in [
        ("/no/cert", one.key_file, None, "certificate /no/cert .*: No such file or directory"),
        (one.cert_file, other.key_file, None, "the key does not belong to the certificate"),
        (str(empty), one.key_file, None, "no usable PEM data"),
        (one.cert_file, one.key_file, "/no/ca", "client CA file /no/ca: No such file"),
        (one.cert_file, one.key_file, str(empty), "client CA file .*: no usable PEM data"),
    ]:
        with pytest.raises(SetupError, match=text):
            tls.server_context(cert, key, client_ca_file=ca)


def test_a_key_that_a_unit_has_handed_over_is_known_to_be_a_copy(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pki.server(), pki.server()
    text = "does not belong to the certificate; it is a copy that the unit made: reload the unit"
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(Path(other.key_file).parent))
    with pytest.raises(SetupError, match=text):
        tls.server_context(one.cert_file, other.key_file, client_ca_file=None)
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/other")
    with pytest.raises(SetupError, match=r"does not belong to the certificate$"):
        tls.server_context(one.cert_file, other.key_file, client_ca_file=None)


def test_an_encrypted_key_is_refused_instead_of_asking_the_terminal(
    pki: Pki, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    pair = pki.server()
    key = serialization.load_pem_private_key(Path(pair.key_file).read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    with pytest.raises(SetupError, match="the key is encrypted: decrypt it first"):
        tls.server_context(pair.cert_file, str(locked), client_ca_file=None)
