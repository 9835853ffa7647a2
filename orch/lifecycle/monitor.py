"""The monitor: keeps the view current, decides every few seconds, and has the actions carried out.

The I/O around `decide`: informers, the canary that measures the view's age, the clock, and a
bounded number of concurrent writes. A monitor lives as long as one term of leadership: its memory
begins empty, so a new leader gives every node a whole grace period.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from orch.lifecycle.binding.ledger import Cluster
from orch.lifecycle.canary import Canary
from orch.lifecycle.decide.decision import decide
from orch.lifecycle.decide.records import (
    Action,
    Decision,
    EvictPod,
    MarkPodNotReady,
    Memory,
    RemoveOrphan,
    Settings,
    Stamp,
    View,
)
from orch.lifecycle.metrics import LifecycleMetrics
from orch.wire import names, times
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

WRITERS = 8
POD_WRITES = 8 * WRITERS  # that are begun together; more only if that took no whole period
INFORMED = ("nodes", "pods", "leases")


class Monitor:
    """`identity` names this process in its canary; `changed` is called when nodes or pods have."""

    def __init__(
        self,
        client: ApiClient,
        settings: Settings,
        events: EventRecorder,
        metrics: LifecycleMetrics,
        *,
        identity: str,
        changed: Callable[[], object] = lambda: None,
        now: Now = clock.utc_now,
    ) -> None:
        self.memory = Memory()
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._canary = Canary(client, identity, now=now)
        self._applier = Applier(client, events, metrics, now=now)
        self._nodes = Informer(client, Node, on_change=changed)
        self._pods = Informer(client, Pod, on_change=changed)
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

    async def wait_synced(self) -> None:
        """Wait until nodes and pods are known."""
        await self._nodes.wait_synced()
        await self._pods.wait_synced()

    def cluster(self) -> Cluster:
        """The nodes and pods as they are known now."""
        return Cluster(dict(self._nodes.objects()), dict(self._pods.objects()))

    def decision_age_s(self) -> float | None:
        """Seconds since the last decision was carried out; None before the first."""
        last_s = self._ticking.last_beat_s
        return None if last_s is None else asyncio.get_running_loop().time() - last_s

    async def tick(self) -> None:
        """One decision and its actions; followed at once by another if something was written."""
        began_s = asyncio.get_running_loop().time()
        await self._canary.fly(within_s=self._settings.period_s)
        # Pure, of objects that nobody changes; of ten thousand pods it takes a tenth of a second.
        view, decision = await asyncio.to_thread(self._decided, *self._known())
        self._log_view(view.age_s)
        self.memory = decision.memory
        failed = self._applier.failures
        written = await self._carry_out(decision.actions)
        newly_failed = self._applier.failures - failed
        self._metrics.failures.inc(newly_failed)
        self._log_failures(newly_failed, len(decision.actions))
        self._show(view, asyncio.get_running_loop().time() - began_s)
        if written:
            self._ticking.wake()

    def _known(self) -> tuple[Cluster, Mapping[str, Lease], Stamp, float]:
        """The cluster as the informers show it now; `_decided` does the rest of the work."""
        stamp = Stamp(asyncio.get_running_loop().time(), times.format_time(self._now()))
        return self.cluster(), dict(self._leases.objects()), stamp, self._canary.age_s()

    def _decided(
        self, cluster: Cluster, leases: Mapping[str, Lease], stamp: Stamp, age_s: float
    ) -> tuple[View, Decision]:
        by_name = {lease.metadata.name: lease for lease in leases.values()}
        by_name.pop(canary.NAME, None)
        pods: dict[str, list[Pod]] = {}
        for pod in cluster.pods.values():
            pods.setdefault(pod.spec.nodeName or "", []).append(pod)
        unbound = pods.pop("", [])
        view = View(cluster.nodes, by_name, pods, stamp, age_s, unbound)
        return view, decide(self.memory, view, self._settings)

    async def _carry_out(self, actions: Sequence[Action]) -> bool:
        """Whether anything was written. Pods come last, since they may be thousands: on what is not
        done within a period the next round decides again, which judges the nodes first.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._settings.period_s
        others, pods = parted(actions)
        written = await self._do_all(others)
        for first in range(0, len(pods), POD_WRITES):
            if loop.time() > until_s:
                break
            written |= await self._do_all(pods[first : first + POD_WRITES])
        return written

    async def _do_all(self, actions: Sequence[Action]) -> bool:
        return any(await asyncio.gather(*(self._do(action) for action in actions)))

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
        self._metrics.decision.observe(took_s)


OnPod = EvictPod | MarkPodNotReady | RemoveOrphan  # decided again until the pod shows it


def parted(actions: Sequence[Action]) -> tuple[list[Action], list[OnPod]]:
    """Those on pods apart: namespaces take turns, and which pods of one come first is left to
    chance, since some may be refused in each round.
    """
    pods = [action for action in actions if isinstance(action, OnPod)]
    random.shuffle(pods)
    turns = Counter[str | None]()

    def turn(action: OnPod) -> int:
        namespace = action.pod.metadata.namespace
        turns[namespace] += 1
        return turns[namespace]

    return [each for each in actions if not isinstance(each, OnPod)], sorted(pods, key=turn)
