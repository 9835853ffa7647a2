"""The status loop: registers the node, then keeps its status at the API server up to date.

The pure functions of `node.rules` turn facts into a status, which is patched when it changed or a
report is due. A patch carries the resourceVersion it was computed from, so it never overwrites an
unseen change. The node is watched, so that changes by others are answered at once. Timing:
pkg/kubelet/kubelet_node_status.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from nodeagent.node.rules import conditions, contention, labels, pressure, status
from nodeagent.node.rules.facts import NodeFacts
from nodeagent.node.rules.pressure import PressureState
from nodeagent.node.rules.settings import NodeSettings
from orch.client.events import EventRecorder
from orch.client.informer import Informer
from orch.client.json_api import SILENCE_S
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.diagnostics.health import CheckFailed
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.records.core import Node

log = logging.getLogger(__name__)


JITTER = 0.04
TRIES = 5
FAST_S, FAST_FOR_S = 0.1, 120.0
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 7.0  # between attempts to register
# What a refusal says → what to do about it.
_NEXT_STEPS: Mapping[str, str] = {
    "certificate verify failed": "put the server's authority into the kubeconfig",
    "client certificate": "have one issued by the server's authority, as 'nodeagent join' does",
    "connection refused": "check that the server runs, and its address in the kubeconfig",
    'forbidden: User "system:node:': "certificate and --hostname-override must name one node",
}


def _next_step(text: str) -> str:
    return next((f"; {step}" for sign, step in _NEXT_STEPS.items() if sign in text), "")


async def register(client: ApiClient, wanted: Node, *, create: bool) -> Node:
    """The Node object at the API server; without `create`, someone else must create it.

    Only the default labels of an existing object are changed. Raises what the client raises.
    """
    if create:
        try:
            return await client.create(wanted)
        except ApiError as error:
            if error.reason not in ("AlreadyExists", "Forbidden"):
                raise
    node = await client.get(Node, wanted.metadata.name)
    changes = labels.repairs(node.metadata.labels or {}, wanted.metadata.labels or {})
    if not changes:
        return node
    return await client.patch(Node, node.metadata.name, {"metadata": {"labels": changes}})


@dataclass(frozen=True, slots=True)
class StatusTimes:
    """How often the status is computed, and how often an unchanged status is reported.

    A watch of the node may be silent for `silence_s`.
    """

    update_s: float = 10.0
    report_s: float = 300.0
    silence_s: float = SILENCE_S
    now: Now = clock.utc_now
    rand: Callable[[], float] = random.random


class OwnNode:
    """This node's object, cached by the status loop for the agent's other components.

    Setting `changed` makes the loop compute the status again. `on_known` is called when what
    `judging` returns may no longer be None.
    """

    def __init__(self, events: EventRecorder | None = None) -> None:
        self.changed = asyncio.Event()
        self.events = events or EventRecorder(None, "nodeagent")
        self.on_known: Callable[[], None] = lambda: None
        self._seen: Node | None = None
        self._last: Node | None = None  # of `seen`, while it is read again
        self._measured: Node | None = None

    @property
    def seen(self) -> Node | None:
        """As last seen at the API server; None: not registered, or to be read again."""
        return self._seen

    @seen.setter
    def seen(self, node: Node | None) -> None:
        is_first = self._last is None and node is not None
        self._seen, self._last = node, node or self._last
        if is_first:
            self.on_known()

    def measure(self, node: Node) -> None:
        """The node by this machine's own facts."""
        self._measured = node
        self.on_known()

    def judging(self, static: bool) -> Node | None:
        """The node that pods must fit; until it is known at the API, only static ones can."""
        return self._last or (self._measured if static else None)

    def warn(self, reason: str, message: str) -> None:
        """Record an event on the node, once it is registered."""
        if self.seen is not None:
            self.events.note(self.seen, "Warning", reason, message)


class StatusLoop:
    """`collect` returns the current facts and must enforce its own deadlines.

    `settled` is awaited before the first report, until the facts are measured. Others read the node
    from `own` and wake this loop through it.

    Without a client (standalone) it does nothing. Read for metrics and health: `reports`,
    `failures` (rounds), `last_report_s` (loop time), `registered`, `ready`, `pressure`, `informer`.
    """

    def __init__(
        self,
        client: ApiClient | None,
        settings: NodeSettings,
        collect: Callable[[], Awaitable[NodeFacts]],
        *,
        own: OwnNode | None = None,
        times: StatusTimes = StatusTimes(),
        settled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.reports = 0
        self.failures = 0
        self.last_report_s: float | None = None
        self.registered = False
        self.ready = False
        self.pressure = PressureState()
        self._client = client
        self._settings = settings
        self._collect = collect
        self._times = times
        self._settled = settled
        self._own = own or OwnNode()
        self._report_due_s = self._relabel_due_s = 0.0
        self._outage = OnceLog(log)
        self._relabelling = OnceLog(log)
        self._gone = OnceLog(log)  # the node, from the API server
        self.informer = self._make_informer(client) if client else None

    def serve_on(self, port: int) -> None:
        """Set the port the agent actually listens on; before `run`."""
        self._settings = replace(self._settings, agent_port=port)

    def retime(self, *, update_s: float, report_s: float) -> None:
        """Change the intervals, from the next round on."""
        self._times = replace(self._times, update_s=update_s, report_s=report_s)

    def wake(self) -> None:
        self._own.changed.set()

    async def run(self) -> None:
        """Register and report, forever."""
        if self._client is None:
            log.info("running standalone: no API server is configured, the node is not reported")
        if self._settled:
            await self._settled()
        await self._measure()
        if self._client is None:
            await asyncio.Event().wait()
            return
        loop = asyncio.get_running_loop()
        fast_until_s = loop.time() + FAST_FOR_S
        backoff = Backoff(FIRST_DELAY_S, 2.0, LONGEST_DELAY_S)
        while True:
            succeeded = await self._round(self._client)
            if not self.registered:
                await asyncio.sleep(backoff.next())
                continue
            starting = succeeded and not self.ready and loop.time() < fast_until_s
            update_s = self._times.update_s * (1 + self._times.rand() * JITTER)
            await self._pause(FAST_S if starting else update_s)

    def node_changed(self, node: Node | None) -> None:
        """Respond to a change of the node by others (None: deleted)."""
        known = self._own.seen
        if not self.registered:
            return
        version = node.metadata.resourceVersion if node else None
        if known is None or version != known.metadata.resourceVersion:
            self._own.seen = node
            self.wake()

    def require_registered(self) -> None:
        """CheckFailed while the API server does not know the node."""
        if self._client is not None and not self.registered:
            raise CheckFailed("the node is not registered with the API server")

    async def watch(self) -> None:
        """Respond to changes of the node's object at the API server, forever."""
        if self.informer is None:
            await asyncio.Event().wait()
            return
        await self.informer.run()

    def _make_informer(self, client: ApiClient) -> Informer[Node]:
        name = self._settings.node_name
        informer = Informer(
            client,
            Node,
            field_selector=f"metadata.name={name}",
            on_change=lambda: self.node_changed(informer.objects().get(name)),
            silence_s=self._times.silence_s,
        )
        return informer

    async def _measure(self) -> None:
        facts, now = await self._collect(), times.format_time(self._times.now())
        self._own.measure(status.initial_node(self._settings, facts, self.pressure, now))

    async def _round(self, client: ApiClient) -> bool:
        """Report if due; False when the report failed."""
        facts = await self._collect()
        seen = pressure.observe(facts.usage)
        self.pressure = pressure.step(self.pressure, self._settings.thresholds, seen, facts.time_s)
        stalled = contention.step(
            self.pressure.contended, facts.usage.stalls, self._settings.contention
        )
        self.pressure = replace(self.pressure, contended=stalled)
        name, error = self._settings.node_name, None
        for number in range(TRIES if self.registered else 1):
            try:
                current = await self._current(client, facts)
                await self._update(client, await self._relabelled(client, current, facts), facts)
            except (ApiError, TransportError) as refusal:
                error = refusal
                self._own.seen = None  # read it again
                if number > 0:
                    await client.transport.reset()
            else:
                self._outage.recovered("reporting the status of node %s again", name)
                return True
        self.failures += 1
        lost = "cannot report the status of node %s, retrying: %s%s"
        self._outage.failed(lost, name, error, _next_step(str(error)))
        return False

    async def _current(self, client: ApiClient, facts: NodeFacts) -> Node:
        """The node as last seen, else read from the API server, else registered."""
        if self._own.seen is not None:
            return self._own.seen
        if self.registered:
            try:
                return await client.get(Node, self._settings.node_name)
            except ApiError as error:
                if error.code != 404:
                    raise
                name = self._settings.node_name
                self._gone.failed("node %s was deleted from the API server", name)
        return await self._register(client, facts)

    async def _relabelled(self, client: ApiClient, node: Node, facts: NodeFacts) -> Node:
        """The node with the labels of its machine, put back once a period if others change them."""
        wanted = labels.machine_labels(status.wanted_labels(self._settings, facts.machine))
        changes = labels.repairs(node.metadata.labels or {}, wanted)
        now_s = asyncio.get_running_loop().time()
        if not changes:
            self._relabelling.recovered()
        if not changes or now_s < self._relabel_due_s:
            return node
        self._relabel_due_s = now_s + self._times.update_s
        shown = ", ".join(changes)
        self._relabelling.failed("others changed labels of this node, putting back: %s", shown)
        return await client.patch(Node, node.metadata.name, {"metadata": {"labels": changes}})

    async def _register(self, client: ApiClient, facts: NodeFacts) -> Node:
        now = times.format_time(self._times.now())
        wanted = status.initial_node(self._settings, facts, self.pressure, now)
        node = await register(client, wanted, create=self._settings.register)
        log.info("node %s is registered", self._settings.node_name)
        self.registered = True
        self._gone.recovered()
        self._note_reboot(node, facts)
        return node

    async def _update(self, client: ApiClient, node: Node, facts: NodeFacts) -> None:
        values = status.condition_values(self._settings, facts, self.pressure)
        if self.last_report_s is not None:
            facts = replace(facts, devices=replace(facts.devices, is_first=False))
        now = times.format_time(self._times.now())
        wanted = status.node_status(self._settings, facts, values, node.status, now)
        now_s = asyncio.get_running_loop().time()
        fresh = status.differs(node.status, wanted)
        if fresh or now_s >= self._report_due_s:
            patch = status.patch(node.status, wanted)
            patch["metadata"] = {"resourceVersion": node.metadata.resourceVersion}
            self._own.seen = await client.patch(
                Node, node.metadata.name, patch, subresource="status"
            )
            self._reported(now_s, is_moved=fresh or self.last_report_s is None)
            for value in conditions.transitions(values, node.status.conditions):
                text = f"Node {node.metadata.name} status is now: {value.event}"
                self._own.events.note(node, "Normal", value.event, text)
        else:
            self._own.seen = node
        self.ready = values[-1].status == "True"

    def _reported(self, now_s: float, *, is_moved: bool) -> None:
        """Schedule the next report; jitter after a change and at the start spreads nodes."""
        share = 0.5 + self._times.rand() if is_moved else 1.0
        self._report_due_s = now_s + self._times.report_s * share
        self.last_report_s = now_s
        self.reports += 1

    def _note_reboot(self, node: Node, facts: NodeFacts) -> None:
        before = node.status.nodeInfo.bootID if node.status.nodeInfo else ""
        if before and facts.machine.boot_id and before != facts.machine.boot_id:
            text = f"Node {node.metadata.name} has been rebooted, boot id: {facts.machine.boot_id}"
            self._own.events.note(node, "Warning", "Rebooted", text)

    async def _pause(self, pause_s: float) -> None:
        """Wait for `pause_s`, or until the loop is woken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._own.changed.wait()
        self._own.changed.clear()
