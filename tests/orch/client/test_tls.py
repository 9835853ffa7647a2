import ssl
from pathlib import Path

import pytest

from orch.client import tls
from orch.client.kubeconfig import ClientConfig
from orch.component.process.daemon import SetupError
from tests.conftest import Pki
from tests.fakes import slow_group


def config(**fields: object) -> ClientConfig:
    return ClientConfig(server="https://h:1", **fields)  # type: ignore[arg-type]


def test_the_given_authority_is_the_only_one_trusted(pki: Pki) -> None:
    for given in (config(ca_file=pki.ca_file), config(ca_data=Path(pki.ca_file).read_bytes())):
        context = tls.client_context(given)
        assert len(context.get_ca_certs()) == 1
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_without_an_authority_the_systems_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(
        ssl.SSLContext, "load_default_certs", lambda *_args: loaded.append(True), raising=True
    )
    context = tls.client_context(config())
    assert loaded == [True]
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_insecure_verifies_nothing() -> None:
    context = tls.client_context(config(insecure=True))
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


def test_no_server_chooses_a_key_exchange_that_takes_long(tmp_path: Path) -> None:
    """As a webhook's might: one in a group of 10,000 bits takes 0.8 s."""
    server, certificate = slow_group.server(tmp_path)
    assert slow_group.refuse(tls.client_context(config(ca_file=certificate)), server)


def test_certificate_and_key_may_be_data_or_one_file(pki: Pki, tmp_path: Path) -> None:
    pair = pki.client("a")
    cert, key = Path(pair.cert_file).read_bytes(), Path(pair.key_file).read_bytes()
    together = tmp_path / "both.pem"
    together.write_bytes(key + cert)
    tls.client_context(config(ca_file=pki.ca_file, cert_data=cert, key_data=key))
    tls.client_context(config(ca_file=pki.ca_file, cert_file=pair.cert_file, key_data=key))
    tls.client_context(config(ca_file=pki.ca_file, cert_file=str(together)))


def test_parts_that_cannot_be_used_are_named(pki: Pki) -> None:
    one, other = pki.client("a"), pki.client("b")
    for given, text in [
        (config(ca_file="/no/ca"), "cannot use the authority /no/ca: No such file"),
        (config(ca_data=b"junk"), "cannot use the authority certificate-authority-data: "),
        (config(ca_data=b"\xff"), "cannot use the authority certificate-authority-data: "),
        (
            config(ca_file=pki.ca_file, cert_file=one.cert_file, key_file=other.key_file),
            f"client certificate {one.cert_file} with its key: key values mismatch",
        ),
        (
            config(ca_file=pki.ca_file, cert_data=b"x", key_file=one.key_file),
            "client certificate client-certificate-data with its key: ",
        ),
    ]:
        with pytest.raises(SetupError, match=text):
            tls.client_context(given)
