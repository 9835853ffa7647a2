"""Evicts pods, one at a time, while the node is short of a resource.

The status loop updates the state of the thresholds. When a threshold has been met for longer than
its grace period, this loop takes a new sample and evicts the first pod in the order of
`rules.ending_order`; the next only after that pod's containers have stopped, or a time limit, or
when a hard threshold follows a soft one, whose pods take time of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from nodeagent.node import collector
from nodeagent.node.rules import ending_order, pressure
from nodeagent.node.rules.ending_order import Candidate, ContainerUse
from nodeagent.node.rules.pressure import Observation, PressureState, Threshold
from nodeagent.node.status_loop import OwnNode
from nodeagent.pods import counts as pods_counts
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.decide.phase import HARD_GRACE_S
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec import spec
from nodeagent.stats import summary_disks
from nodeagent.stats.samples import ContainerSample, FsSample, PodSample, Sample
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.records.pods import Container, Pod

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
_ENDS_WITHIN_S = 30.0  # beyond the grace period of a victim


class Evict(Protocol):
    def __call__(self, uid: str, message: str, *, grace_s: int) -> bool: ...


class Evictions:
    """`state` returns the status loop's thresholds, `fresh` a new sample.

    `evict` returns False for a finished pod. An event on the node announces each resource that the
    node begins to reclaim.
    """

    def __init__(
        self,
        registry: PodRegistry,
        counts: PodCounts,
        node: OwnNode,
        *,
        state: Callable[[], PressureState],
        fresh: Callable[[], Awaitable[Sample]],
        evict: Evict,
        longest_soft_grace_s: int = 0,
        now: Now = clock.utc_now,
    ) -> None:
        self._registry = registry
        self._counts = counts
        self._state = state
        self._fresh = fresh
        self._evict = evict
        self._node = node
        self._longest_soft_grace_s = longest_soft_grace_s
        self._now = now
        self._victim = ""  # uid of the pod evicted last
        self._is_hard = False  # whether it may take no time of its own
        self._wait_until_s = 0.0
        self._reclaiming: frozenset[str] = frozenset()  # resources that were announced
        self._no_victim = OnceLog(log, logging.ERROR)  # no pod could help

    async def run(self) -> None:
        await Periodic("evictions", self.step, interval_s=INTERVAL_S).run()

    async def step(self) -> None:
        now_s = asyncio.get_running_loop().time()
        due = pressure.due_for_eviction(self._state(), now_s)
        threshold = ending_order.most_urgent(due)
        if threshold is None:
            self._reclaiming = frozenset()
            self._no_victim.recovered()
            return
        if self._is_stopping(now_s) and (self._is_hard or threshold.grace_s):
            return
        sample = await self._fresh()
        seen = pressure.observe(collector.usage_facts(sample, None)).get(threshold.signal)
        if seen is not None:
            self._relieve(threshold, seen, sample, now_s)

    def _is_stopping(self, now_s: float) -> bool:
        active = self._registry.view(self._victim).active
        return bool(self._victim and active) and now_s < self._wait_until_s

    def _relieve(
        self, threshold: Threshold, seen: Observation, sample: Sample, now_s: float
    ) -> None:
        resource = ending_order.RESOURCE_OF[threshold.signal]
        if resource not in self._reclaiming:
            self._reclaiming |= {resource}
            self._node.warn("EvictionThresholdMet", f"Attempting to reclaim {resource}")
        for candidate in ending_order.ranked(resource, self._candidates(sample)):
            grace_s = self._grace_s(threshold, candidate.uid)
            text = ending_order.message(threshold, seen, candidate)
            if self._evict(candidate.uid, text, grace_s=grace_s):
                self._count(threshold.signal, sample)
                self._victim, self._is_hard = candidate.uid, not threshold.grace_s
                self._no_victim.recovered()
                self._wait_until_s = now_s + grace_s + _ENDS_WITHIN_S
                return
        text = "the node is low on %s and there is no pod left to evict"
        self._no_victim.failed(text, resource)

    def _count(self, signal: str, sample: Sample) -> None:
        self._counts.evictions[signal] += 1
        age_s = self._now().timestamp() - sample.time_ns / 1e9
        self._counts.timings.observe(pods_counts.EVICTION_STATS_AGE, age_s, signal)

    def _grace_s(self, threshold: Threshold, uid: str) -> int:
        """Minimal for a hard threshold; the pod's own, up to the configured limit, for a soft."""
        if not threshold.grace_s:
            return HARD_GRACE_S
        pod = self._registry.desired(uid)
        own_s = spec.grace_period_s(pod) if pod else HARD_GRACE_S
        return min(own_s, self._longest_soft_grace_s) if self._longest_soft_grace_s else own_s

    def _candidates(self, sample: Sample) -> list[Candidate]:
        measured = {pod_sample.target.uid: pod_sample for pod_sample in sample.pods}
        found = []
        for pod in self._registry.all_desired():
            uid = pod.metadata.uid or ""
            if self._registry.view(uid).active and not self._registry.has_ended(uid):
                found.append(candidate_of(pod, measured.get(uid)))
        return found


def candidate_of(pod: Pod, sample: PodSample | None) -> Candidate:
    """The usage and requests of a pod; what was not measured is absent."""
    samples = {c.target.name: c for c in sample.containers} if sample else {}
    containers = tuple(
        ContainerUse(c.name, _container_use(samples.get(c.name)), _requested(c))
        for c in pod.spec.containers
    )
    return Candidate(
        uid=pod.metadata.uid or "",
        priority=pod.spec.priority or 0,
        static=podspec.is_static(pod),
        used=_pod_use(sample, containers),
        requested={
            resource: podspec.requested(pod, resource, quantity.to_bytes)
            for resource in (ending_order.MEMORY, ending_order.STORAGE)
        },
        containers=containers,
    )


def _requested(container: Container) -> dict[str, int]:
    requests = podspec.requests(container)
    return {
        resource: quantity.to_bytes(requests[resource])
        for resource in (ending_order.MEMORY, ending_order.STORAGE)
        if resource in requests
    }


def _container_use(sample: ContainerSample | None) -> dict[str, int]:
    if sample is None:
        return {}
    cgroup = sample.cgroup
    return _known(
        {
            ending_order.MEMORY: cgroup.memory.working_set_bytes
            if cgroup and cgroup.memory
            else None,
            ending_order.STORAGE: _disk_bytes(sample.rootfs, sample.logs),
            ending_order.PIDS: cgroup.processes.threads if cgroup and cgroup.processes else None,
        }
    )


def _pod_use(sample: PodSample | None, containers: tuple[ContainerUse, ...]) -> dict[str, int]:
    """The sum over the containers; disk usage includes the pod's volumes, and so does memory."""
    summed = {
        resource: sum(c.used.get(resource, 0) for c in containers)
        for resource in (ending_order.MEMORY, ending_order.PIDS)
    }
    whole = sample.cgroup.memory if sample and sample.cgroup else None
    if whole and whole.working_set_bytes is not None:  # with what ended containers left in volumes
        summed[ending_order.MEMORY] = max(summed[ending_order.MEMORY], whole.working_set_bytes)
    own = summary_disks.ephemeral_storage(sample, None) if sample else None
    disk = (
        {ending_order.STORAGE: own.used_bytes, ending_order.INODES: own.inodes_used} if own else {}
    )
    return summed | _known(disk)


def _disk_bytes(*parts: FsSample | None) -> int | None:
    used = [part.used_bytes for part in parts if part and part.used_bytes is not None]
    return sum(used) if used else None


def _known(amounts: dict[str, int | None]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount is not None}
