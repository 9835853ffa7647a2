"""Link: a TCP connection between a client and a server on loopback that fails as it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from orch.component.process import loops


class Link:
    """Listens on `port` and passes everything to the server; the faults may be set at any time."""

    def __init__(self, server_port: int, host: str = "127.0.0.1") -> None:
        self.port = 0
        self.server_port = server_port  # may change: what is dialled from then on
        self.refusing = False  # new connections are closed at once
        self.delay_s = 0.0  # before each piece of an answer
        self.connections = 0
        self._host = host
        self._swallowing: set[int] = set()  # connections that pass nothing on
        self._open: dict[int, asyncio.Task[None]] = {}
        self._swallow_all = False
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._serve, self._host, self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._listener:
            self._listener.close()
        await loops.cancel(*self._open.values())

    def swallow_open_connections(self) -> None:
        """Those that are open now are dead without knowing it; new ones work."""
        self._swallowing |= set(self._open)

    @contextlib.contextmanager
    def black_hole(self) -> Iterator[None]:
        """Nothing passes, on any connection; those of that time stay dead."""
        self._swallow_all = True
        try:
            yield
        finally:
            self.swallow_open_connections()
            self._swallow_all = False

    async def cut(self) -> None:
        """Break every open connection."""
        await loops.cancel(*self._open.values())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections += 1
        number = self.connections
        self._open[number] = task
        try:
            if not self.refusing:
                await self._connect(number, reader, writer)
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            del self._open[number]
            writer.transport.abort()

    async def _connect(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(number, reader, far_writer, 0.0))
                group.create_task(self._pump(number, far_reader, writer, None))
        finally:
            far_writer.transport.abort()

    async def _pump(
        self,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        delay_s: float | None,
    ) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self.delay_s if delay_s is None else delay_s)
            if not self._swallow_all and number not in self._swallowing:
                writer.write(data)
                await writer.drain()
        raise ConnectionResetError
