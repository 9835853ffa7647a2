"""The monitor: keeps the view current, decides every few seconds, and has the actions carried out.

The I/O around `decide`: informers, the canary that measures the view's age, the clock, and a
bounded number of concurrent writes. A monitor lives as long as one term of leadership: its memory
begins empty, so a new leader gives every node a whole grace period.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from orch.client.events import EventRecorder
from orch.client.informer import Informer
from orch.client.resources import ApiClient
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.lifecycle import canary
from orch.lifecycle.apply import Applier
from orch.lifecycle.canary import Canary
from orch.lifecycle.decide.decision import decide
from orch.lifecycle.decide.records import Action, Memory, Settings, Stamp, View
from orch.lifecycle.metrics import LifecycleMetrics
from orch.wire import names, times
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

WRITERS = 8
INFORMED = ("nodes", "pods", "leases")


class Monitor:
    """`identity` names this process in its canary."""

    def __init__(
        self,
        client: ApiClient,
        settings: Settings,
        events: EventRecorder,
        metrics: LifecycleMetrics,
        *,
        identity: str,
        now: Now = clock.utc_now,
    ) -> None:
        self.memory = Memory()
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._canary = Canary(client, identity, now=now)
        self._applier = Applier(client, events, metrics, now=now)
        self._nodes = Informer(client, Node)
        self._pods = Informer(client, Pod)
        self._leases = Informer(
            client, Lease, namespace=names.NODE_LEASE_NAMESPACE, on_change=self._lease_changed
        )
        self.informers: tuple[Informer[Any], ...] = (self._nodes, self._pods, self._leases)
        self._ticking = Periodic("node monitor", self.tick, interval_s=settings.period_s)
        self._writing = asyncio.Semaphore(WRITERS)
        self._blindness = OnceLog(log)
        self._outage = OnceLog(log)

    async def run(self) -> None:
        """Watch and decide, forever."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run())
            for informer in self.informers:
                await informer.wait_synced()
            log.info("deciding on %d nodes", len(self._nodes.objects()))
            group.create_task(self._ticking.run())

    def decision_age_s(self) -> float | None:
        """Seconds since the last decision was carried out; None before the first."""
        last_s = self._ticking.last_beat_s
        return None if last_s is None else asyncio.get_running_loop().time() - last_s

    async def tick(self) -> None:
        """One decision and its actions; followed at once by another if something was written."""
        began_s = asyncio.get_running_loop().time()
        await self._canary.fly(within_s=self._settings.period_s)
        view = self.view()
        self._log_view(view.age_s)
        decision = decide(self.memory, view, self._settings)
        self.memory = decision.memory
        failed = self._applier.failures
        written = await asyncio.gather(*(self._do(action) for action in decision.actions))
        self._log_failures(self._applier.failures - failed, len(decision.actions))
        self._show(view, asyncio.get_running_loop().time() - began_s)
        if any(written):
            self._ticking.wake()

    def view(self) -> View:
        """The cluster as the informers show it now."""
        leases = {lease.metadata.name: lease for lease in self._leases.objects().values()}
        leases.pop(canary.NAME, None)
        pods: dict[str, list[Pod]] = {}
        for pod in self._pods.objects().values():
            pods.setdefault(pod.spec.nodeName or "", []).append(pod)
        unbound = pods.pop("", [])
        now_s = asyncio.get_running_loop().time()
        stamp = Stamp(now_s, times.format_time(self._now()))
        nodes = dict(self._nodes.objects())
        return View(nodes, leases, pods, stamp, self._canary.age_s(), unbound)

    async def _do(self, action: Action) -> bool:
        async with self._writing:
            return await self._applier.apply(action)

    def _lease_changed(self) -> None:
        key = f"{names.NODE_LEASE_NAMESPACE}/{canary.NAME}"
        self._canary.seen(self._leases.objects().get(key))

    def _log_view(self, age_s: float) -> None:
        if age_s > self._settings.max_view_age_s:
            shown = "never been current" if math.isinf(age_s) else f"been stale for {age_s:.0f} s"
            text = "judging no node: this controller's own view has %s"
            self._blindness.failed(text, shown, cause="stale")
        else:
            text = "the view is current again: every node gets its whole grace anew"
            self._blindness.recovered(text)

    def _log_failures(self, failed: int, actions: int) -> None:
        """Log the beginning and the end of an outage: every round decides again about failures."""
        if failed:
            text = "%d of %d actions failed and are decided again, the last one: %s"
            self._outage.failed(text, failed, actions, self._applier.failure, cause="failed")
        elif actions:
            self._outage.recovered("actions are carried out again")

    def _show(self, view: View, took_s: float) -> None:
        ready = {name: node.ready == "True" for name, node in self.memory.nodes.items()}
        self._metrics.show_zones(view.nodes, ready)
        self._metrics.view_age.set(view.age_s)
        self._metrics.failures.set(self._applier.failures)
        self._metrics.decision.observe(took_s)
