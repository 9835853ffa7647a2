"""The frames that the adapter sends beside its calls, seen by a relay before the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

from nodeagent.runtime.cri import CriRuntime
from orch.component.process import loops
from tests.fakes.cri_server import CriServer

PREFACE_BYTES = 24
HEADER_BYTES = 9
DATA, PING, ACK = 0, 6, 1


class Relay:
    """Counts the client's HTTP/2 frames by type; answers to pings are not counted."""

    def __init__(self, server: str) -> None:
        self.frames: Counter[int] = Counter()
        self._server = server.removeprefix("unix://")
        self.ended = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._server)
        back = loops.spawn(_copy(from_server, writer), name="answers")
        try:
            to_server.write(await reader.readexactly(PREFACE_BYTES))
            while True:
                header = await reader.readexactly(HEADER_BYTES)
                to_server.write(header + await reader.readexactly(int.from_bytes(header[:3])))
                if not (header[3] == PING and header[4] & ACK):
                    self.frames[header[3]] += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone, perhaps before it read its last answer
        await loops.cancel(back)
        for one in (to_server, writer):
            one.close()
            with contextlib.suppress(ConnectionError):
                await one.wait_closed()
        self.ended.set()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)


async def test_answers_are_not_followed_by_pings(server: CriServer, tmp_path: Path) -> None:
    relay = Relay(server.endpoint)
    listener = await asyncio.start_unix_server(relay, tmp_path / "relay.sock")
    runtime = CriRuntime(f"unix://{tmp_path}/relay.sock")
    for _ in range(20):
        await runtime.version()
    await runtime.close()
    await relay.ended.wait()
    listener.close()
    assert relay.frames[DATA] == 20
    assert relay.frames[PING] == 0
