"""Starts device plugins as programs, and hears what they say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from orch.component.process import loops

PROGRAM = Path(__file__).with_name("device_plugin.py")
RESOURCE = "example.com/foo"
PATIENCE_S = 20.0


def command(folder: Path, resource: str, *words: str, endpoint: str = "foo.sock") -> list[str]:
    return [sys.executable, str(PROGRAM), str(folder), resource, endpoint, *words]


class PluginProgram:
    """A running plugin; `said` are its lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._reading = loops.spawn(self._read(), name="plugin's output")

    @classmethod
    async def start(
        cls, folder: Path, *words: str, resource: str = RESOURCE, endpoint: str = "foo.sock"
    ) -> PluginProgram:
        pipe = subprocess.PIPE
        line = command(folder, resource, *words, endpoint=endpoint)
        return cls(await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe))

    async def tell(self, **what: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        await self.process.stdin.drain()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await loops.cancel(self._reading)

    def calls(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.said if line.get("call") == name]

    def refusals(self) -> list[str]:
        return [line["refused"] for line in self.said if "refused" in line]

    @property
    def is_registered(self) -> bool:
        return any("registered" in line for line in self.said)

    async def _read(self) -> None:
        assert self.process.stdout
        async for line in self.process.stdout:
            self.said.append(json.loads(line))


@contextlib.asynccontextmanager
async def running(folder: Path, *words: str, **options: str) -> AsyncIterator[PluginProgram]:
    plugin = await PluginProgram.start(folder, *words, **options)
    try:
        yield plugin
    finally:
        await plugin.kill()


async def until(done: Callable[[], object]) -> None:
    """Wait, in real time, until `done()` is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            await asyncio.sleep(0.01)
