"""Evicts pods that exceed their limits of local disk usage.

The limits are the reference agent's (eviction manager, localStorageEviction): the size limit of an
emptyDir, the ephemeral-storage limit of a container, and the sum over all containers. Usage comes
from the latest sample; directories are measured about once a minute. One that is too deep or
holds too many files to be measured exceeds any limit: else a pod evades its limit by its shape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from nodeagent.pods.counts import PodCounts
from nodeagent.pods.registry import PodRegistry
from nodeagent.stats.samples import FsSample, PodSample, Sample
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import all_containers
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
RESOURCE = "ephemeral-storage"

Evict = Callable[[str, str], bool]  # uid, message → whether there was a pod to evict


def excess(pod: Pod, sample: PodSample, excessive: Mapping[str, str] = MappingProxyType({})) -> str:
    """The limit the pod exceeds, as a message for its status; "" when it is within all limits.

    `excessive` has the directories that cannot be measured, with the reason.
    """
    return (
        _volume_excess(pod, sample, excessive)
        or _pod_excess(pod, sample, excessive)
        or _container_excess(pod, sample)
    )


def has_limit(pod: Pod) -> bool:
    """Whether the pod has any limit of local disk usage."""
    volumes = (volume.emptyDir for volume in pod.spec.volumes or ())
    return any(directory and directory.sizeLimit for directory in volumes) or any(
        RESOURCE in podspec.limits(container) for container in all_containers(pod)
    )


class LocalStorageEviction:
    """Checks the latest sample, which `sampled` returns (None before the first).

    `excessive` is a view: the directories that cannot be measured, with the reason.
    """

    def __init__(
        self,
        registry: PodRegistry,
        counts: PodCounts,
        sampled: Callable[[], Sample | None],
        evict: Evict,
        excessive: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._registry = registry
        self._counts = counts
        self._sampled = sampled
        self._evict = evict
        self._excessive = excessive
        self._malformed = OnceLog(log)
        self._limited: dict[str, tuple[Pod, bool]] = {}  # uid → the pod and whether it has a limit

    async def run(self) -> None:
        await Periodic("pods.localstorage", self.step, interval_s=INTERVAL_S).run()

    async def step(self) -> None:
        sample = self._sampled()
        limited: dict[str, tuple[Pod, bool]] = {}
        for pod_sample in sample.pods if sample else ():
            uid = pod_sample.target.uid
            pod = self._registry.desired(uid)
            if pod is None:
                continue
            known = self._limited.get(uid)
            limited[uid] = known if known and known[0] is pod else (pod, has_limit(pod))
            if not limited[uid][1] or self._registry.has_ended(uid):
                continue
            try:
                message = excess(pod, pod_sample, self._excessive)
            except ValueError as error:  # stored before amounts were checked
                self._malformed.failed("pod %s: %s", pod.metadata.name, error, subject=uid)
                continue
            if message:
                self._counts.evictions[RESOURCE] += self._evict(uid, message)
        self._limited = limited
        self._malformed.retain(limited)


def _volume_excess(pod: Pod, sample: PodSample, excessive: Mapping[str, str]) -> str:
    used = {volume.target.name: volume.fs.used_bytes for volume in sample.volumes}
    paths = {volume.name: volume.path for volume in sample.target.volumes}
    for volume in pod.spec.volumes or ():
        limit = volume.emptyDir and volume.emptyDir.sizeLimit
        if limit and 0 < quantity.to_bytes(limit) < (used.get(volume.name) or 0):
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
        if limit and (why := excessive.get(paths.get(volume.name, ""))):
            return (
                f'EmptyDir volume "{volume.name}" has the limit "{limit}" and cannot be measured: '
                f"{why}. "
            )
    return ""


def _pod_excess(pod: Pod, sample: PodSample, excessive: Mapping[str, str]) -> str:
    limits = [limit for c in pod.spec.containers if (limit := podspec.limits(c).get(RESOURCE))]
    if not limits or len(limits) < len(pod.spec.containers):
        return ""
    total = sum(map(quantity.to_bytes, limits))
    own = [v.fs for v in sample.volumes if v.target.is_own_on_disk]
    used = _used(sample.logs, *own) + sum(_container_bytes(sample).values())
    unmeasured = (excessive.get(v.path) for v in sample.target.volumes if v.is_own_on_disk)
    if why := next(filter(None, unmeasured), ""):
        return f"Pod ephemeral local storage has the limit {total} and cannot be measured: {why}. "
    if used <= total:
        return ""
    return f"Pod ephemeral local storage usage exceeds the total limit of containers {total}. "


def _container_excess(pod: Pod, sample: PodSample) -> str:
    used = _container_bytes(sample)
    for container in all_containers(pod):
        limit = podspec.limits(container).get(RESOURCE)
        if limit and used.get(container.name, 0) > quantity.to_bytes(limit):
            return (
                f'Container {container.name} exceeded its local ephemeral storage limit "{limit}". '
            )
    return ""


def _container_bytes(sample: PodSample) -> Mapping[str, int]:
    return {c.target.name: _used(c.rootfs, c.logs) for c in sample.containers}


def _used(*parts: FsSample | None) -> int:
    return sum(part.used_bytes or 0 for part in parts if part)
