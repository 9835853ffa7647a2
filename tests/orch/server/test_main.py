"""The program itself: what it says when it cannot start, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import io
import resource
import shutil
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from orch.component.process import clock, loops
from orch.component.process.daemon import SetupError, Stop
from orch.server import flags, main
from orch.server.authn.credential_files import parse_hash
from tests.fakes.programs import until
from tests.orch.server.harness import Pki, make_pki


def arguments(pki: Pki, directory: Path, *more: str) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        f"--tls-cert-file={pki.server.cert_file}",
        f"--tls-private-key-file={pki.server.key_file}",
        f"--client-ca-file={pki.ca_file}",
        f"--data-dir={directory / 'data'}",
        f"--port-file={directory / 'port'}",
        *more,
    ]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """systemd's end of NOTIFY_SOCKET."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield manager


@pytest.mark.usefixtures("same_file_limit")
async def test_it_serves_tells_systemd_and_stops_in_order(
    server_pki: Pki, tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.daemon, "freeze_gc", lambda: None)
    stop = Stop()
    running = loops.spawn(
        main.run(flags.parse(arguments(server_pki, tmp_path)), stop), name="server"
    )
    loop = asyncio.get_running_loop()
    assert await loop.sock_recv(manager, 4096) == b"READY=1"
    port = int((tmp_path / "port").read_text())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    assert (tmp_path / "data" / "state.db").exists()
    stop.set("test")
    await running
    assert await loop.sock_recv(manager, 4096) == b"STOPPING=1"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    del reader


@pytest.mark.usefixtures("same_file_limit")
async def test_the_watchdog_is_fed_when_systemd_asks(
    server_pki: Pki, tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    monkeypatch.setattr(main.daemon, "freeze_gc", lambda: None)
    stop = Stop()
    running = loops.spawn(
        main.run(flags.parse(arguments(server_pki, tmp_path)), stop), name="server"
    )
    loop = asyncio.get_running_loop()
    messages = [await loop.sock_recv(manager, 4096) for _ in range(2)]
    assert messages == [b"READY=1", b"WATCHDOG=1"]
    stop.set("test")
    await running


async def asked(port: int, known: Pki, user: str) -> int:
    """The status a user of an authority gets; 0 when one side does not trust the other."""
    context = ssl.create_default_context(cafile=known.ca_file)
    pair = known.users[user]
    context.load_cert_chain(pair.cert_file, pair.key_file)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            async with session.get(f"https://localhost:{port}/api/v1/nodes") as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return 0


@pytest.mark.may_block
@pytest.mark.usefixtures("same_file_limit")
async def test_new_tls_files_count_without_a_restart(
    server_pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.daemon, "freeze_gc", lambda: None)
    monkeypatch.setattr(main.tls, "INTERVAL_S", 0.05)
    old, new = server_pki, make_pki(tmp_path / "new", clock.utc_now())
    used = {name: str(tmp_path / name) for name in ("crt", "key", "ca")}

    def install(one: Pki) -> None:
        for source, name in (
            (one.server.cert_file, "crt"), (one.server.key_file, "key"), (one.ca_file, "ca")
        ):  # fmt: skip
            shutil.copyfile(source, used[name])

    install(old)
    parsed = flags.parse(
        [
            *arguments(old, tmp_path),
            f"--tls-cert-file={used['crt']}",
            f"--tls-private-key-file={used['key']}",
            f"--client-ca-file={used['ca']}",
        ]
    )
    stop = Stop()
    running = loops.spawn(main.run(parsed, stop), name="server")
    async with asyncio.timeout(60):
        while not (tmp_path / "port").exists():
            await asyncio.sleep(0.02)
        port = int((tmp_path / "port").read_text())
        assert (await asked(port, old, "admin"), await asked(port, new, "admin")) == (200, 0)
        install(new)
        while await asked(port, new, "admin") != 200:
            await asyncio.sleep(0.05)
    assert await asked(port, old, "admin") == 0
    stop.set("test")
    await running


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("--tls-cert-file=/absent.crt", "/absent.crt"),
        ("--client-ca-file=/absent-ca.crt", "/absent-ca.crt"),
        ("--nodeagent-certificate-authority=/absent-agents.crt", "/absent-agents.crt"),
        ("--storage-file=/proc/nope/state.db", "/proc/nope/state.db"),
        ("--port-file=/proc/nope/port", "/proc/nope/port"),
    ],
)
@pytest.mark.usefixtures("same_file_limit")
async def test_what_cannot_be_used_is_named_and_nothing_is_left_running(
    server_pki: Pki, tmp_path: Path, broken: str, message: str
) -> None:
    parsed = flags.parse([*arguments(server_pki, tmp_path), broken])
    with pytest.raises(SetupError, match=message):
        await main.run(parsed, Stop())


@pytest.mark.usefixtures("same_file_limit")
async def test_a_taken_port_is_named(server_pki: Pki, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        parsed = flags.parse([*arguments(server_pki, tmp_path), f"--secure-port={port}"])
        with pytest.raises(SetupError, match=f"127.0.0.1:{port}"):
            await main.run(parsed, Stop())


def test_contradicting_flags_are_one_clear_line(
    server_pki: Pki, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.main([*arguments(server_pki, tmp_path), "--nodeagent-client-key=x"])
    assert code == 1
    printed = capsys.readouterr().err
    assert printed.startswith("orch-apiserver: error: ")
    assert printed.count("\n") == 1


@pytest.mark.usefixtures("same_file_limit")
def test_the_limit_of_open_files_is_raised_as_far_as_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    main.raise_file_limit(1000)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1256
    main.raise_file_limit(10)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1256
    if hard != resource.RLIM_INFINITY:
        main.raise_file_limit(hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
        assert "the limit is" in caplog.text


@pytest.mark.slow
async def test_more_idle_connections_than_descriptors_cost_neither_service_nor_a_full_log(
    server_pki: Pki, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "orch.server.main", *arguments(server_pki, tmp_path)]
    log = tmp_path / "log"
    with log.open("wb") as stream, contextlib.ExitStack() as idle:
        process = await asyncio.create_subprocess_exec(
            "prlimit", "--nofile=64:64", *command, stderr=stream
        )
        try:
            await until((tmp_path / "port").exists)
            port = int((tmp_path / "port").read_text())
            before = log.read_bytes().count(b"\n")
            for _ in range(200):
                idle.enter_context(socket.create_connection(("127.0.0.1", port)))
            assert await asked(port, server_pki, "admin") == 200
            assert log.read_bytes().count(b"\n") <= before + 2
        finally:
            process.terminate()
            assert await process.wait() == 0


def test_a_password_is_hashed_for_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    assert main.main(["hash-password"]) == 0
    assert parse_hash(capsys.readouterr().out.strip()).fits("hunter2")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main.main(["hash-password"]) == 1
    assert "give the password" in capsys.readouterr().err


def test_a_word_that_is_no_command_is_named_with_the_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.main(["inti"]) == 2
    expected = "unknown command 'inti'; the commands are doctor, hash-password, init"
    assert expected in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main.main(["--help"])
    assert "Commands: orch-apiserver doctor, hash-password, init." in capsys.readouterr().out
