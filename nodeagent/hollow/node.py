"""A hollow node: the real Lease and status loops of an agent, with made-up facts about its host.

Faults of a running node: silent (sends nothing), slow (delays every request), flapping (Ready
changes), skewed (its wall clock is wrong).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodeagent.heartbeat import LeaseLoop
from nodeagent.node.rules.facts import (
    AddressFacts,
    FilesystemFacts,
    ImageFacts,
    MachineFacts,
    NodeFacts,
    UsageFacts,
)
from nodeagent.node.rules.settings import NodeSettings
from nodeagent.node.status_loop import StatusLoop, StatusTimes
from nodeagent.runtime.base import RuntimeCondition, RuntimeVersion
from nodeagent.runtime.verdict import NETWORK_READY, RUNTIME_READY, RuntimeHealth
from orch.client.answers import Response
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.process import clock, loops
from orch.wire.names import VERSION
from orch.wire.records.core import Node

_GI = 1024**3
FLAP_S = 20.0
_RUNNING = (RuntimeCondition(RUNTIME_READY, True), RuntimeCondition(NETWORK_READY, True))
_RUNTIME = RuntimeVersion("hollow", "1.0.0", "v1")
_MACHINE = MachineFacts(
    cpu_count=4,
    memory_bytes=16 * _GI,
    hostname="",
    architecture="amd64",
    operating_system="linux",
    kernel_version="6.1.0",
    os_image="hollow",
)
_DISK = FilesystemFacts(80 * _GI, 100 * _GI, 6_000_000, 6_500_000)
_USAGE = UsageFacts(12 * _GI, 4 * _GI, _DISK, _DISK, 400, 32768)
_IMAGES = tuple(ImageFacts((f"registry.example/app-{n}:1",), n * 10_000_000) for n in range(1, 11))


@dataclass(slots=True)
class Faults:
    """The present faults of a node."""

    silent: bool = False
    slow_s: float = 0.0
    flapping: bool = False
    skew_s: float = 0.0


class NodeTransport:
    """A node's view of the shared connections; slow when the node is."""

    def __init__(self, shared: Transport, faults: Faults) -> None:
        self.config = shared.config
        self._shared = shared
        self._faults = faults

    async def request(self, *args: Any, **kwargs: Any) -> Response:
        if self._faults.slow_s:
            await asyncio.sleep(self._faults.slow_s)
        return await self._shared.request(*args, **kwargs)

    async def reset(self) -> None:
        await self._shared.reset()


class HollowNode:
    """`shared` carries the requests of many nodes, so its `reset` must not drop connections."""

    def __init__(
        self, name: str, number: int, shared: Transport, *, lease_duration_s: int = 40
    ) -> None:
        self.name = name
        self.faults = Faults()
        self._machine = replace(
            _MACHINE, hostname=name, machine_id=name, system_uuid=name, boot_id=name
        )
        self._address = f"198.18.{number // 250 % 256}.{number % 250 + 1}"
        self._client = ApiClient(NodeTransport(shared, self.faults))  # type: ignore[arg-type]
        self._lease_duration_s = lease_duration_s
        self._tasks: list[asyncio.Task[None]] = []
        self._create_loops()

    def start(self) -> None:
        """Start the loops; after a stop, like an agent that restarts."""
        if not self._tasks:
            self._create_loops()
            self._tasks = [
                loops.spawn(self.status.run(), name=f"{self.name} status"),
                loops.spawn(self.lease.run(), name=f"{self.name} lease"),
            ]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        await loops.cancel(*tasks)

    def node_changed(self, node: Node | None) -> None:
        """Pass on the object at the API server; None when it does not exist."""
        if self._tasks:
            self.status.node_changed(node)

    def _create_loops(self) -> None:
        settings = NodeSettings(self.name, VERSION, 10250)
        self.lease = LeaseLoop(
            self._client, self.name, duration_s=self._lease_duration_s, now=self._now
        )
        self.status = StatusLoop(
            self._client, settings, self._collect, times=StatusTimes(now=self._now)
        )

    def _now(self) -> datetime:
        return clock.utc_now() + timedelta(seconds=self.faults.skew_s)

    async def _collect(self) -> NodeFacts:
        now_s = asyncio.get_running_loop().time()
        down = self.faults.flapping and int(now_s / FLAP_S) % 2 == 1
        return NodeFacts(
            time_s=now_s,
            machine=self._machine,
            usage=_USAGE,
            runtime=RuntimeHealth(last_good_s=now_s, conditions=_RUNNING, version=_RUNTIME),
            images=_IMAGES,
            addresses=(
                AddressFacts("InternalIP", self._address),
                AddressFacts("Hostname", self.name),
            ),
            problems=("the hollow node flaps",) if down else (),
        )
