"""The files of --nodeagent-*: what is read of them, and what happens when they change."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from orch.component import tls as component_tls
from orch.component.http.httpd import HttpServer, current_peer, server_context
from orch.component.pki import KeyPair
from orch.component.process import clock, loops
from orch.component.process.daemon import SetupError
from orch.server.nodes.proxy import AgentTls
from tests.fakes import slow_group
from tests.orch.server.harness import NODES, Api, Pki, make_pki, node

PATIENCE_S = 30.0


async def who(request: web.Request) -> web.Response:
    identity = current_peer(request)
    return web.Response(text=identity.name if identity else "nobody")


class Files:
    """What the server was told to use, in a place where it can be replaced."""

    def __init__(self, folder: Path, pki: Pki) -> None:
        self.ca, self.cert, self.key = (folder / name for name in ("ca", "crt", "key"))
        shutil.copy(pki.ca_file, self.ca)

    def install(self, pair: KeyPair) -> None:
        shutil.copy(pair.cert_file, self.cert)
        shutil.copy(pair.key_file, self.key)

    @property
    def tls(self) -> AgentTls:
        return AgentTls(str(self.ca), str(self.cert), str(self.key))


@pytest.fixture
def files(tmp_path: Path, server_pki: Pki) -> Files:
    files = Files(tmp_path, server_pki)
    files.install(server_pki.users["admin"])
    return files


@pytest.fixture
async def agent_port(server_pki: Pki) -> AsyncIterator[int]:
    """Of an agent that says who calls it."""
    app = web.Application()
    app.router.add_get("/who", who)
    pair = server_pki.server
    context = server_context(pair.cert_file, pair.key_file, client_ca_file=server_pki.ca_file)
    server = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="agent")
    yield await server.start()
    await server.stop(grace_s=0.5)


@pytest.fixture
async def api(
    server_pki: Pki,
    files: Files,
    agent_port: int,
    tmp_path: Path,
) -> AsyncIterator[Api]:
    """It knows the node of that agent."""
    api = await Api.start(
        server_pki, tmp_path / "data",
        "--nodeagent-certificate-authority", str(files.ca),
        "--nodeagent-client-certificate", str(files.cert),
        "--nodeagent-client-key", str(files.key),
        "--node-proxy-allow-loopback",
    )  # fmt: skip
    await api.call("POST", NODES, reported("n1", agent_port))
    yield api
    await api.stop()


def reported(name: str, port: int) -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    endpoints = {"nodeagentEndpoint": {"Port": port}}
    return {**node(name), "status": {"addresses": addresses, "daemonEndpoints": endpoints}}


async def answer_of(api: Api) -> str:
    return (await api.call("GET", f"{NODES}/n1/proxy/who")).text


async def test_a_renewed_pair_is_shown_to_agents_without_a_restart(
    api: Api, files: Files, server_pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component_tls, "INTERVAL_S", 0.05)
    (loop,) = [one for one in api.server.loops() if one.name == "node proxy certificates"]
    api.following.append(loops.spawn(loop.run(), name=loop.name))
    assert await answer_of(api) == "admin"
    files.install(server_pki.users["monitor"])
    async with asyncio.timeout(PATIENCE_S):
        while await answer_of(api) != "prometheus":
            await asyncio.sleep(0.02)


async def test_half_a_pair_changes_nothing_and_is_said_once(
    api: Api, files: Files, server_pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", component_tls.__name__)
    shutil.copy(server_pki.users["monitor"].cert_file, files.cert)
    for _ in range(3):
        await api.turn("node proxy certificates")
    (said,) = caplog.messages
    assert said.startswith("node proxy keeps its previous TLS files: ")
    assert str(files.cert) in said and str(files.key) in said
    assert await answer_of(api) == "admin"
    shutil.copy(server_pki.users["monitor"].key_file, files.key)
    await api.turn("node proxy certificates")
    assert caplog.messages[1:] == ["node proxy uses its new client certificate"]
    assert await answer_of(api) == "prometheus"


async def test_agents_of_another_authority_are_not_called_any_more(
    api: Api, files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", component_tls.__name__)
    assert await answer_of(api) == "admin"
    (tmp_path / "other").mkdir()
    shutil.copy(make_pki(tmp_path / "other", clock.utc_now()).ca_file, files.ca)
    await api.turn("node proxy certificates")
    assert caplog.messages == ["node proxy uses its new node agent CA"]
    assert "certificate verify failed" in await answer_of(api)


async def test_a_plain_authority_is_as_good_for_agents_as_everywhere_else(
    server_pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Python's default context is strict, which is so from 3.13 on."""
    default = ssl.create_default_context

    def strict(*args: Any, **settings: Any) -> ssl.SSLContext:
        context = default(*args, **settings)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    await asyncio.to_thread(_make_plain_authority, tmp_path)
    app = web.Application()
    app.router.add_get("/who", who)
    context = server_context(
        str(tmp_path / "agent.crt"), str(tmp_path / "agent.key"), client_ca_file=None
    )
    agent = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="agent")
    async with known_agent(server_pki, tmp_path, await agent.start()) as api:
        assert await answer_of(api) == "nobody"
    await agent.stop(grace_s=0.5)


def _make_plain_authority(folder: Path) -> None:
    (folder / "names").write_text("subjectAltName=DNS:n1\n")
    for words in (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt"
        " -subj /CN=plain -days 2",
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout agent.key -out agent.csr"
        " -subj /CN=n1",
        "x509 -req -in agent.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out agent.crt"
        " -extfile names -days 1",
    ):
        subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)


@asynccontextmanager
async def known_agent(pki: Pki, folder: Path, port: int) -> AsyncIterator[Api]:
    """A server that trusts `ca.crt` in the folder, and knows the node of the agent at the port."""
    api = await Api.start(
        pki, folder / "data", "--node-proxy-allow-loopback",
        "--nodeagent-certificate-authority", str(folder / "ca.crt"),
    )  # fmt: skip
    await api.call("POST", NODES, reported("n1", port))
    yield api
    await api.stop()


@pytest.mark.parametrize("wrong", ["ca", "cert", "key"])
def test_a_file_that_cannot_be_used_is_named(files: Files, wrong: str) -> None:
    path = getattr(files, wrong)
    path.write_text("nothing")
    with pytest.raises(SetupError, match=str(path)):
        files.tls.context()


def test_without_an_authority_there_is_nothing_to_follow() -> None:
    nothing = AgentTls(None)
    assert nothing.renewal(None, nothing.files()) is None  # type: ignore[arg-type]


def test_no_node_chooses_a_key_exchange_that_takes_long(tmp_path: Path) -> None:
    """One in a group of 10,000 bits stalled the API server for 0.8 s."""
    server, certificate = slow_group.server(tmp_path)
    client = AgentTls(certificate).context()
    assert client and slow_group.refuse(client, server)
