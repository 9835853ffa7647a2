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

from orch.client.events import EventRecorder
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog
from orch.lifecycle.apply import mark_unscheduled
from orch.lifecycle.binding import placement
from orch.lifecycle.binding.ledger import Cluster, Ledger
from orch.lifecycle.binding.placement import Demand, Room
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

Write = Callable[[], Coroutine[None, None, None]]


class Binder:
    """`changed` is to be set when nodes or pods have."""

    def __init__(
        self,
        client: ApiClient,
        events: EventRecorder,
        metrics: BindingMetrics,
        cluster: Callable[[], Cluster],
        *,
        changed: asyncio.Event,
        now: Now,
    ) -> None:
        self._client = client
        self._events = events
        self._metrics = metrics
        self._cluster = cluster
        self._now = now
        self._changed = changed
        self._ledger = Ledger(self._weigh)
        self._writing = asyncio.Semaphore(WRITERS)
        self._outage = OnceLog(log)
        self._defects = OnceLog(log, logging.ERROR)

    async def run(self) -> None:
        """Bind for ever; begun again after a defect, what is on its way is still known."""
        time = asyncio.get_running_loop().time
        while True:
            self._changed.clear()
            began_s = time()
            nodes, pods = self._cluster()
            decide = partial(self._decide, Cluster(dict(nodes), dict(pods)), time)
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
        for pod in self._ledger.due(time()):
            if time() > until_s:
                return writes, False
            try:
                wanted = placement.demand(pod)
                place = placement.place(pod, wanted, rooms)
            except Exception as error:  # the nodes are judged by the same program
                self._note_defect(pod, error)
                place = ""
            if isinstance(place, Room):
                node = place.node.metadata.name
                self._ledger.assume(pod, node, wanted, time() + ASSUMED_S)
                writes.append(partial(self._bind, pod, node))
                continue
            self._metrics.attempts.labels("unschedulable").inc()
            self._ledger.failed(pod, time())
            if place and not _is_told(pod, place):
                writes.append(partial(self._tell, pod, place))
        return writes, True

    def _weigh(self, pod: Pod) -> Demand:
        """What a bound pod takes; as good as nothing if that cannot be told."""
        try:
            return placement.demand(pod)
        except Exception as error:  # as above
            self._note_defect(pod, error)
            return {placement.PODS: 1000}

    def _note_defect(self, pod: Pod, error: Exception) -> None:
        text = "pod %s cannot be weighed, because of a defect here"
        self._defects.failed(text, pod.key, error=error)

    async def _finish(self, write: Write) -> None:
        async with self._writing:
            await loops.finish(write(), name="write of the binder", limit_s=LET_FINISH_S)

    async def _bind(self, pod: Pod, node: str) -> None:
        meta, namespace = pod.metadata, pod.metadata.namespace or ""
        record = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.act(Pod, meta.name, "binding", record, namespace=namespace)
        except (ApiError, TransportError) as error:
            self._failed(pod, node, error)
        else:
            self._metrics.attempts.labels("scheduled").inc()
            text = f"Successfully assigned {pod.key} to {node}"
            self._events.note(pod, "Normal", "Scheduled", text)
            self._outage.recovered("pods are bound to nodes again")

    def _failed(self, pod: Pod, node: str, error: ApiError | TransportError) -> None:
        now_s = asyncio.get_running_loop().time()
        code = error.code if isinstance(error, ApiError) else 0
        if isinstance(error, ApiError) and any(c.reason == CAUSE_NODE_FULL for c in error.causes):
            self._ledger.close(pod, node, now_s + CLOSED_S)
            self._changed.set()
            return
        self._metrics.attempts.labels("error").inc()
        if 0 < code < 500:  # else it may have happened
            self._ledger.failed(pod, now_s)
        if code in (404, 409):
            log.debug("the binding of pod %s was overtaken: %s", pod.key, error)
        else:
            self._outage.failed("cannot bind pods to nodes, retrying; pod %s: %s", pod.key, error)

    async def _tell(self, pod: Pod, message: str) -> None:
        """Say why the pod has no node, by condition and event."""
        try:
            await mark_unscheduled(self._client, pod, UNSCHEDULABLE, message, now=self._now)
        except (ApiError, TransportError) as error:
            log.debug("pod %s is not told that no node fits: %s", pod.key, error)
        else:
            self._events.note(pod, "Warning", "FailedScheduling", message)


def _is_told(pod: Pod, message: str) -> bool:
    told = (UNSCHEDULABLE, message)
    return any((c.reason, c.message) == told for c in pod.status.conditions or ())
