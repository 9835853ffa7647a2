"""Ends of a stream that vanish without a word, in a network namespace of the test's own."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress

import pytest

from orch.component.http import tcp
from orch.component.streams import upgrade
from tests.fakes.network import HOST, INSIDE, Network
from tests.fakes.streaming import ASK, Upgraded, streaming, upgraded
from tests.orch.component.streams.test_upgrade import front_of, until


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """Whoever vanishes in it is to be noticed within a second or two."""
    monkeypatch.setattr(tcp, "UNACKNOWLEDGED_MS", 1000)
    monkeypatch.setattr(upgrade, "_LOOK_S", 0.05)
    network = Network()
    try:
        network.make()
        yield network
    finally:
        network.remove()


needs_network = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None,
    reason="needs root and iproute2, for a network namespace",
)


@needs_network
@pytest.mark.may_block
@pytest.mark.parametrize("waiting_bytes", [0, 16 * 2**20])
async def test_a_server_behind_that_vanishes_is_noticed_also_while_it_takes_nothing(
    network: Network, waiting_bytes: int
) -> None:
    async def deaf(*_: object) -> None:
        await over.wait()

    over, bound = asyncio.Event(), network.socket()
    bound.bind((INSIDE, 0))
    async with streaming(bound) as behind, front_of(behind) as front:
        behind.talk = deaf
        async with upgraded(front.port, "POST /x") as client:
            client.writer.write(bytes(waiting_bytes))
            await asyncio.sleep(2)
            assert front.statuses == []
            with network.dropping():
                client.writer.write(b"x")
                with suppress(ConnectionError):
                    assert await client.reader.read() == b""
                await until(lambda: front.statuses == [101])
        over.set()


@needs_network
@pytest.mark.may_block
async def test_a_client_that_vanishes_while_it_takes_nothing_is_noticed(network: Network) -> None:
    async def much(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(16 * 2**20))
        await writer.drain()

    inside = network.socket()
    inside.setblocking(False)
    async with streaming() as behind, front_of(behind, HOST) as front:
        behind.talk = much
        await asyncio.get_running_loop().sock_connect(inside, (HOST, front.port))
        client = Upgraded(*await asyncio.open_connection(sock=inside))
        await client.ask("POST /x", *ASK)
        await asyncio.sleep(2)
        assert front.statuses == []
        with network.dropping():
            await until(lambda: front.statuses == [101])
        client.writer.transport.abort()
