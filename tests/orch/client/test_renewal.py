"""A client that runs takes over new files, and leaves halves alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orch.client.kubeconfig import ClientConfig
from orch.client.renewal import renewal_of
from orch.client.transport import Transport
from orch.component.pki import Authority, Subject
from orch.component.process import clock
from tests.orch.server.harness import Api, make_pki


async def test_a_new_certificate_is_used_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server_pki = make_pki(tmp_path / "pki", clock.utc_now())
    api = await Api.start(server_pki, tmp_path / "data")
    cert, key = tmp_path / "c.crt", tmp_path / "c.key"

    def become(user: str) -> None:
        cert.write_bytes(Path(server_pki.users[user].cert_file).read_bytes())
        key.write_bytes(Path(server_pki.users[user].key_file).read_bytes())

    become("stranger")
    config = ClientConfig(
        f"https://127.0.0.1:{api.port}", server_pki.ca_file, cert_file=str(cert), key_file=str(key)
    )
    transport = Transport(config)
    renewal = renewal_of((transport,))
    assert renewal is not None
    try:
        assert (await transport.request("GET", "/api/v1/nodes")).status == 403
        cert.write_bytes(Path(server_pki.users["admin"].cert_file).read_bytes())
        await renewal.step()
        assert "keeps its previous certificate" in caplog.text  # the key is not there yet
        become("admin")
        await renewal.step()
        assert (await transport.request("GET", "/api/v1/nodes")).status == 200
        assert "uses its new certificate" in caplog.text
        await renewal.step()
        assert caplog.text.count("uses its new") == 1
    finally:
        await transport.close()
        await api.stop()


def test_a_client_without_files_has_nothing_to_look_at(tmp_path: Path) -> None:
    assert renewal_of(()) is None
    assert renewal_of((Transport(ClientConfig("https://a", token="t")),)) is None
    authority = Authority(tmp_path, now=clock.utc_now())
    pair = authority.issue(Subject("a", "a"))
    assert renewal_of((Transport(ClientConfig("https://a", cert_file=pair.cert_file)),))
