"""Gives pods a node, as leader: decides in rounds who gets which, binds, and tells where none fits.

A round is decided in a thread, so that the loop is never blocked, and ends in time for newcomers.
Its writes are let finish before the next one, and before leadership is given up, so that the next
leader sees them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.lifecycle.apply import Applier
from orch.lifecycle.binding import placement
from orch.lifecycle.binding.ledger import Cluster, Entry, Ledger
from orch.lifecycle.binding.placement import Room
from orch.lifecycle.decide.records import MarkPodUnscheduled, Note
from orch.lifecycle.metrics import BindingMetrics
from orch.wire.errors import ApiError
from orch.wire.names import CAUSE_NODE_FULL
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

ROUND_S = 0.25  # of trying; what is left goes on after newcomers
PAUSE_S = 0.1  # when all were tried, or twice what that took: changes come in swarms
RETRY_S = 1.0  # while pods wait: some may be due again
WRITERS = 32
ASSUMED_S = 60.0  # that a binding may take to be seen, or to be known not to have happened
CLOSED_S = 30.0  # that a node which takes no more pods of a namespace is not tried for others
LET_FINISH_S = 4.0  # a write under way; less than a lost leadership lies idle
UNSCHEDULABLE = "Unschedulable"

T = TypeVar("T")
Write = Callable[[], Coroutine[Any, Any, object]]


class Binder:
    """`changed` is to be set when nodes or pods have; `applier` tells the pods."""

    def __init__(
        self,
        client: ApiClient,
        applier: Applier,
        metrics: BindingMetrics,
        cluster: Callable[[], Cluster],
        *,
        changed: asyncio.Event,
    ) -> None:
        self._client = client
        self._applier = applier
        self._metrics = metrics
        self._cluster = cluster
        self._changed = changed
        self._ledger = Ledger(lambda pod: self._guarded(placement.demand, pod) or {})
        self._writing = asyncio.Semaphore(WRITERS)
        self._outage = OnceLog(log)
        self._defects = OnceLog(log, logging.ERROR)

    async def run(self) -> None:
        """Bind for ever; begun again after a defect, what is on its way is still known."""
        time = asyncio.get_running_loop().time
        while True:
            self._changed.clear()
            began_s = time()
            decide = partial(self._decide, self._cluster(), time)
            writes, is_all = await loops.finish_in_thread(decide, name="binding round")
            took_s = time() - began_s
            async with asyncio.TaskGroup() as tasks:
                for write in writes:
                    tasks.create_task(self._finish(write))
            if is_all:
                await asyncio.sleep(max(PAUSE_S, 2 * took_s))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S if self._ledger.waiting else ASSUMED_S):
                        await self._changed.wait()

    def _decide(self, cluster: Cluster, time: Callable[[], float]) -> tuple[list[Write], bool]:
        """What is to be written, and whether all that is due was tried. In a thread, while nothing
        else is done with what is remembered.
        """
        rooms, writes = self._ledger.look(cluster, time()), list[Write]()
        self._metrics.pending.set(len(self._ledger.waiting))
        until_s = time() + ROUND_S
        for entry in self._ledger.due(time()):
            if time() > until_s:
                return writes, False
            place = self._guarded(placement.place, entry.pod, entry.wanted, rooms)
            if isinstance(place, Room):
                node = place.node.metadata.name
                self._ledger.assume(entry, node, time() + ASSUMED_S)
                writes.append(partial(self._bind, entry, node))
                continue
            self._metrics.attempts.labels("unschedulable").inc()
            self._ledger.failed(entry, time())
            told = [(c.reason, c.message) for c in entry.pod.status.conditions or ()]
            if place and (UNSCHEDULABLE, place) not in told:
                mark = MarkPodUnscheduled(entry.pod, place, UNSCHEDULABLE)
                writes.append(partial(self._applier.apply, mark))
        return writes, True

    def _guarded(self, do: Callable[..., T], pod: Pod, *more: object) -> T | None:
        """None if a defect prevents it, which is to cost no other pod anything."""
        try:
            return do(pod, *more)
        except Exception as error:  # the nodes are judged by the same program
            text = "pod %s cannot be weighed, because of a defect here"
            self._defects.failed(text, pod.key, error=error)
            return None

    async def _finish(self, write: Write) -> None:
        async with self._writing:
            await loops.finish(write(), name="write of the binder", limit_s=LET_FINISH_S)

    async def _bind(self, entry: Entry, node: str) -> None:
        pod, meta, namespace = entry.pod, entry.pod.metadata, entry.pod.metadata.namespace or ""
        record = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.act(Pod, meta.name, "binding", record, namespace=namespace)
        except (ApiError, TransportError) as error:
            self._failed(entry, node, error)
        else:
            self._metrics.attempts.labels("scheduled").inc()
            text = f"Successfully assigned {pod.key} to {node}"
            await self._applier.apply(Note(pod, "Normal", "Scheduled", text))
            self._outage.recovered("pods are bound to nodes again")

    def _failed(self, entry: Entry, node: str, error: ApiError | TransportError) -> None:
        now_s = asyncio.get_running_loop().time()
        code, causes = (error.code, error.causes) if isinstance(error, ApiError) else (0, ())
        if any(cause.reason == CAUSE_NODE_FULL for cause in causes):
            self._ledger.close(entry, node, now_s + CLOSED_S)
            self._changed.set()
            return
        self._metrics.attempts.labels("error").inc()
        if 0 < code < 500:  # else it may have happened
            self._ledger.failed(entry, now_s)
        if code not in (404, 409):  # overtaken
            text = "cannot bind pods to nodes, retrying; pod %s: %s"
            self._outage.failed(text, entry.pod.key, error)
