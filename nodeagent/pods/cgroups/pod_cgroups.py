"""The cgroups of pods, in every hierarchy of the host: created and removed with the pod.

Works on cgroup v1, hybrid and v2. The runtime creates the containers' cgroups; this module creates
their parents, `<parent>[/burstable|/besteffort]/pod<uid>`, and limits each pod to the sum of its
containers' limits, if each has one, and all pods to the memory that is not reserved. Without the
permission pods run unlimited: logged once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from nodeagent.pods import counts
from nodeagent.pods.cgroups import tree
from nodeagent.pods.cgroups.tree import CgroupError as CgroupError
from nodeagent.pods.counts import Timings
from nodeagent.pods.spec import spec
from nodeagent.pods.spec.policy import (
    DEFAULT_POLICY,
    ResourcePolicy,
    class_unified,
    hugepage_bounds,
    pod_unified,
)
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)


def pod_bounds(
    pod: Pod, *, unified: bool, pids_limit: int = -1, policy: ResourcePolicy = DEFAULT_POLICY
) -> Mapping[str, str]:
    """File → value for the pod's cgroup; each file exists in one hierarchy only."""
    shares = spec.cpu_shares(podspec.requested(pod, "cpu"))
    bounds = share_bound(shares, unified=unified)
    if milli := podspec.limited(pod, "cpu"):
        bounds |= _quota_bound(policy.quota_usec(milli), policy.cfs_period_usec, unified=unified)
    memory_bytes = podspec.limited(pod, "memory", quantity.to_bytes)
    if memory_bytes is not None:
        bounds |= memory_bound(memory_bytes, unified=unified)
    if pids_limit > 0:
        bounds["pids.max"] = str(pids_limit)
    if unified:
        bounds |= pod_unified(pod, policy)
    return bounds | hugepage_bounds(pod, unified=unified)


def _quota_bound(quota_usec: int | None, period_usec: int, *, unified: bool) -> dict[str, str]:
    """File → value for a limit of cpu; None: one that is not enforced, and maybe was before."""
    if unified:
        return {"cpu.max": f"{quota_usec or 'max'} {period_usec}"}
    quota = "-1" if quota_usec is None else str(quota_usec)
    return {"cpu.cfs_period_us": str(period_usec), "cpu.cfs_quota_us": quota}


def burstable_milli(pod: Pod) -> int:
    """The cpu that it requests, if it is Burstable."""
    return podspec.requested(pod, "cpu") if podspec.qos_class(pod) == podspec.BURSTABLE else 0


def class_shares(milli: int) -> dict[str, int]:
    """cpu shares of the service classes with a cgroup, where Burstable pods request so much cpu:
    BestEffort gets the minimum.
    """
    return {
        podspec.BURSTABLE: spec.cpu_shares(milli),
        podspec.BEST_EFFORT: spec.MIN_CPU_SHARES,
    }


def share_bound(shares: int, *, unified: bool) -> dict[str, str]:
    """File → value for cpu shares."""
    return {"cpu.weight": str(cpu_weight(shares))} if unified else {"cpu.shares": str(shares)}


def memory_bound(memory_bytes: int | None, *, unified: bool) -> dict[str, str]:
    """File → value for a limit of memory; None: unlimited."""
    if unified:
        return {"memory.max": "max" if memory_bytes is None else str(memory_bytes)}
    return {"memory.limit_in_bytes": "-1" if memory_bytes is None else str(memory_bytes)}


def _of_unified(bounds: Mapping[str, str], *, unified: bool) -> Mapping[str, str]:
    return bounds if unified else {}


def cpu_weight(shares: int) -> int:
    """cpu.weight 1 to 10000 for shares 2 to 262144, as runtimes convert it."""
    return 1 + (shares - spec.MIN_CPU_SHARES) * 9999 // (spec.MAX_CPU_SHARES - spec.MIN_CPU_SHARES)


def _unlimited(period_usec: int, *, unified: bool) -> dict[str, str]:
    """File → value where a pod has no limit."""
    quota = _quota_bound(None, period_usec, unified=unified)
    return {**quota, **memory_bound(None, unified=unified)}


_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
_TRIES = 20
_PAUSE_S = 0.1


class PodCgroups:
    """`parent` is the cgroup of all pods, `/orchpods`; `root` the directory of the hierarchies.

    Durations are observed in `times`. `pids_limit`: process ids of a pod; not above 0: unlimited.
    `memory_bytes`: what all pods may use together; None: unlimited.
    """

    def __init__(
        self,
        parent: str,
        times: Timings,
        *,
        root: str = "/sys/fs/cgroup",
        pids_limit: int = -1,
        memory_bytes: int | None = None,
        policy: ResourcePolicy = DEFAULT_POLICY,
    ) -> None:
        self._parent = parent.strip("/")
        self._pids_limit = pids_limit
        self._memory_bytes = memory_bytes
        self._policy = policy
        self._root = Path(root)
        self._times = times
        self._unbounded = OnceLog(log)
        self._shares: Mapping[str, int] = {}  # of the classes, as last written
        self._memory: Mapping[str, Mapping[str, str]] = {}  # likewise, of protected memory
        self._balanced: tuple[Pod, ...] = ()  # when the shares were last written
        self._burstable: list[tuple[Pod, int]] = []  # when they were last added up

    async def ensure(self, pod: Pod) -> None:
        """Create the pod's cgroup if missing, and set bounds that differ."""
        with self._timed("create"):
            await self._try(partial(self._ensure, pod))

    async def resize(self, pod: Pod, *, grow: bool) -> None:
        """Write those bounds of the pod's cgroup that grow, or those that do not. CgroupError."""
        with self._timed("update"):
            work = partial(self._resize, pod, grow=grow)
            try:
                await loops.finish_in_thread(work, name="cgroup of a pod")
            except OSError as error:
                if error.errno in _NOT_OURS:
                    return  # it runs without bounds of its own, which was logged
                text = f"cannot resize the cgroup of the pod: {error.strerror}: {error.filename}"
                raise CgroupError(text) from error

    async def memory_used_bytes(self, pod: Pod) -> int | None:
        """What the pod's containers use together; None where it is not measured."""
        work = partial(self._memory_used_bytes, spec.cgroup_path(self._parent, pod))
        return await asyncio.to_thread(work)

    async def balance(self, pods: Iterable[Pod]) -> None:
        """Give each service class the cpu shares that its pods request, and all their limit."""
        pods, known = tuple(pods), self._balanced
        if self._shares and len(pods) == len(known) and all(map(operator.is_, pods, known)):
            return
        before = {id(pod): (pod, milli) for pod, milli in self._burstable}
        self._burstable = [before.get(id(pod)) or (pod, burstable_milli(pod)) for pod in pods]
        shares = class_shares(sum(milli for _, milli in self._burstable))
        memory = class_unified(pods, self._policy)
        if (shares, memory) != (self._shares, self._memory):
            with self._timed("update"):
                if not await self._try(partial(self._set_classes, shares, memory)):
                    return
        self._shares, self._memory, self._balanced = shares, memory, pods

    async def remove(self, uid: str) -> None:
        """Remove the pod's cgroup and those below it, killing processes in them. CgroupError."""
        if not uid or "/" in uid:
            raise CgroupError(f"{uid!r} is not a pod uid")
        with self._timed("destroy"):
            for attempt in range(_TRIES):
                if await asyncio.to_thread(self._remove, f"pod{uid}"):
                    return
                await asyncio.sleep(_PAUSE_S * (attempt > 0))
        raise CgroupError(f"cgroup {self._parent}/pod{uid} still holds processes that do not end")

    async def remove_parent(self) -> None:
        """Remove the cgroups of all pods where they are empty."""
        await asyncio.to_thread(self._remove_parent)

    @contextlib.contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            yield
        finally:
            self._times.observe(counts.CGROUPS, loop.time() - began_s, operation)

    async def _try(self, work: Callable[[], None]) -> bool:
        try:
            await loops.finish_in_thread(work, name="cgroup of a pod")
        except OSError as error:
            self._unbounded.failed(
                "pods run without bounds of their own: %s", error, cause=error.errno
            )
            return False
        return True

    def _ensure(self, pod: Pod) -> None:
        bounds = partial(pod_bounds, pod, pids_limit=self._pids_limit, policy=self._policy)
        self._bound(spec.cgroup_path(self._parent, pod), bounds)

    def _resize(self, pod: Pod, *, grow: bool) -> None:
        below = spec.cgroup_path(self._parent, pod)
        for name, hierarchy in tree.hierarchies(self._root).items():
            unified = name == "unified"
            wanted = pod_bounds(pod, unified=unified, policy=self._policy)
            bounds = {**_unlimited(self._policy.cfs_period_usec, unified=unified), **wanted}
            tree.move_bounds(hierarchy / below, bounds, grow=grow)

    def _memory_used_bytes(self, below: str) -> int | None:
        for name, hierarchy in tree.hierarchies(self._root).items():
            file = "memory.current" if name == "unified" else "memory.usage_in_bytes"
            with contextlib.suppress(OSError, ValueError):
                return int((hierarchy / below / file).read_text())
        return None

    def _set_classes(
        self, shares: Mapping[str, int], memory: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._bound(self._parent, partial(memory_bound, self._memory_bytes))
        for qos_class, amount in shares.items():
            below = f"{self._parent}/{spec.QOS_CGROUPS[qos_class]}"
            self._bound(below, partial(share_bound, amount))
        for qos_class, bounds in memory.items():  # empty where there is no cgroup v2
            below = f"{self._parent}/{spec.QOS_CGROUPS[qos_class]}".rstrip("/")
            self._bound(below, partial(_of_unified, bounds))

    def _bound(self, below: str, bounds: Callable[..., Mapping[str, str]]) -> None:
        for name, hierarchy in tree.hierarchies(self._root).items():
            tree.make(name, hierarchy, hierarchy / below)
            tree.set_bounds(hierarchy / below, bounds(unified=name == "unified"))

    def _remove(self, name: str) -> bool:
        gone = True
        for hierarchy in tree.hierarchies(self._root).values():
            for of_class in spec.QOS_CGROUPS.values():
                gone &= tree.remove_cgroups(hierarchy / self._parent / of_class / name)
        return gone

    def _remove_parent(self) -> None:
        self._shares, self._memory = {}, {}
        for hierarchy in tree.hierarchies(self._root).values():
            for below in (*filter(None, spec.QOS_CGROUPS.values()), ""):
                try:
                    (hierarchy / self._parent / below).rmdir()
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
                        raise
