"""Carry out decisions: each action becomes requests to the API server.

Every write names the version or uid it was decided for, so that a decision never hits an object
that has changed since: on a conflict the next decision judges again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from orch.client.events import EventRecorder
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process.clock import Now
from orch.lifecycle.decide.records import (
    Action,
    EvictPod,
    MarkPodNotReady,
    MarkPodUnscheduled,
    Note,
    RemoveLease,
    RemoveOrphan,
    UpdateNode,
)
from orch.lifecycle.metrics import LifecycleMetrics
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.podrules.podspec import FINAL_PHASES
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod, PodCondition

log = logging.getLogger(__name__)

_SEEN_WITHIN_S = 30.0  # a deletion, by the watch
_TAINT_TEXT = "Taint manager: deleting due to NoExecute taint"
_ORPHAN_TEXT = "PodGC: node no longer exists"


class Applier:
    """Carries actions out; `failures` counts those that did not succeed, `failure` is the last."""

    def __init__(
        self, client: ApiClient, events: EventRecorder, metrics: LifecycleMetrics, *, now: Now
    ) -> None:
        self.failures = 0
        self.failure = ""
        self._client = client
        self._events = events
        self._metrics = metrics
        self._now = now
        self._evicted: OrderedDict[str, float] = OrderedDict()  # uid → when, in the loop's time

    async def apply(self, action: Action) -> bool:
        """Returns whether it wrote anything; a refusal is counted and left to the next decision."""
        try:
            return await self._dispatch(action)
        except (ApiError, TransportError) as error:
            if isinstance(error, ApiError) and error.code in (404, 409):
                log.debug("%s was overtaken: %s", _shown(action), error)
            else:
                self.failures += 1
                self.failure = f"{_shown(action)}: {error}"
                log.debug("not done: %s", self.failure)
            return False

    async def _dispatch(self, action: Action) -> bool:
        match action:
            case Note():
                self._events.note(action.obj, action.type, action.reason, action.message)
                return False
            case UpdateNode():
                await self._update_node(action)
            case MarkPodNotReady():
                await self._mark(action.pod)
            case MarkPodUnscheduled():
                await self._mark_unscheduled(action)
            case EvictPod():
                return await self._evict(action.pod)
            case RemoveOrphan():
                return await self._remove_orphan(action.pod)
            case RemoveLease():
                return await self._remove_lease(action.lease)
        return True

    async def _update_node(self, action: UpdateNode) -> None:
        node, name = action.node, action.node.metadata.name
        if action.conditions is not None:
            conditions = [condition.to_wire() for condition in action.conditions]
            change = {"metadata": _version(node), "status": {"conditions": conditions}}
            node = await self._client.patch(Node, name, change, subresource="status")
            log.warning("node %s is silent: its conditions are now Unknown", name)
        if action.taints is not None:
            taints = [taint.to_wire() for taint in action.taints] or None
            change = {"metadata": _version(node), "spec": {"taints": taints}}
            await self._client.patch(Node, name, change)
            shown = ", ".join(f"{t.key}:{t.effect}" for t in action.taints) or "none"
            log.info("taints of node %s: %s", name, shown)
        if action.evicting:
            self._metrics.count_eviction(action.zone)

    async def _mark(self, pod: Pod) -> None:
        now = times.format_time(self._now())
        changed = [
            c.model_copy(update={"status": "False", "lastTransitionTime": now})
            if c.type == "Ready"
            else c
            for c in pod.status.conditions or ()
        ]
        await self._patch_status(pod, {"conditions": [c.to_wire() for c in changed]})
        self._events.note(pod, "Warning", "NodeNotReady", "Node is not ready")

    async def _mark_unscheduled(self, action: MarkPodUnscheduled) -> None:
        pod, message = action.pod, action.message
        self._events.note(pod, "Warning", "FailedScheduling", message)
        conditions = {c.type: c for c in pod.status.conditions or ()}
        before = conditions.pop("PodScheduled", None)
        since = before.lastTransitionTime if before and before.status == "False" else None
        scheduled = PodCondition(
            type="PodScheduled",
            status="False",
            reason=action.reason,
            message=message,
            lastTransitionTime=since or times.format_time(self._now()),
        )
        listed = [c.to_wire() for c in (*conditions.values(), scheduled)]
        await self._patch_status(pod, {"conditions": listed})

    async def _evict(self, pod: Pod) -> bool:
        """Once: until the watch shows the deletion, further decisions ask for it again."""
        now_s, uid = asyncio.get_running_loop().time(), pod.metadata.uid or ""
        while self._evicted and now_s - next(iter(self._evicted.values())) > _SEEN_WITHIN_S:
            self._evicted.popitem(last=False)
        if uid in self._evicted:
            return False
        await self._disrupt(pod, "DeletionByTaintManager", _TAINT_TEXT, {})
        text = f"Marking for deletion Pod {pod.key}"
        self._events.note(pod, "Normal", "TaintManagerEviction", text)
        await self._delete(pod)
        self._evicted[uid] = now_s
        log.info("evicted pod %s from node %s because of its taints", pod.key, pod.spec.nodeName)
        return True

    async def _remove_orphan(self, pod: Pod) -> bool:
        if await self._node_exists(pod.spec.nodeName or ""):
            return False
        over = pod.status.phase in FINAL_PHASES
        phase = {} if over else {"phase": "Failed"}
        await self._disrupt(pod, "DeletionByPodGC", _ORPHAN_TEXT, phase)
        await self._delete(pod, grace_period_s=0)
        log.info("removed pod %s: its node %s does not exist", pod.key, pod.spec.nodeName)
        return True

    async def _remove_lease(self, lease: Lease) -> bool:
        name = lease.metadata.name
        if await self._node_exists(name):
            return False
        await self._delete(lease)
        log.info("removed the Lease of node %s: the node no longer exists", name)
        return True

    async def _delete(self, obj: Pod | Lease, *, grace_period_s: int | None = None) -> None:
        meta = obj.metadata
        await self._client.delete(
            type(obj), meta.name, meta.namespace or "", grace_period_s=grace_period_s, uid=meta.uid
        )

    async def _disrupt(self, pod: Pod, reason: str, message: str, status: dict[str, Any]) -> None:
        """Mark the pod with the reason of its deletion; a second time changes nothing."""
        conditions: Sequence[PodCondition] = pod.status.conditions or ()
        if any(c.type == "DisruptionTarget" and c.status == "True" for c in conditions):
            return
        added = PodCondition(
            type="DisruptionTarget",
            status="True",
            reason=reason,
            message=message,
            lastTransitionTime=times.format_time(self._now()),
        )
        kept = [c for c in conditions if c.type != added.type]
        listed = [c.to_wire() for c in (*kept, added)]
        await self._patch_status(pod, {**status, "conditions": listed})

    async def _patch_status(self, pod: Pod, status: dict[str, Any]) -> None:
        change = {"metadata": _version(pod), "status": status}
        namespace, name = pod.metadata.namespace or "", pod.metadata.name
        await self._client.patch(Pod, name, change, namespace=namespace, subresource="status")

    async def _node_exists(self, name: str) -> bool:
        """Ask the server, not the view: a removal cannot be undone."""
        return await self._client.find(Node, name) is not None


def _shown(action: Action) -> str:
    match action:
        case Note():
            return f"event {action.reason} of {action.obj.key}"
        case UpdateNode():
            return f"update of node {action.node.metadata.name}"
        case MarkPodNotReady():
            return f"marking pod {action.pod.key} as not ready"
        case MarkPodUnscheduled():
            return f"marking pod {action.pod.key} as not scheduled: {action.reason}"
        case EvictPod():
            return f"eviction of pod {action.pod.key}"
        case RemoveOrphan():
            return f"removal of pod {action.pod.key}, whose node no longer exists"
        case RemoveLease():
            return f"removal of the Lease of node {action.lease.metadata.name}"


def _version(obj: Node | Pod) -> dict[str, Any]:
    return {"resourceVersion": obj.metadata.resourceVersion, "uid": obj.metadata.uid}
