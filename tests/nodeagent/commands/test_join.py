"""`nodeagent join` and `leave` against a real server and controller: what they make and undo, what
they say when something is wrong, and the rotation of what they got.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from nodeagent.certificates import discovery, joining
from nodeagent.certificates.enrolment import Wanted, ask
from nodeagent.certificates.joining import Cluster, Place
from nodeagent.certificates.rotation import ManagedCertificate, Rotation
from nodeagent.commands import join
from nodeagent.commands.dispatch import dispatch
from orch.client.kubeconfig import load_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component import signing_requests
from orch.component.certificates import validity
from orch.component.http.httpd import HttpServer, server_context
from orch.component.pki import KeyPair, self_signed
from orch.component.process import clock, loops
from orch.component.process.daemon import SetupError
from orch.wire.records.core import Node
from tests.conftest import Credentials, Pki
from tests.fakes.joining import LIFETIME, World, cluster

CSR = "/apis/certificates.orch.io/v1/certificatesigningrequests"


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with cluster(tmp_path / "cluster") as made:
        yield made


def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "etc", tmp_path / "var" / "pki")


def places(tmp_path: Path) -> list[str]:
    return [f"--settings-dir={tmp_path}/etc", f"--root-dir={tmp_path}/var"]


async def run(world: World, tmp_path: Path, *changed: str) -> int:
    """The command as it is printed by `init`; of options that are repeated the last counts."""
    words = [
        "join", world.server, "--token", world.token, "--ca-hash", world.pin, "--node-name=n1",
        "--no-start", "--timeout=20", *places(tmp_path), *changed,
    ]  # fmt: skip
    return await asyncio.to_thread(dispatch, words) or 0


async def test_a_machine_joins_and_leaves(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(world, tmp_path) == 0
    at = place(tmp_path)
    for path in at.own_files():
        if path not in (at.serving, at.pending_key):
            mode = 0o644 if path == at.authority else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == mode, path
    assert not at.pending_key.exists()
    client = ApiClient(Transport(load_kubeconfig(str(at.kubeconfig))))
    await client.create(Node.from_wire({"metadata": {"name": "n1"}}))  # as the agent does
    before = at.client.read_bytes()
    assert await run(world, tmp_path) == 0
    assert "has the certificate of node n1 already" in capsys.readouterr().out
    assert at.client.read_bytes() == before
    (at.settings / "config.yaml").write_text("of the administrator")
    assert await asyncio.to_thread(dispatch, ["leave", *places(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "node n1 is cordoned" in out
    node = (await world.api.call("GET", "/api/v1/nodes/n1")).json
    assert node["spec"]["unschedulable"] is True
    assert not any(path.exists() for path in at.own_files())
    assert [path.name for path in at.settings.iterdir() if path.is_file()] == ["config.yaml"]
    assert await asyncio.to_thread(dispatch, ["leave", *places(tmp_path)]) == 1
    assert "has not joined a cluster" in capsys.readouterr().err
    await client.transport.close()


@pytest.mark.slow
async def test_a_machine_that_left_joins_again_at_once_and_another_one_not_before(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(world, tmp_path) == 0
    client = ApiClient(Transport(load_kubeconfig(str(place(tmp_path).kubeconfig))))
    conditions = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Ready", "status": "True"},
    ]
    status = {"conditions": conditions}
    await client.create(Node.from_wire({"metadata": {"name": "n1"}, "status": status}))
    await client.transport.close()
    assert await run(world, tmp_path / "another") == 1
    assert "another machine has this name" in capsys.readouterr().err
    assert await asyncio.to_thread(dispatch, ["leave", *places(tmp_path)]) == 0
    node = (await world.api.call("GET", "/api/v1/nodes/n1")).json
    shown = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    assert shown == {"MemoryPressure": "False", "Ready": "False"}
    assert await run(world, tmp_path) == 0


async def test_an_administrator_who_leaves_deletes_the_node(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(world, tmp_path) == 0
    admin = world.client("admin")
    await admin.create(Node.from_wire({"metadata": {"name": "n1"}}))
    config = f"--kubeconfig={world.directory}/admin.kubeconfig"
    assert await asyncio.to_thread(dispatch, ["leave", config, *places(tmp_path)]) == 0
    assert "node n1 is deleted" in capsys.readouterr().out
    assert await admin.find(Node, "n1") is None
    await admin.transport.close()


async def test_a_node_that_was_off_for_a_year_joins_by_the_same_command(
    world: World, tmp_path: Path
) -> None:
    assert await run(world, tmp_path) == 0
    admin = world.client("admin")
    unknown = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    await admin.create(Node.from_wire({"metadata": {"name": "n1"}, "status": unknown}))
    await admin.transport.close()
    at = place(tmp_path)
    old = at.client.read_bytes()
    a_year_later = clock.utc_now() + timedelta(days=365)
    found = Cluster(world.server, at.authority.read_bytes(), "n1")
    assert await joining.is_member(found, at, clock.utc_now())
    assert not await joining.is_member(found, at, a_year_later)
    await joining.enrol(found, at, world.token, timeout_s=20)
    assert at.client.read_bytes() != old


@pytest.mark.slow
async def test_an_interrupted_join_goes_on_with_its_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(tmp_path / "cluster", signs=False) as world:
        assert await run(world, tmp_path, "--timeout=1") == 1
        error = capsys.readouterr().err
        assert "no certificate came within 1 s" in error
        assert "orchctl certificate approve node-csr-" in error
        key = place(tmp_path).pending_key
        first = key.read_bytes()
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert await run(world, tmp_path, "--timeout=1") == 1
        assert key.read_bytes() == first
        assert len((await world.api.call("GET", CSR)).json["items"]) == 1


async def test_a_denied_machine_is_told_why(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    admin = world.client("admin")
    await admin.create(Node.from_wire({"metadata": {"name": "n1"}, "status": ready}))
    await admin.transport.close()
    assert await run(world, tmp_path) == 1
    assert "another machine has this name" in capsys.readouterr().err
    assert await run(world, tmp_path, "--node-name=n3") == 0


async def test_a_node_serves_once_its_certificate_is_of_an_authority_and_valid(
    tmp_path: Path, pki: Pki
) -> None:
    def context(pair: Credentials | KeyPair) -> ssl.SSLContext:
        return server_context(pair.cert_file, pair.key_file, client_ca_file=None)

    def serving(
        ahead: timedelta = timedelta(), timeout_s: float = 0.1
    ) -> Coroutine[Any, Any, bool]:
        return joining.until_serving(node, lambda: clock.utc_now() + ahead, timeout_s=timeout_s)

    own = self_signed(tmp_path / "own", "agent", ["127.0.0.1"], now=clock.utc_now())
    agent = HttpServer(
        web.Application(), host="127.0.0.1", port=0, ssl_context=context(own), name="agent"
    )
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"nodeagentEndpoint": {"Port": await agent.start()}},
    }
    node = Node.from_wire({"metadata": {"name": "n1"}, "status": status})
    assert not await serving()
    waiting = loops.spawn(serving(timeout_s=20), name="waiting")
    agent.renew(context(pki.server()), end_connections=False)
    assert await waiting
    assert not await serving(ahead=timedelta(days=365 * 1000))
    await agent.stop()
    assert not await serving()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def plain_server() -> Iterator[int]:
    """Answers every connection with what is no TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
                    connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


async def test_each_mistake_is_named_in_one_line(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "sha256:" + "0" * 64
    cases = [
        (["--ca-hash", other], "does not belong to the authority of --ca-hash: it shows sha256:"),
        (["--ca-hash", "sha256:12"], "is not sha256: and 64 hexadecimal digits"),
        (["--token", "abcdef.0123456789abcdef"], "does not take the token: it is wrong, or its"),
        (["--token", "secret"], "--token is missing or no token"),
        (["--token", "@/absent"], "cannot read the token from /absent"),
        (["--node-name", "A_b"], "cannot be the name of a node"),
    ]
    for changed, why in cases:
        assert await run(world, tmp_path, *changed) == 1, changed
        error = capsys.readouterr().err
        assert why in error, error
        assert error.count("\n") == 1
        assert "secret" not in error
    servers = [
        (f"https://127.0.0.1:{closed_port()}", "Connection refused. Check the address"),
        (world.server.replace("127.0.0.1", "localhost"), None),
        (world.server.replace("https", "http"), "is no address of an API server"),
        ("https://a b", "cannot reach"),
    ]
    with plain_server() as port:
        for server, why in [*servers, (f"https://127.0.0.1:{port}", "cannot reach")]:
            code = await asyncio.to_thread(
                dispatch,
                ["join", server, "--token", world.token, "--ca-hash", world.pin, "--no-start",
                 "--node-name=n9", *places(tmp_path)],
            )  # fmt: skip
            error = capsys.readouterr().err
            assert code == (0 if why is None else 1), error
            assert (why or "") in error, error


async def test_another_authority_is_not_trusted(world: World) -> None:
    foreign = (world.directory / "nodeagent-ca.crt").read_bytes()
    with pytest.raises(SetupError, match="is not to be trusted"):
        await asyncio.to_thread(discovery.require_trust, world.server, foreign, clock.utc_now())


async def test_the_authority_may_come_as_a_file(world: World, tmp_path: Path) -> None:
    words = ["join", world.server, "--token", world.token, "--no-start", "--node-name=n1"]
    file = f"--ca-file={world.directory}/ca.crt"
    assert await asyncio.to_thread(dispatch, [*words, file, *places(tmp_path)]) == 0
    wrong = f"--ca-file={world.directory}/nodeagent-ca.crt"
    assert await asyncio.to_thread(dispatch, [*words, wrong, *places(tmp_path)]) == 1


async def test_what_is_no_file_is_neither_written_nor_removed(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = place(tmp_path)
    at.certificates.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_text("of another")
    at.client.symlink_to(target)
    assert await run(world, tmp_path) == 1
    assert "cannot write" in capsys.readouterr().err
    assert target.read_text() == "of another"
    joining.remove_files(at)
    assert at.client.is_symlink()


async def test_certificates_are_renewed_in_the_last_third_of_their_lives(
    world: World, tmp_path: Path
) -> None:
    assert await run(world, tmp_path) == 0
    at = place(tmp_path)
    now = clock.utc_now()
    client = ApiClient(Transport(load_kubeconfig(str(at.kubeconfig))))
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"},
                 {"type": "Hostname", "address": "n1"}]  # fmt: skip
    registered: list[str] = []
    own = ManagedCertificate("client", at.client, "n1")
    serving = ManagedCertificate("serving", at.serving, "n1", hosts=lambda: registered)
    rotation, told = Rotation(client, [own, serving], now=lambda: now), []
    rotation.on_new = lambda: told.append(serving.ends is not None)
    first = at.client.read_bytes()
    await rotation.step()
    assert at.client.read_bytes() == first
    assert serving.waits
    assert not at.serving.exists()
    node = {"metadata": {"name": "n1"}, "status": {"addresses": addresses}}
    await client.create(Node.from_wire(node))
    registered[:] = ["n1", "10.0.0.1"]
    await _until(rotation, lambda: at.serving.exists())
    assert told == [True], "the listener is woken once, when the file is there"
    assert signing_requests.hosts_of(at.serving.read_bytes()) == (("n1", "10.0.0.1"), False)
    now += LIFETIME * 0.65
    await rotation.step()
    assert at.client.read_bytes() == first
    now += LIFETIME * 0.30  # 95 %
    await _until(rotation, lambda: at.client.read_bytes() != first)
    pem = at.client.read_bytes()
    assert signing_requests.belongs(pem, pem[pem.index(b"-----BEGIN PRIVATE") :])
    assert own.ends == validity(pem)[1]
    assert own.failures == serving.failures == 0
    await client.transport.close()


async def _until(rotation: Rotation, done: object) -> None:
    assert callable(done)
    async with asyncio.timeout(20):
        while not done():
            await rotation.step()
            await asyncio.sleep(0.05)


async def test_a_refused_renewal_keeps_the_old_certificate_and_rests(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await run(world, tmp_path) == 0
    at = place(tmp_path)
    client = ApiClient(Transport(load_kubeconfig(str(at.kubeconfig))))
    now = clock.utc_now() + LIFETIME * 2
    own = ManagedCertificate("client", at.client, "n1")
    other = ManagedCertificate("client", tmp_path / "other.pem", "n2")  # not its own name
    rotation = Rotation(client, [other], now=lambda: now)
    await rotation.step()
    (waiting,) = [
        one["metadata"]["name"]
        for one in (await world.api.call("GET", CSR)).json["items"]
        if one["spec"]["username"] == "system:node:n1"
    ]
    await world.api.call("DELETE", f"{CSR}/{waiting}")
    await rotation.step()
    assert other.failures == 1
    assert "is gone" in caplog.text
    await rotation.step()  # rests
    assert other.failures == 1
    assert not (tmp_path / "other.pem").exists()
    assert await ask(client, Wanted("n1"), signing_requests.make_key())
    assert own.ends is None
    await client.transport.close()


def test_a_machine_without_systemd_is_told_how_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert not join.has_service()


async def test_a_server_that_does_not_answer_is_not_asked_about_a_request(
    world: World,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask(*_: object) -> str:
        return await asyncio.Event().wait() and ""

    monkeypatch.setattr(joining.enrolment, "ask", ask)
    assert await run(world, tmp_path, "--timeout=1") == 1
    error = capsys.readouterr().err
    assert "no certificate came within 1 s: the API server did not answer" in error
    assert "orchctl" not in error
