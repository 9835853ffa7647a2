"""A runtime's streaming server for exec: commands run on this host instead of in a container.

Speaks SPDY/3.1 and `v4.channel.k8s.io` as containerd does; passes the same contract tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import struct
import termios
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Sequence

from orch.component.streams import spdy
from orch.component.streams.spdy import Data, SynReply, SynStream

SUCCESS = {"metadata": {}, "status": "Success"}


def exited(code: int) -> dict[str, object]:
    if code == 0:
        return SUCCESS
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }


class _Session:
    """One connection: its streams by type, then one command."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._encoder = spdy.FrameWriter()
        self._decoder = spdy.FrameReader()
        self._types: dict[int, str] = {}
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue(16)
        self._terminal = -1

    async def run(self, command: Sequence[str], types: set[str]) -> None:
        while set(self._types.values()) != types:
            await self._take(await self._reader.read(65536))
        if "resize" in types:
            self._terminal, inside = pty.openpty()
        else:
            inside = -1
        pipe = asyncio.subprocess.PIPE if inside < 0 else inside
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        async with asyncio.TaskGroup() as tasks:
            input_tasks = [tasks.create_task(self._read()), tasks.create_task(self._feed(process))]
            if inside < 0:
                outputs = (("stdout", process.stdout), ("stderr", process.stderr))
                passing = [tasks.create_task(self._pass(*output)) for output in outputs]
                await asyncio.gather(*passing)
                code = await process.wait()
            else:
                os.close(inside)
                await self._pass_terminal()
                code = await process.wait()
            for task in input_tasks:
                task.cancel()
        await self._send("error", json.dumps(exited(code)).encode())
        for stream_id in self._types:
            self._writer.write(self._encoder.write(spdy.RstStream(stream_id)))
        self._writer.close()

    async def _read(self) -> None:
        while data := await self._reader.read(65536):
            await self._take(data)

    async def _take(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if isinstance(frame, SynStream):
                self._types[frame.stream_id] = dict(frame.headers)["streamtype"]
                self._writer.write(self._encoder.write(SynReply(frame.stream_id)))
            elif isinstance(frame, Data):
                kind = self._types[frame.stream_id]
                if kind == "stdin":
                    if frame.data:
                        await self._stdin.put(frame.data)
                    if frame.is_fin:
                        await self._stdin.put(b"")
                elif kind == "resize":
                    size = json.loads(frame.data)
                    packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                    fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, packed)

    async def _feed(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._stdin.get():
                if self._terminal >= 0:
                    os.write(self._terminal, data)
                elif process.stdin is not None:
                    process.stdin.write(data)
                    await process.stdin.drain()
            if process.stdin is not None:
                process.stdin.close()

    async def _pass(self, kind: str, output: StreamReader | None) -> None:
        while output is not None and (data := await output.read(32768)):
            await self._send(kind, data)

    async def _pass_terminal(self) -> None:
        with contextlib.suppress(OSError):  # how a terminal ends
            while data := await asyncio.to_thread(os.read, self._terminal, 4096):
                await self._send("stdout", data)
        os.close(self._terminal)

    async def _send(self, kind: str, data: bytes) -> None:
        for stream_id, name in self._types.items():
            if name == kind:
                self._writer.write(self._encoder.write(Data(stream_id, data)))
                await self._writer.drain()


@contextlib.asynccontextmanager
async def stream_server(command: Sequence[str], types: set[str]) -> AsyncIterator[int]:
    """The port of a server that runs `command` for its one client, who opens streams of `types`."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError):
            await _Session(reader, writer).run(command, types)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
