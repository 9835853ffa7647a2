"""The sizes that this node has granted each pod, kept in a file, and resizes that wait for room.

The one place that knows what pods desire: `settle` turns desired pods into allocated ones, on the
way in. However often a pod is resized, it is judged ten times a second at most, by its newest
desire, and all that is granted in a pass is written at once. A pod is granted its size before a
container of it is created.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from nodeagent.pods.counts import PodCounts
from nodeagent.pods.resize import changes, judging
from nodeagent.pods.resize.judging import DEFERRED, Pending, Wish
from nodeagent.pods.resize.sizes import SizeGrant, allocated_pod, is_allocated
from nodeagent.pods.resize.state_file import StateFile
from orch.component.process.clock import Now
from orch.wire import times
from orch.wire.podrules.podspec import FINAL_PHASES, lasting
from orch.wire.podrules.resources import PARTS, RESIZED
from orch.wire.records.pods import Pod, ResourceRequirements

log = logging.getLogger(__name__)

FEATURE = "InPlacePodVerticalScaling"
_PAUSE_S = 0.1  # between two grants to one pod
_TICK_S = 0.01  # timers may fire this much early
_EVENTS = {DEFERRED: "ResizeDeferred", judging.INFEASIBLE: "ResizeInfeasible"}


class Events(Protocol):
    """Tells users of pods; `nodeagent.pods.events.PodEvents` does."""

    def normal(self, pod: Pod, reason: str, message: str) -> None: ...
    def warning(self, pod: Pod, reason: str, message: str) -> None: ...


class Allocations:
    """By uid. `on_pending` is called when it changes why a pod's resize waits."""

    def __init__(
        self,
        file: StateFile,
        events: Events,
        counts: PodCounts,
        now: Now,
        on_pending: Callable[[str], None] = lambda _uid: None,
    ) -> None:
        self.on_pending = on_pending
        self.enabled = True  # the feature gate
        self.again_in_s: float | None = None  # when to settle again, for resizes too soon
        self._file = file
        self._events = events
        self._counts = counts
        self._now = now
        self._allocated: dict[str, SizeGrant] = {}
        self._entries: dict[str, dict[str, Any]] = {}  # as the file has them
        self._pending: dict[str, Pending] = {}
        self._granted_s: dict[str, float] = {}  # loop time of a pod's last resize
        self._settled: dict[str, tuple[Pod, SizeGrant, Pod]] = {}  # desired, granted, allocated
        self._amounts: dict[str, tuple[Pod, judging.Amounts]] = {}
        self._asked: dict[str, int] = {}  # the generation whose resize was counted

    def restore(self) -> None:
        """Take over what the last agent granted. SetupError for a file that cannot be trusted."""
        for uid, entry in self._file.read().items():
            try:
                self._allocated[uid] = _read(entry)
            except (ValueError, TypeError, AttributeError, KeyError):
                raise self._file.refuse_entry(uid) from None
            self._entries[uid] = entry

    def of(self, uid: str) -> SizeGrant | None:
        return self._allocated.get(uid)

    def pending(self, uid: str) -> Pending | None:
        return self._pending.get(uid)

    def grant(self, pod: Pod, *, runs: bool) -> None:
        """A pod that was admitted gets what it desires, unless it was granted something before;
        `runs`: an agent that could not resize had started it.
        """
        uid = pod.metadata.uid or ""
        if uid not in self._allocated:
            allocation = allocation_of(pod)
            if runs:
                allocation = replace(allocation, first=allocation.containers)
            self._set(uid, allocation)
            self._settled[uid] = (pod, allocation, pod)

    async def save(self) -> bool:
        """Wait until all that was granted so far is on disk; False when it cannot be."""
        return await self._file.save(lambda: dict(self._entries))

    def retain(self, uids: set[str]) -> None:
        """Forget all other pods; the file forgets them when it is next written."""
        for known in (
            *(self._allocated, self._entries, self._pending, self._granted_s),
            *(self._settled, self._amounts, self._asked),
        ):
            for uid in known.keys() - uids:
                del known[uid]

    async def settle(
        self, desired: Sequence[Pod], in_use: Iterable[Pod], allocatable: Mapping[str, Any] | None
    ) -> list[Pod]:
        """The desired pods with what they are allocated, after granting what there is room for.

        `in_use` are the pods that use the node, as allocated; without `allocatable` nothing is
        judged.
        """
        self.again_in_s = None
        wishes = [] if allocatable is None else self._wishes(desired)
        if wishes and allocatable is not None:
            verdicts: Mapping[str, Pending | None] = (
                judging.judge(wishes, self._used(in_use), allocatable)
                if self.enabled
                else {w.pod.metadata.uid or "": _switched_off(w.pod) for w in wishes}
            )
            await self._decide({w.pod.metadata.uid or "": w for w in wishes}, verdicts)
        return [self._allocated_pod(pod) for pod in desired]

    def _wishes(self, desired: Sequence[Pod]) -> list[Wish]:
        now_s, wishes = asyncio.get_running_loop().time(), []
        for pod in desired:
            uid = pod.metadata.uid or ""
            allocation = self._allocated.get(uid)
            if allocation is None or self._is_settled(pod, allocation):
                continue
            if pod.metadata.deletionTimestamp or pod.status.phase in FINAL_PHASES:
                self._set_pending(uid, None)
                continue
            if is_allocated(pod, allocation):
                self._set_pending(uid, None)
                self._settled[uid] = (pod, allocation, pod)
                continue
            self._count(pod, allocation)
            early_s = self._granted_s.get(uid, now_s - _PAUSE_S) + _PAUSE_S - now_s
            if early_s > _TICK_S:
                self.again_in_s = min(early_s, self.again_in_s or early_s)
                continue
            wishes.append(Wish(pod, allocation, _since_s(pod, self._now())))
        return wishes

    def _is_settled(self, pod: Pod, allocation: SizeGrant) -> bool:
        """Whether the very pod was found to desire what it has."""
        known = self._settled.get(pod.metadata.uid or "")
        return known is not None and known[0] is pod is known[2] and known[1] is allocation

    def _used(self, in_use: Iterable[Pod]) -> judging.Amounts:
        total = {"cpu": 0, "memory": 0}
        for pod in in_use:
            uid = pod.metadata.uid or ""
            known = self._amounts.get(uid)
            if known is None or known[0] is not pod:
                known = self._amounts[uid] = (pod, judging.amounts(pod))
            for name, amount in known[1].items():
                total[name] += amount
        return total

    async def _decide(
        self, wishes: Mapping[str, Wish], verdicts: Mapping[str, Pending | None]
    ) -> None:
        granted = [uid for uid, pending in verdicts.items() if pending is None]
        former = {uid: (self._allocated[uid], self._entries[uid]) for uid in granted}
        for uid in granted:
            self._set(uid, allocation_of(wishes[uid].pod, first=wishes[uid].allocation.first))
        if granted and not await self.save():
            for uid, (allocation, entry) in former.items():
                self._allocated[uid], self._entries[uid] = allocation, entry
            granted = []
        for uid in granted:
            self._granted_s[uid] = asyncio.get_running_loop().time()
            pod, generation = wishes[uid].pod, self._allocated[uid].generation
            if self._pending.get(uid, _NONE).reason == DEFERRED:
                self._counts.deferred_accepted_resizes += 1
            text = changes.event_text("Pod resize started", pod, generation)
            self._events.normal(pod, "ResizeStarted", text)
            self._set_pending(uid, None)
        for uid, pending in verdicts.items():
            if pending is not None:
                self._postpone(wishes[uid].pod, pending)

    def _postpone(self, pod: Pod, pending: Pending) -> None:
        uid = pod.metadata.uid or ""
        before = self._pending.get(uid, _NONE)
        if (before.reason, before.generation) != (pending.reason, pending.generation):
            if pending.reason == judging.INFEASIBLE:
                self._counts.infeasible_resizes += 1
            prefix = f"Pod resize {pending.reason}"
            text = changes.event_text(prefix, pod, pending.generation, pending.message)
            self._events.warning(pod, _EVENTS[pending.reason], text)
        self._set_pending(uid, pending)

    def _count(self, pod: Pod, allocation: SizeGrant) -> None:
        """Count what is asked for, once for each generation that is looked at."""
        uid, generation = pod.metadata.uid or "", pod.metadata.generation or 0
        if self._asked.get(uid) != generation:
            self._asked[uid] = generation
            self._counts.requested_resizes.update(_operations(pod, allocation))

    def _set_pending(self, uid: str, pending: Pending | None) -> None:
        if self._pending.get(uid) == pending:
            return
        if pending is None:
            del self._pending[uid]
        else:
            self._pending[uid] = pending
        self.on_pending(uid)

    def _set(self, uid: str, allocation: SizeGrant) -> None:
        self._allocated[uid] = allocation
        self._entries[uid] = _written(allocation)

    def _allocated_pod(self, pod: Pod) -> Pod:
        uid = pod.metadata.uid or ""
        allocation = self._allocated.get(uid)
        if allocation is None:
            return pod
        known = self._settled.get(uid)
        if known is None or known[0] is not pod or known[1] is not allocation:
            known = self._settled[uid] = (pod, allocation, allocated_pod(pod, allocation))
        return known[2]


_NONE = Pending("", "", -1)


def _switched_off(pod: Pod) -> Pending:
    text = f"{FEATURE} is disabled"
    return Pending(judging.INFEASIBLE, text, pod.metadata.generation or 0)


def _since_s(pod: Pod, now: datetime) -> float:
    """Since when the pod's resize has waited, by its status."""
    for condition in pod.status.conditions or ():
        if condition.type == changes.PENDING and condition.lastTransitionTime:
            return times.parse_time(condition.lastTransitionTime).timestamp()
    return now.timestamp()


def _operations(pod: Pod, allocation: SizeGrant) -> Iterable[tuple[str, str, str]]:
    """Resource, `requests` or `limits`, and what is asked for, of each container that changes."""
    for container in lasting(pod):
        granted = allocation.containers.get(container.name)
        for part in ("requests", "limits"):
            new = getattr(container.resources, part, None) or {}
            old = getattr(granted, part, None) or {}
            for name in ("cpu", "memory"):
                if operation := _operation(old.get(name), new.get(name)):
                    yield name, part, operation


def _operation(old: Any, new: Any) -> str:
    before, after = (judging.read(amount) for amount in (old, new))
    if before == after:
        return ""
    if not before or not after:
        return "remove" if before else "add"
    return "increase" if after > before else "decrease"


def allocation_of(
    pod: Pod, *, first: Mapping[str, ResourceRequirements] | None = None
) -> SizeGrant:
    """All that the pod desires of cpu and memory: no resize changes the rest, however long."""
    containers = {c.name: _resized_part(c.resources) for c in lasting(pod)}
    whole = None if pod.spec.resources is None else _resized_part(pod.spec.resources)
    return SizeGrant(containers, whole, pod.metadata.generation or 0, first or {})


def _resized_part(given: ResourceRequirements | None) -> ResourceRequirements:
    amounts = {part: getattr(given, part, None) for part in PARTS}
    kept = {
        part: {name: amount for name, amount in listed.items() if name in RESIZED}
        for part, listed in amounts.items()
        if listed is not None
    }
    return ResourceRequirements(**kept)


def _written(allocation: SizeGrant) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "generation": allocation.generation,
        "containers": {name: r.to_wire() for name, r in allocation.containers.items()},
    }
    if allocation.whole is not None:
        entry["resources"] = allocation.whole.to_wire()
    if allocation.first:
        entry["first"] = {name: r.to_wire() for name, r in allocation.first.items()}
    return entry


def _read(entry: Any) -> SizeGrant:
    whole = entry.get("resources")
    return SizeGrant(
        {name: ResourceRequirements.from_wire(r) for name, r in entry["containers"].items()},
        None if whole is None else ResourceRequirements.from_wire(whole),
        int(entry["generation"]),
        {name: ResourceRequirements.from_wire(r) for name, r in entry.get("first", {}).items()},
    )
