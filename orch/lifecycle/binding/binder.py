"""Gives pods a node, as leader: decides in rounds who gets which, binds, and tells where none fits.

A round is decided in a thread, so that the loop is never blocked, and ends in time for newcomers.
Its writes are let finish before the next one, and before leadership is given up, so that the next
leader sees them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial

from orch.client.events import EventRecorder
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog
from orch.lifecycle.apply import mark_unscheduled
from orch.lifecycle.binding import placement
from orch.lifecycle.binding.ledger import Ledger
from orch.lifecycle.binding.placement import Cluster, Room
from orch.lifecycle.metrics import BindingMetrics
from orch.wire.errors import ApiError
from orch.wire.names import CAUSE_NODE_FULL
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

ROUND_S = 0.5  # of trying; what is left goes on after newcomers
ROUND_WRITES = 256
PAUSE_S = 0.1  # when all were tried, or twice what that took: changes come in swarms
WRITERS = 32
ASSUMED_S = 60.0  # that a binding may take to be seen, or to be known not to have happened
CLOSED_S = 30.0  # that a node which takes no more pods of a namespace is not tried for others
LET_FINISH_S = 4.0  # a write under way; less than a lost leadership lies idle
UNSCHEDULABLE = "Unschedulable"

Found = tuple[Pod, Room | str]  # a node with room for it, or why there is none


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
        self._woken = changed
        self._ledger = Ledger()
        self._writing = asyncio.Semaphore(WRITERS)
        self._outage = OnceLog(log)
        self._defects = OnceLog(log, logging.ERROR)  # by pod

    async def run(self) -> None:
        """Bind for ever; begun again after a defect, what is on its way is still known."""
        time = asyncio.get_running_loop().time
        while True:
            self._woken.clear()
            began_s = time()
            nodes, pods = self._cluster()
            cluster = Cluster(dict(nodes), dict(pods))
            decide = partial(self._decide, cluster, time)
            found, next_s = await loops.finish_in_thread(decide, name="binding round")
            took_s = time() - began_s
            async with asyncio.TaskGroup() as tasks:
                for pod, place in found:
                    tasks.create_task(self._write(pod, place))
            if next_s > began_s:
                await asyncio.sleep(max(PAUSE_S, 2 * took_s))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(next_s, time() + ASSUMED_S)):
                        await self._woken.wait()

    def _decide(self, cluster: Cluster, time: Callable[[], float]) -> tuple[list[Found], float]:
        """What is to be written, and when there is more to decide. In a thread, while nothing else
        is done with what is remembered.
        """
        began_s, found = time(), list[Found]()
        rooms = self._ledger.look(cluster, began_s)
        self._defects.retain(self._ledger.waiting)
        self._metrics.pending.set(len(self._ledger.waiting))
        pods, _ = self._ledger.due(began_s)
        until_s = time() + ROUND_S
        for pod in pods:
            if len(found) == ROUND_WRITES or time() > until_s:
                return found, began_s
            try:
                place = self._place(pod, rooms, time())
            except Exception as error:  # the nodes are judged by the same program
                self._ledger.failed(pod, time())
                text = "pod %s cannot be given a node, because of a defect here"
                self._defects.failed(text, pod.key, subject=pod.key, error=error)
            else:
                if isinstance(place, Room) or not _is_told(pod, place):
                    found.append((pod, place))
        return found, self._ledger.due(time())[1]

    def _place(self, pod: Pod, rooms: Sequence[Room], now_s: float) -> Room | str:
        wanted = placement.demand(pod)
        place = placement.place(pod, wanted, rooms)
        if isinstance(place, Room):
            self._ledger.assume(pod, place.node.metadata.name, wanted, now_s + ASSUMED_S)
        else:
            self._metrics.attempts.labels("unschedulable").inc()
            self._ledger.failed(pod, now_s)
        return place

    async def _write(self, pod: Pod, place: Room | str) -> None:
        async with self._writing:
            if isinstance(place, Room):
                await self._bind(pod, place)
            else:
                await self._tell(pod, place)

    async def _bind(self, pod: Pod, room: Room) -> None:
        meta, namespace = pod.metadata, pod.metadata.namespace or ""
        node = room.node.metadata.name
        record = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            binding = self._client.act(Pod, meta.name, "binding", record, namespace=namespace)
            await loops.finish(binding, name=f"bind {pod.key}", limit_s=LET_FINISH_S)
        except (ApiError, TransportError) as error:
            self._failed(pod, node, error)
        else:
            self._metrics.attempts.labels("scheduled").inc()
            text = f"Successfully assigned {pod.key} to {node}"
            self._events.note(pod, "Normal", "Scheduled", text)
            self._outage.recovered("pods are bound to nodes again")

    def _failed(self, pod: Pod, node: str, error: ApiError | TransportError) -> None:
        now_s = asyncio.get_running_loop().time()
        if isinstance(error, ApiError) and _is_full(error):
            self._ledger.close(pod, node, now_s + CLOSED_S)
            self._woken.set()
            return
        self._metrics.attempts.labels("error").inc()
        if isinstance(error, ApiError) and error.code < 500:  # else it may have happened
            self._ledger.failed(pod, now_s)
            self._woken.set()
        if isinstance(error, ApiError) and error.code in (404, 409):
            log.debug("the binding of pod %s was overtaken: %s", pod.key, error)
        else:
            self._outage.failed("cannot bind pods to nodes, retrying; pod %s: %s", pod.key, error)

    async def _tell(self, pod: Pod, message: str) -> None:
        """Say why the pod has no node, by condition and event."""
        try:
            marking = mark_unscheduled(self._client, pod, UNSCHEDULABLE, message, now=self._now)
            await loops.finish(marking, name=f"mark {pod.key}", limit_s=LET_FINISH_S)
        except (ApiError, TransportError) as error:
            log.debug("pod %s is not told that no node fits: %s", pod.key, error)
        else:
            self._events.note(pod, "Warning", "FailedScheduling", message)


def _is_full(error: ApiError) -> bool:
    return any(cause.reason == CAUSE_NODE_FULL for cause in error.causes)


def _is_told(pod: Pod, message: str) -> bool:
    told = (UNSCHEDULABLE, message)
    return any((c.reason, c.message) == told for c in pod.status.conditions or ())
