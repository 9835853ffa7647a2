"""Connections that are open before they are asked for: whose they are, when they are not used."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from multidict import CIMultiDict

from orch.component.http import tcp
from orch.component.http.httpd import server_context
from orch.component.pki import Authority, Subject
from orch.component.process import clock
from orch.component.streams import spares
from orch.component.streams.spares import Spares
from orch.component.streams.upstream import Destination, Unreachable
from tests.fakes.streaming import AGREED

ASKED = CIMultiDict({"Connection": "Upgrade", "Upgrade": "SPDY/3.1"})


class Behind:
    """A server that agrees to every upgrade; `accepted` are its connections, in order."""

    def __init__(self) -> None:
        self.accepted: list[asyncio.StreamWriter] = []
        self.asked: list[int] = []  # the numbers of the connections that were used
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.accepted)
        self.accepted.append(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked.append(number)
            writer.write(AGREED)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        writer.close()

    @property
    def open(self) -> int:
        return sum(not writer.is_closing() for writer in self.accepted)

    async def has(self, true: Callable[[Behind], bool]) -> None:
        async with asyncio.timeout(20):
            while not true(self):
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self.accepted:
            tcp.abort(writer.transport)


@pytest.fixture
async def behind() -> AsyncIterator[Behind]:
    behind = Behind()
    await behind.start()
    yield behind
    await behind.stop()


@pytest.fixture
async def ahead() -> AsyncIterator[Spares]:
    ahead = Spares()
    yield ahead
    await ahead.close()


async def used(ahead: Spares, to: Destination) -> None:
    agreement = await ahead.dial(to, "POST", "/exec", ASKED)
    with ahead.kept_for(to):
        agreement.transport.close()


async def test_the_second_upgrade_finds_its_connection_open(ahead: Spares, behind: Behind) -> None:
    to = Destination("127.0.0.1", behind.port)
    await used(ahead, to)
    await behind.has(lambda b: len(b.accepted) == 2)
    await used(ahead, to)
    assert behind.asked == [0, 1]
    await behind.has(lambda b: len(b.accepted) == 3)
    await ahead.close()
    await behind.has(lambda b: b.open == 0)


async def test_a_spare_that_has_ended_or_spoken_is_not_used(ahead: Spares, behind: Behind) -> None:
    """What the server did is not waited for: it is seen even before the loop has read it."""
    to = Destination("127.0.0.1", behind.port)
    await used(ahead, to)
    await behind.has(lambda b: len(b.accepted) == 2)
    behind.accepted[1].transport.abort()
    await asyncio.sleep(0)  # in which it is closed, not noticed
    await used(ahead, to)
    await behind.has(lambda b: len(b.accepted) == 4)  # one dialled, one more to spare
    behind.accepted[3].write(AGREED)
    await used(ahead, to)
    assert behind.asked == [0, 2, 4]


async def test_a_server_that_was_restarted_is_reached_anew(ahead: Spares, behind: Behind) -> None:
    to = Destination("127.0.0.1", behind.port)
    await used(ahead, to)
    await behind.has(lambda b: len(b.accepted) == 2)
    await behind.stop()
    with pytest.raises(Unreachable):
        await used(ahead, to)
    await behind.start()
    await used(ahead, to)
    assert behind.asked == [0, 2]


async def test_a_spare_is_for_its_destination_only(
    ahead: Spares, behind: Behind, tmp_path: Path
) -> None:
    """Another name, or another context (a renewed certificate or CA), is another handshake."""
    authority = Authority(tmp_path, now=clock.utc_now())
    pair = authority.issue(Subject("agent", "agent", (), ("localhost",)))
    await behind.stop()
    await behind.start(server_context(pair.cert_file, pair.key_file, client_ca_file=None))
    first, second = (ssl.create_default_context(cafile=authority.ca_file) for _ in range(2))
    await used(ahead, Destination("127.0.0.1", behind.port, first, "localhost"))
    await behind.has(lambda b: len(b.accepted) == 2)
    await used(ahead, Destination("127.0.0.1", behind.port, second, "localhost"))
    with pytest.raises(Unreachable, match="certificate"):
        await used(ahead, Destination("127.0.0.1", behind.port, first, "elsewhere"))
    assert 1 not in behind.asked


async def test_spares_are_few_and_age(
    ahead: Spares, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "MAX_SPARES", 2)
    others = [Behind() for _ in range(2)]
    for other in (behind, *others):
        if other is not behind:
            await other.start()
        await used(ahead, Destination("127.0.0.1", other.port))
        await other.has(lambda b: len(b.accepted) == 2)
    await behind.has(lambda b: b.open == 0)  # the oldest made room
    assert [other.open for other in others] == [1, 1]
    monkeypatch.setattr(spares, "KEPT_S", 0.05)
    await used(ahead, Destination("127.0.0.1", others[0].port))
    await others[0].has(lambda b: len(b.accepted) == 3 and b.open == 0)
    for other in others:
        await other.stop()
