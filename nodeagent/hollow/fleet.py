"""Many hollow nodes in one process: started over a ramp, observed by one watch, measured.

The figures: how late renewals were, how many failed, and how many nodes the API server shows as
ready or not.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.hollow.node import Faults, HollowNode
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport, TransportError
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.wire.errors import ApiError
from orch.wire.records.core import Node

log = logging.getLogger(__name__)

_SAMPLE_S = 0.5
_FAULTS = ("silent", "slow", "flapping", "skewed")
_SLOW_S, _SKEW_S = 2.0, 3600.0


class SharedTransport(Transport):
    """Connections shared by many nodes: one node's failure must not drop them."""

    async def reset(self) -> None:
        """Do nothing; `close` drops the connections."""

    async def close(self) -> None:
        await super().reset()


@dataclass(frozen=True, slots=True)
class Figures:
    """`late_*_s` are of all renewals since the last reset, in whole milliseconds."""

    nodes: int
    beating: int
    renewals: int
    failures: int
    late_p50_s: float | None
    late_p99_s: float | None
    late_max_s: float | None
    shown: Mapping[str, int]  # status of Ready → nodes


class Lateness(collections.Counter[int]):
    """How many renewals were how late, in whole milliseconds."""

    def add(self, late_s: float) -> None:
        self[round(1000 * late_s)] += 1

    def quantile(self, share: float) -> float | None:
        """The lateness in seconds that `share` of all renewals did not exceed; None without any."""
        left = share * self.total()
        for late_ms in sorted(self):
            left -= self[late_ms]
            if left <= 0:
                return late_ms / 1000
        return None


class Fleet:
    """`count` nodes named `<prefix>00000` and so on, sharing an identity."""

    def __init__(
        self,
        config: ClientConfig,
        count: int,
        *,
        prefix: str = "hollow-",
        lease_duration_s: int = 40,
    ) -> None:
        self._shared = SharedTransport(config, user_agent="nodeagent-hollow")
        self.watching = ApiClient(Transport(config, user_agent="nodeagent-hollow watch"))
        self.nodes: dict[str, HollowNode] = {}
        for number in range(count):
            name = f"{prefix}{number:05d}"
            self.nodes[name] = HollowNode(
                name, number, self._shared, lease_duration_s=lease_duration_s
            )
        self.lateness = Lateness()
        self._counted: dict[str, int] = {}
        self._renewals = 0
        self.shown: dict[str, str] = {}  # the status of Ready by node, at the API server
        self._seen_version = ""  # resourceVersion to watch from; "": list first

    async def ramp(self, seconds: float) -> None:
        """Start all nodes, evenly spread over time."""
        for node in self.nodes.values():
            node.start()
            await asyncio.sleep(seconds / len(self.nodes))
        log.info("started %d hollow nodes", len(self.nodes))

    async def measure(self) -> None:
        """Collect the lateness of renewals, forever."""
        while True:
            await asyncio.sleep(_SAMPLE_S)
            for name, node in self.nodes.items():
                if node.lease.renewals != self._counted.get(name, 0):
                    self._renewals += 1
                    self._counted[name] = node.lease.renewals
                    self.lateness.add(node.lease.late_s)

    async def watch(self) -> None:
        """Pass every node its object from the API server, forever."""
        backoff, outage = Backoff(0.2, 2.0, 7.0), OnceLog(log)
        while True:
            try:
                if not self._seen_version:
                    await self._list()
                await self._follow()
                backoff.reset()
                outage.recovered()
            except (ApiError, TransportError) as error:
                if isinstance(error, ApiError) and error.code == 410:
                    self._seen_version = ""
                outage.failed("cannot watch the nodes, retrying: %s", error)
                await asyncio.sleep(backoff.next())

    async def _list(self) -> None:
        listed = await self.watching.list(Node)
        for node in listed.items:
            self._node_changed(node.metadata.name, node)
        self._seen_version = listed.resource_version

    async def _follow(self) -> None:
        events = self.watching.watch(Node, resource_version=self._seen_version)
        async with contextlib.aclosing(events):
            async for event in events:
                self._seen_version = event.object.metadata.resourceVersion or self._seen_version
                if event.type != "BOOKMARK":
                    gone = event.type == "DELETED"
                    self._node_changed(event.object.metadata.name, None if gone else event.object)

    def _node_changed(self, name: str, node: Node | None) -> None:
        conditions = node.status.conditions or () if node else ()
        ready = next((c.status for c in conditions if c.type == "Ready"), "")
        self.shown[name] = ready
        if name in self.nodes:
            self.nodes[name].node_changed(node)

    def choose(self, count: int) -> list[str]:
        """Random nodes without a fault."""
        healthy = [name for name, node in self.nodes.items() if node.faults == Faults()]
        return random.sample(healthy, min(count, len(healthy)))

    async def inject(self, kind: str, names: Iterable[str]) -> None:
        """ValueError for an unknown fault."""
        if kind not in _FAULTS:
            raise ValueError(f"there is no fault {kind!r}; use one of {', '.join(_FAULTS)}")
        for name in names:
            node = self.nodes[name]
            if kind == "silent":
                node.faults.silent = True
                await node.stop()
            elif kind == "slow":
                node.faults.slow_s = _SLOW_S
            elif kind == "flapping":
                node.faults.flapping = True
            else:
                node.faults.skew_s = _SKEW_S

    def heal(self) -> None:
        """Remove all faults."""
        for name, node in self.nodes.items():
            node.faults.slow_s = node.faults.skew_s = 0.0
            node.faults.flapping = False
            if node.faults.silent:
                node.faults.silent = False
                self._counted.pop(name, None)
                node.start()

    def figures(self) -> Figures:
        return Figures(
            nodes=len(self.nodes),
            beating=sum(node.lease.renewals > 0 for node in self.nodes.values()),
            renewals=self._renewals,
            failures=sum(node.lease.failures for node in self.nodes.values()),
            late_p50_s=self.lateness.quantile(0.5),
            late_p99_s=self.lateness.quantile(0.99),
            late_max_s=self.lateness.quantile(1.0),
            shown=dict(collections.Counter(self.shown.get(name, "") for name in self.nodes)),
        )

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.stop()
        await self._shared.close()
        await self.watching.transport.close()
