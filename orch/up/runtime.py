"""The container runtime of the local cluster: found, provisioned, or none.

Order: the endpoint in CONTAINER_RUNTIME_ENDPOINT, a running containerd >= 2 or CRI-O, a private one
provisioned by the runtime tool, none. Only a runtime provisioned here is stopped again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from orch.component.process.daemon import SetupError

log = logging.getLogger(__name__)

_NOT_FOUND = 3  # exit code of `find` when nothing answers


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """`endpoint` None: run without a runtime, for the reason `why`."""

    endpoint: str | None
    provisioned: bool = False
    why: str = ""


class RuntimeTool:
    """The provisioning tool (`tools/runtime`), called as a command."""

    def __init__(self, command: Path, directory: Path, *, shared: Path) -> None:
        """`shared` is the agent's directory, whose mounts the runtime must see."""
        self._command = command
        self._directory = directory
        self._shared = shared

    async def choose(self) -> RuntimeChoice:
        """Find a runtime or provision one; progress goes to standard error."""
        code, found = await self._call("find")
        if code == 0:
            return RuntimeChoice(found)
        if code != _NOT_FOUND:
            raise SetupError("the search for a container runtime failed; see the lines above")
        if os.geteuid() != 0:
            return RuntimeChoice(None, why="none is running, and only root can provision one")
        shared = ("--share", str(self._shared))
        code, endpoint = await self._call("up", "--dir", str(self._directory), *shared)
        if code != 0:
            return RuntimeChoice(None, why="provisioning one failed; see the lines above")
        return RuntimeChoice(endpoint, provisioned=True)

    async def down(self) -> None:
        await self._call("down", "--dir", str(self._directory))

    async def _call(self, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(self._command),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        return process.returncode or 0, output.decode().strip()


async def choose_runtime(endpoint: str | None, tool: RuntimeTool | None) -> RuntimeChoice:
    """The runtime at the configured `endpoint` ("" for none), or with None the tool's choice."""
    if endpoint is not None:
        return RuntimeChoice(endpoint or None)
    choice = await tool.choose() if tool else RuntimeChoice(None, why="no --runtime-tool is given")
    if choice.endpoint is None:
        log.warning(
            "running without a container runtime: %s; stats, heartbeats and diagnostics work, "
            "pods do not",
            choice.why,
        )
    return choice
