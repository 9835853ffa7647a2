"""Gives pods a node, as leader: looks at the cluster, chooses, binds, and tells where none fits.

A round looks at all pods anew and tries those that are due; it is cut into slices, so that the loop
is never blocked, and ends in time for newcomers. A pod on its way to a node counts there already.
Writes are let finish before leadership is given up, so that the next leader sees them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from orch.client.events import EventRecorder
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog
from orch.lifecycle.binding import placement
from orch.lifecycle.binding.placement import Cluster, Demand, Room
from orch.lifecycle.binding.waiting import Attempts, Rotation, in_turn
from orch.lifecycle.metrics import BindingMetrics
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.names import CAUSE_NODE_FULL
from orch.wire.podrules import fit
from orch.wire.podrules.podspec import FINAL_PHASES
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod, PodCondition

log = logging.getLogger(__name__)

SLICE_S = 0.003  # of work without a pause for others
ROUND_S = 0.5  # of trying, or twice what a look takes; what is left goes on after newcomers
PAUSE_S = 0.05  # when all were tried, or twice what a look takes: changes come in swarms
DUE_MAX = 1000  # pods of a namespace in one round
WRITERS = 32
TELLERS = 2
ASSUMED_S = 60.0  # that a binding may take to be seen, or to be known not to have happened
CLOSED_S = 30.0  # that a node which takes no more pods of a namespace is not tried for others
LET_FINISH_S = 4.0  # a write under way; less than a lost leadership lies idle
SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"


class _Assumed(NamedTuple):
    node: str
    until_s: float


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
        self._attempts = Attempts()
        self._assumed: dict[str, _Assumed] = {}  # by pod uid
        self._closed: dict[tuple[str, str], float] = {}  # by node and namespace: until when
        self._demands: dict[str, tuple[str, Demand]] = {}  # by pod key, with the pod's version
        self._changes = 0  # that may have made room
        self._seen: tuple[set[str], set[str]] = (set(), set())  # nodes with version; bound pods
        self._untold: Rotation[str, str] = Rotation()  # uids, by namespace
        self._messages: dict[str, tuple[Pod, str]] = {}  # for these, by uid
        self._telling = asyncio.Event()
        self._slice_s = 0.0
        self._outage = OnceLog(log)
        self._defects = OnceLog(log, logging.ERROR)  # by pod uid

    async def run(self) -> None:
        """Bind for ever; begun again after a defect, what is on its way is still known."""
        self._writing = asyncio.Semaphore(WRITERS)  # a write cancelled before it began kept its own
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TELLERS):
                tasks.create_task(self._tell())
            while True:
                began_s = _time()
                rooms, waiting = await self._look()
                looking_s = _time() - began_s
                due, next_s = await self._due(waiting)
                if not await self._try(due, rooms, tasks, within_s=max(ROUND_S, 2 * looking_s)):
                    continue
                await asyncio.sleep(max(PAUSE_S, 2 * looking_s))
                ends = chain((one.until_s for one in self._assumed.values()), self._closed.values())
                next_s = min((next_s, *ends))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(next_s):
                        await self._woken.wait()
                self._woken.clear()

    async def _try(
        self,
        due: Iterable[Pod],
        rooms: Mapping[str, Room],
        tasks: asyncio.TaskGroup,
        *,
        within_s: float,
    ) -> bool:
        """Whether all had their try in time."""
        tries = in_turn(due, self._attempts)
        await self._breathe()
        began_s = _time()
        for pod in tries:
            if _time() - began_s > within_s:
                return False
            try:
                await self._place(pod, rooms, tasks)
            except Exception as error:  # the nodes are judged by the same program
                self._attempts.failed(pod, self._changes, _time())
                text = "pod %s cannot be given a node, because of a defect here"
                self._defects.failed(text, pod.key, subject=pod.metadata.uid, error=error)
        return True

    async def _due(self, waiting: Iterable[Pod]) -> tuple[list[Pod], float]:
        """The pods to be tried now, and when the next of the others is due (inf: none is)."""
        now_s, due, next_s = _time(), [], math.inf
        of_namespace: Counter[str] = Counter()
        for pod in waiting:
            due_s = self._attempts.due_s(pod, self._changes)
            if due_s > now_s:
                next_s = min(next_s, due_s)
            elif of_namespace[pod.metadata.namespace or ""] < DUE_MAX:
                of_namespace[pod.metadata.namespace or ""] += 1
                due.append(pod)
            await self._breathe()
        return due, next_s

    async def _look(self) -> tuple[dict[str, Room], list[Pod]]:
        """The nodes with what is in use of them, and the pods that wait."""
        cluster = self._cluster()
        nodes, pods = dict(cluster.nodes), dict(cluster.pods)
        self._begin_slice()
        rooms = {name: Room(node) for name, node in nodes.items()}
        self._close(rooms)
        await self._breathe()
        waiting: dict[str, Pod] = {}
        bound, assumed = set[str](), set[str]()
        demands = {}
        for key, pod in pods.items():
            uid = pod.metadata.uid or ""
            node_name = pod.spec.nodeName or self._assumed_node(uid)
            if pod.status.phase in FINAL_PHASES:
                continue
            if node_name in rooms:
                demands[key] = self._demand(key, pod)
                rooms[node_name].take(demands[key][1])
                (bound if pod.spec.nodeName else assumed).add(uid)
            elif placement.is_own(pod):
                waiting[uid] = pod
            await self._breathe()
        self._demands = demands
        self._assumed = {uid: one for uid, one in self._assumed.items() if uid in assumed}
        self._count_changes(nodes, bound | assumed)
        self._attempts.keep(waiting)
        self._defects.retain(waiting)
        self._metrics.pending.set(len(waiting))
        await self._breathe()
        return rooms, [*waiting.values()]

    def _demand(self, key: str, pod: Pod) -> tuple[str, Demand]:
        version, known = pod.metadata.resourceVersion or "", self._demands.get(key)
        return known if known and known[0] == version else (version, placement.demand(pod))

    def _close(self, rooms: Mapping[str, Room]) -> None:
        """Leave out for a while what the API server refused; afterwards there may be room."""
        closed = {place: until_s for place, until_s in self._closed.items() if until_s > _time()}
        if len(closed) < len(self._closed):
            self._changes += 1
        self._closed = closed
        for node, namespace in closed:
            if node in rooms:
                rooms[node].closed_to.add(namespace)

    def _assumed_node(self, uid: str) -> str:
        assumed = self._assumed.get(uid)
        return assumed.node if assumed and assumed.until_s > _time() else ""

    def _count_changes(self, nodes: Mapping[str, Node], bound: set[str]) -> None:
        """Count what may have made room: a node that changed, a pod that ended or went."""
        shown = {f"{name} {node.metadata.resourceVersion}" for name, node in nodes.items()}
        if shown != self._seen[0] or self._seen[1] - bound:
            self._changes += 1
        self._seen = shown, bound

    async def _place(self, pod: Pod, rooms: Mapping[str, Room], tasks: asyncio.TaskGroup) -> None:
        wanted, choice = placement.demand(pod), fit.node_choice(pod)
        best: tuple[tuple[float, str], Room] | None = None
        counted: Counter[str] = Counter()
        problem = placement.unweighed(pod, choice)
        for room in () if problem else rooms.values():
            if reasons := placement.refusals(pod, wanted, choice, room):
                counted.update(reasons)
            else:
                use = room.use(wanted)
                best = (use, room) if best is None or use < best[0] else best
            await self._breathe()
        if best is None:
            self._refuse(pod, problem or placement.explanation(counted, len(rooms)))
            return
        best[1].take(wanted)
        node = best[1].node.metadata.name
        self._assumed[pod.metadata.uid or ""] = _Assumed(node, _time() + ASSUMED_S)
        await self._writing.acquire()
        tasks.create_task(self._bind(pod, best[1]))

    def _refuse(self, pod: Pod, message: str) -> None:
        self._metrics.attempts.labels("unschedulable").inc()
        self._attempts.failed(pod, self._changes, _time())
        told = _told(pod)
        if told is None or (told.reason, told.message) != (UNSCHEDULABLE, message):
            uid = pod.metadata.uid or ""
            if uid not in self._messages:
                self._untold.put(pod.metadata.namespace or "", uid)
            self._messages[uid] = pod, message
            self._telling.set()

    async def _bind(self, pod: Pod, room: Room) -> None:
        meta, node = pod.metadata, room.node.metadata.name
        uid, namespace = meta.uid or "", meta.namespace or ""
        record = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            binding = self._client.act(Pod, meta.name, "binding", record, namespace=namespace)
            await loops.finish(binding, name=f"bind {pod.key}", limit_s=LET_FINISH_S)
        except (ApiError, TransportError) as error:
            if isinstance(error, ApiError) and error.code < 500:
                self._assumed.pop(uid, None)  # else it may have happened: its room is kept
            if isinstance(error, ApiError) and _is_full(error):
                room.closed_to.add(namespace)
                self._closed[node, namespace] = _time() + CLOSED_S
                self._woken.set()  # another node may take it, at once
            else:
                self._failed(pod, error)
        else:
            self._metrics.attempts.labels("scheduled").inc()
            text = f"Successfully assigned {pod.key} to {node}"
            self._events.note(pod, "Normal", "Scheduled", text)
            self._outage.recovered("pods are bound to nodes again")
        finally:
            self._writing.release()

    def _failed(self, pod: Pod, error: ApiError | TransportError) -> None:
        self._metrics.attempts.labels("error").inc()
        self._attempts.failed(pod, self._changes - 1, _time())  # tried again after the pause
        self._woken.set()
        if isinstance(error, ApiError) and error.code in (404, 409):
            log.debug("the binding of pod %s was overtaken: %s", pod.key, error)
        else:
            self._outage.failed("cannot bind pods to nodes, retrying; pod %s: %s", pod.key, error)

    async def _tell(self) -> None:
        """Say of pods why they have no node, by condition and event."""
        while True:
            await self._telling.wait()
            while self._untold:
                pod, message = self._messages.pop(self._untold.take())
                await loops.finish(self._mark(pod, message), name="tell", limit_s=LET_FINISH_S)
            self._telling.clear()

    async def _mark(self, pod: Pod, message: str) -> None:
        others, meta = [c for c in pod.status.conditions or () if c.type != SCHEDULED], pod.metadata
        condition = PodCondition(
            type=SCHEDULED,
            status="False",
            reason=UNSCHEDULABLE,
            message=message,
            lastTransitionTime=times.format_time(self._now()),
        )
        before = _told(pod)
        if before is not None and before.status == condition.status:
            condition.lastTransitionTime = before.lastTransitionTime
        change = {
            "metadata": {"resourceVersion": meta.resourceVersion, "uid": meta.uid},
            "status": {"conditions": [c.to_wire() for c in (*others, condition)]},
        }
        try:
            await self._client.patch(
                Pod, meta.name, change, namespace=meta.namespace or "", subresource="status"
            )
        except (ApiError, TransportError) as error:
            log.debug("pod %s is not told that no node fits: %s", pod.key, error)
        else:
            self._events.note(pod, "Warning", "FailedScheduling", message)

    def _begin_slice(self) -> float:
        self._slice_s = _time()
        return self._slice_s

    async def _breathe(self) -> None:
        """Let others have their turn, when it is time."""
        if _time() - self._slice_s > SLICE_S:
            await asyncio.sleep(0)
            self._begin_slice()


def _is_full(error: ApiError) -> bool:
    return any(cause.reason == CAUSE_NODE_FULL for cause in error.causes)


def _told(pod: Pod) -> PodCondition | None:
    return next((c for c in pod.status.conditions or () if c.type == SCHEDULED), None)


def _time() -> float:
    return asyncio.get_running_loop().time()
