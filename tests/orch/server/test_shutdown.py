"""The order in which a server stops, as its clients see it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from orch.component.process import loops
from orch.component.process.daemon import Stop
from orch.server import flags, main
from orch.server.storage import group_commit, health
from orch.server.storage.base import Change
from orch.server.storage.sqlite import SqliteMedium
from tests.orch.server.harness import NODES, Pki, node
from tests.orch.server.test_main import arguments

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(pki: Pki, port: int) -> Connection:
    context = ssl.create_default_context(cafile=pki.ca_file)
    context.load_cert_chain(pki.users["admin"].cert_file, pki.users["admin"].key_file)
    return await asyncio.open_connection("127.0.0.1", port, ssl=context)


async def ask(connection: Connection, path: str) -> int:
    """The code of the answer."""
    reader, writer = connection
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    await reader.readexactly(length)
    return int(head.split()[1])


async def until_ready_fails(connection: Connection) -> None:
    while await ask(connection, "/readyz") == 200:
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("same_file_limit")
async def test_readiness_fails_first_then_watches_end_and_requests_are_finished(
    server_pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.daemon, "freeze_gc", lambda: None)
    stop = Stop()
    delayed = flags.parse(arguments(server_pki, tmp_path, "--shutdown-delay-duration=6s"))
    running = loops.spawn(main.run(delayed, stop), name="server")
    async with asyncio.timeout(60):
        while not (tmp_path / "port").exists():
            await asyncio.sleep(0.02)
        port = int((tmp_path / "port").read_text())
        prober, watcher, writer = [await connect(server_pki, port) for _ in range(3)]
        assert await ask(prober, "/readyz") == 200
        watcher[1].write(f"GET {NODES}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await watcher[0].readuntil(b"\r\n\r\n")
        body = orjson.dumps(node("n1"))
        head = f"POST {NODES} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer[1].write(head.encode() + body[:10])

        ended = loops.spawn(watcher[0].readuntil(b"0\r\n\r\n"), name="watcher")
        stop.set("test")
        await until_ready_fails(prober)
        assert await ask(prober, NODES) == 200
        late = await connect(server_pki, port)
        assert await ask(late, NODES) == 200
        assert not ended.done()

        assert await ended  # cleanly, the connection is not broken
        assert not running.done()
        writer[1].write(body[10:])
        assert (await writer[0].readline()).split()[1] == b"201"
        await running
        for _, end in (prober, watcher, writer, late):
            end.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.usefixtures("same_file_limit")
async def test_a_disk_that_hangs_does_not_keep_the_server_from_ending(
    server_pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.daemon, "freeze_gc", lambda: None)
    monkeypatch.setattr(health, "INTERVAL_S", 0.05)
    monkeypatch.setattr(group_commit, "CHECK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(group_commit, "CLOSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(main, "SHORT_GRACE_S", 0.2)
    answering = threading.Event()
    answering.set()
    closed = threading.Event()
    commit, close = SqliteMedium.commit, SqliteMedium.close

    def slow_commit(medium: SqliteMedium, changes: Sequence[Change], revision: int) -> None:
        answering.wait()
        commit(medium, changes, revision)

    def last_close(medium: SqliteMedium) -> None:
        close(medium)
        closed.set()

    monkeypatch.setattr(SqliteMedium, "commit", slow_commit)
    monkeypatch.setattr(SqliteMedium, "close", last_close)
    stop = Stop()
    running = loops.spawn(main.run(flags.parse(arguments(server_pki, tmp_path)), stop), name="run")
    try:
        async with asyncio.timeout(45):  # less than the time of a request
            while not (tmp_path / "port").exists():
                await asyncio.sleep(0.02)
            port = int((tmp_path / "port").read_text())
            prober, writer = [await connect(server_pki, port) for _ in range(2)]
            answering.clear()
            body = orjson.dumps(node("n1"))
            head = f"POST {NODES} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            writer[1].write(head.encode() + body)
            await until_ready_fails(prober)
            stop.set("test")
            await running
    finally:
        answering.set()
        assert closed.wait(10)  # left to itself, the writer still works in the test's directory
    for _, end in (prober, writer):
        end.close()
