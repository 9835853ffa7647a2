"""The container runtime of the local cluster: found, provisioned, or none.

Order: the endpoint in CONTAINER_RUNTIME_ENDPOINT, a running containerd >= 2 or CRI-O, a private one
provisioned by the runtime tool, none. Only a runtime provisioned here is stopped again, and started
when it ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orch.component import grpc_channel
from orch.component.process import system
from orch.component.process.daemon import SetupError
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

KEEP_INTERVAL_S = 5.0
SOCKETS = ("/run/containerd/containerd.sock", "/var/run/crio/crio.sock")
_VARIABLE = "CONTAINER_RUNTIME_ENDPOINT"
_OLDEST_CONTAINERD = 2
_TIMEOUT_S = 2.0
_NAME, _VERSION = 2, 3  # fields of VersionResponse in the CRI
_NOT_FOUND = 3  # exit code of `find` when nothing answers


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """`endpoint` None: run without a runtime, for the reason `why`.

    Pods in networks of their own reach the machine at `host_address`, "" where that is not known.
    """

    endpoint: str | None
    provisioned: bool = False
    host_address: str = ""
    why: str = ""


class RuntimeTool:
    """The provisioning tool (`tools/runtime`), called as a command."""

    def __init__(self, command: Path, directory: Path, *, shared: Path) -> None:
        """`shared` is the agent's directory, whose mounts the runtime must see."""
        self._command = command
        self._directory = directory
        self._shared = shared
        self._begun = False  # to provision one
        self._outage = OnceLog(log)

    async def choose(self) -> RuntimeChoice:
        """Find a runtime or provision one; progress goes to standard error."""
        code, found = await self._call("find")
        if code == 0:
            return RuntimeChoice(found)
        if code != _NOT_FOUND:
            raise SetupError("the search for a container runtime failed; see the lines above")
        if os.geteuid() != 0:
            return RuntimeChoice(None, why="none is running, and only root can provision one")
        self._begun = True
        code, told = await self._up()
        if code != 0:
            return RuntimeChoice(None, why="provisioning one failed; see the lines above")
        endpoint, _, host_address = told.partition("\n")
        return RuntimeChoice(endpoint, provisioned=True, host_address=host_address)

    async def keep(self, endpoint: str) -> None:
        """Start a provisioned runtime again whenever nobody listens at its socket."""
        while True:
            await asyncio.sleep(KEEP_INTERVAL_S)
            if await asyncio.to_thread(system.server_pid, endpoint.removeprefix("unix://")):
                self._outage.recovered("the private container runtime runs again")
                continue
            self._outage.failed("the private container runtime has ended: starting it again")
            await self._up()

    async def down(self) -> None:
        """Remove what `choose` provisioned, or began to."""
        if self._begun:
            await self._call("down", "--dir", str(self._directory))

    async def _up(self) -> tuple[int, str]:
        shared = ("--share", str(self._shared))
        return await self._call("up", "--dir", str(self._directory), *shared)

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
    choice = await tool.choose() if tool else await _running()
    if choice.endpoint is None:
        log.warning(
            "running without a container runtime: %s; stats, heartbeats and diagnostics work, "
            "pods do not",
            choice.why,
        )
    return choice


async def _running() -> RuntimeChoice:
    """The runtime that is named or runs; what the tool's `find` does, where there is none."""
    named = os.environ.get(_VARIABLE, "")
    if named:
        return RuntimeChoice(named if "://" in named else f"unix://{named}")
    for path in SOCKETS:
        if await _serves(path):
            return RuntimeChoice(f"unix://{path}")
    return RuntimeChoice(None, why="neither containerd >= 2 nor CRI-O answers; name another socket "
                         "with --container-runtime-endpoint")  # fmt: skip


async def _serves(path: str) -> bool:
    """Whether a runtime that is new enough answers at a socket."""
    if not await asyncio.to_thread(system.server_pid, path):
        return False
    channel = grpc_channel.Channel(f"unix://{path}", _version_stubs)
    try:
        fields = _texts(await channel.call("Version", b"", _TIMEOUT_S))
    except grpc_channel.CallFailed as error:
        log.warning("%s is no container runtime: %s", path, error)
        return False
    finally:
        await channel.close()
    name, version = fields.get(_NAME, ""), fields.get(_VERSION, "")
    major = version.removeprefix("v").partition(".")[0]
    old = name == "containerd" and not (major.isdecimal() and int(major) >= _OLDEST_CONTAINERD)
    if old:
        log.warning("%s: %s %s is too old, 2.0 is needed", path, name, version)
    return not old


class _VersionStub:
    """The one call that orch-up makes; messages are bytes."""

    def __init__(self, channel: Any) -> None:
        self.Version = channel.unary_unary("/runtime.v1.RuntimeService/Version")


def _version_stubs(channel: Any) -> Sequence[Any]:
    return (_VersionStub(channel),)


def _texts(message: bytes) -> dict[int, str]:
    """The fields of a message that has only short texts, by number."""
    found, position = {}, 0
    while position + 1 < len(message):
        start = position + 2
        end = start + message[position + 1]
        found[message[position] >> 3] = message[start:end].decode(errors="replace")
        position = end
    return found
