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
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)


def pod_bounds(pod: Pod, *, unified: bool, pids_limit: int = -1) -> Mapping[str, str]:
    """File → value for the pod's cgroup; each file exists in one hierarchy only."""
    shares = spec.cpu_shares(podspec.requested(pod, "cpu"))
    bounds = share_bound(shares, unified=unified)
    if quota := spec.cpu_quota_usec(podspec.limited(pod, "cpu") or 0):
        if unified:
            bounds["cpu.max"] = f"{quota} {spec.CFS_PERIOD_USEC}"
        else:
            bounds["cpu.cfs_period_us"] = str(spec.CFS_PERIOD_USEC)
            bounds["cpu.cfs_quota_us"] = str(quota)
    memory_bytes = podspec.limited(pod, "memory", quantity.to_bytes)
    if memory_bytes is not None:
        bounds |= memory_bound(memory_bytes, unified=unified)
    if pids_limit > 0:
        bounds["pids.max"] = str(pids_limit)
    return bounds


def class_shares(pods: Iterable[Pod]) -> dict[str, int]:
    """cpu shares of the service classes with a cgroup: BestEffort gets the minimum."""
    burstable = (pod for pod in pods if podspec.qos_class(pod) == podspec.BURSTABLE)
    return {
        podspec.BURSTABLE: spec.cpu_shares(sum(podspec.requested(pod, "cpu") for pod in burstable)),
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


def cpu_weight(shares: int) -> int:
    """cpu.weight 1 to 10000 for shares 2 to 262144, as runtimes convert it."""
    return 1 + (shares - spec.MIN_CPU_SHARES) * 9999 // (spec.MAX_CPU_SHARES - spec.MIN_CPU_SHARES)


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
    ) -> None:
        self._parent = parent.strip("/")
        self._pids_limit = pids_limit
        self._memory_bytes = memory_bytes
        self._root = Path(root)
        self._times = times
        self._unbounded = OnceLog(log)
        self._shares: Mapping[str, int] = {}  # of the classes, as last written
        self._balanced: tuple[Pod, ...] = ()  # when the shares were last written

    async def ensure(self, pod: Pod) -> None:
        """Create the pod's cgroup if missing, and set bounds that differ."""
        with self._timed("create"):
            await self._try(partial(self._ensure, pod))

    async def balance(self, pods: Iterable[Pod]) -> None:
        """Give each service class the cpu shares that its pods request, and all their limit."""
        pods, known = tuple(pods), self._balanced
        if self._shares and len(pods) == len(known) and all(map(operator.is_, pods, known)):
            return
        shares = class_shares(pods)
        if shares != self._shares:
            with self._timed("update"):
                if not await self._try(partial(self._set_shares, shares)):
                    return
        self._shares, self._balanced = shares, pods

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
        bounds = partial(pod_bounds, pod, pids_limit=self._pids_limit)
        self._bound(spec.cgroup_path(self._parent, pod), bounds)

    def _set_shares(self, shares: Mapping[str, int]) -> None:
        for qos_class, amount in shares.items():
            below = f"{self._parent}/{spec.QOS_CGROUPS[qos_class]}"
            self._bound(below, partial(share_bound, amount))
        self._bound(self._parent, partial(memory_bound, self._memory_bytes))

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
        self._shares = {}
        for hierarchy in tree.hierarchies(self._root).values():
            for below in (*filter(None, spec.QOS_CGROUPS.values()), ""):
                try:
                    (hierarchy / self._parent / below).rmdir()
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
                        raise
