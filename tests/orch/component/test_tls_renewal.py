"""A listener whose files change: new certificate, new client CA, files that cannot be used."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from orch.component.certificates import expiry
from orch.component.diagnostics.framework_metrics import CertificateMetrics
from orch.component.diagnostics.metrics import Registry
from orch.component.http import httpd
from orch.component.http.httpd import HttpServer
from orch.component.process.daemon import SetupError
from orch.component.tls import TlsFiles, TlsRenewal
from tests.conftest import Credentials, Pki


class Listener:
    """A server that says who asks, with files of its own in a folder."""

    def __init__(self, folder: Path, pki: Pki) -> None:
        self.cert, self.key, self.ca = (str(folder / name) for name in ("crt", "key", "ca"))
        self.install(pki.server(), pki.ca_file)
        app = web.Application()
        app.router.add_get("/", self._who)
        files = TlsFiles((self.cert, self.key), self.ca)
        self.server = HttpServer(
            app, host="127.0.0.1", port=0, ssl_context=self._context(), name="test"
        )
        self.renewal = TlsRenewal(self.server, self._context, files)
        self.port = 0

    def install(self, pair: Credentials, ca_file: str) -> None:
        for source, target in (
            (pair.cert_file, self.cert),
            (pair.key_file, self.key),
            (ca_file, self.ca),
        ):
            shutil.copyfile(source, target)

    def _context(self) -> ssl.SSLContext:
        return httpd.server_context(self.cert, self.key, client_ca_file=self.ca)

    async def _who(self, request: web.Request) -> web.Response:
        identity = httpd.current_peer(request)
        return web.Response(text=identity.name if identity else "nobody")


@pytest_asyncio.fixture
async def listener(tmp_path: Path, pki: Pki) -> AsyncIterator[Listener]:
    made = Listener(tmp_path, pki)
    made.port = await made.server.start()
    yield made
    await made.server.stop(1.0)


def trusting(pki: Pki, pair: Credentials | None = None) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cafile=pki.ca_file)
    if pair:
        context.load_cert_chain(pair.cert_file, pair.key_file)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))


async def asked(session: aiohttp.ClientSession, listener: Listener) -> str:
    async with session.get(f"https://localhost:{listener.port}/") as response:
        return await response.text()


@pytest.fixture
def other(tmp_path: Path) -> Pki:
    folder = tmp_path / "other"
    folder.mkdir()
    return Pki(folder)


@pytest.mark.may_block
async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_live_on(
    listener: Listener, pki: Pki, other: Pki
) -> None:
    async with trusting(pki) as old, trusting(other) as new:
        assert await asked(old, listener) == "nobody"
        listener.install(other.server(), pki.ca_file)
        await listener.renewal.step()
        assert await asked(new, listener) == "nobody"
        assert await asked(old, listener) == "nobody"  # its connection was kept
    assert listener.renewal.renewals == 1


@pytest.mark.may_block
async def test_a_new_client_ca_counts_at_once_also_for_open_connections(
    listener: Listener, pki: Pki, other: Pki
) -> None:
    alice = pki.client("alice")
    async with trusting(pki, alice) as session, trusting(pki, other.client("bob")) as bob:
        assert await asked(session, listener) == "alice"
        listener.install(pki.server(), other.ca_file)
        await listener.renewal.step()
        assert await asked(bob, listener) == "bob"
        with pytest.raises(aiohttp.ClientConnectionError):
            await asked(session, listener)


@pytest.mark.may_block
@pytest.mark.parametrize("first", ["certificate", "key"])
async def test_unusable_files_change_nothing_and_are_logged_once(
    listener: Listener, pki: Pki, caplog: pytest.LogCaptureFixture, first: str
) -> None:
    caplog.set_level(logging.INFO)
    new = pki.server()
    steps = [(new.cert_file, listener.cert), (new.key_file, listener.key)]
    if first == "key":
        steps.reverse()
    shutil.copyfile(*steps[0])
    for _ in range(3):
        await listener.renewal.step()
    assert [record.getMessage() for record in caplog.records] == [
        f"test keeps its previous TLS files: cannot use the TLS certificate {listener.cert} with"
        f" the key {listener.key}: the key does not belong to the certificate"
    ]
    async with trusting(pki) as session:
        assert await asked(session, listener) == "nobody"
    shutil.copyfile(*steps[1])
    await listener.renewal.step()
    assert caplog.records[-1].getMessage() == "test uses its new serving certificate"


@pytest.mark.may_block
async def test_the_end_of_the_certificate_in_use_is_told(listener: Listener, pki: Pki) -> None:
    registry = Registry()
    registry.register(CertificateMetrics({"serving": listener.renewal}))
    ended, before = pki.ended_client("a"), listener.renewal.certificate_end
    assert before is not None and before > datetime.now(UTC)
    shutil.copyfile(ended.cert_file, listener.cert)
    await listener.renewal.step()  # the key does not fit yet
    assert listener.renewal.certificate_end == before
    shutil.copyfile(ended.key_file, listener.key)
    await listener.renewal.step()
    end = expiry(Path(ended.cert_file).read_bytes())
    assert listener.renewal.certificate_end == end < datetime.now(UTC)
    name = 'orch_certificate_expiration_timestamp_seconds{use="serving"}'
    (line,) = [one for one in registry.render("")[0].decode().splitlines() if name in one]
    assert float(line.rpartition(" ")[2]) == end.timestamp()


@pytest.mark.may_block
async def test_a_failure_to_load_new_files_is_logged_once_per_cause_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, ca = tmp_path / "crt", tmp_path / "ca"
    files = TlsFiles([str(cert)], str(ca))
    results: list[str] = ["no memory", "no memory", "no disk", "no memory", "", "no memory", ""]
    renewed: list[bool] = []

    class User:
        name = "test"

        def renew(self, context: ssl.SSLContext, *, end_connections: bool) -> None:
            renewed.append(end_connections)

    def make() -> ssl.SSLContext:
        if problem := results.pop(0):
            raise SetupError(problem)
        return ssl.create_default_context()

    renewal = TlsRenewal(User(), make, files)
    ca.write_text("new")
    await renewal.step()
    cert.write_text("new")  # the authority has not been used meanwhile
    for _ in range(5):
        await renewal.step()
    assert renewed == [True]
    cert.write_text("newer")
    for _ in range(3):
        await renewal.step()
    assert renewed == [True, False] and results == []
    said = [
        one.getMessage().rpartition(": ")[2] for one in caplog.records if one.levelname == "ERROR"
    ]
    assert said == ["no memory", "no disk", "no memory"]


@pytest.mark.may_block
async def test_files_that_stay_the_same_renew_nothing(listener: Listener, pki: Pki) -> None:
    context = listener.server.ssl_context
    for _ in range(3):
        Path(listener.cert).touch()
        await listener.renewal.step()
    assert listener.server.ssl_context is context


@pytest.mark.may_block
async def test_a_change_between_the_start_and_the_first_look_is_not_missed(
    tmp_path: Path, pki: Pki, other: Pki
) -> None:
    listener = Listener(tmp_path, pki)
    listener.install(pki.server(), other.ca_file)
    await listener.renewal.step()
    assert listener.renewal.renewals == 1
    await listener.renewal.step()
    assert listener.renewal.renewals == 1


@pytest.mark.may_block
async def test_a_request_under_way_is_answered_before_its_connection_ends(
    tmp_path: Path, pki: Pki
) -> None:
    release, arrived = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        arrived.set()
        await release.wait()
        return web.Response(text="done")

    app = web.Application()
    app.router.add_get("/", slow)
    pair = pki.server()
    context = httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=pki.ca_file)
    server = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="test")
    port = await server.start()
    async with trusting(pki) as session:
        running = asyncio.ensure_future(session.get(f"https://localhost:{port}/"))
        await arrived.wait()
        server.renew(context, end_connections=True)
        release.set()
        response = await running
        assert await response.text() == "done"
    await server.stop(1.0)
