"""The cgroups of pods, in every hierarchy the host has: made with the pod, gone with it.

Works on cgroup v1, hybrid and v2 below an injected root. Containers' own cgroups are the
runtime's; this module makes their parents, `<parent>[/burstable|/besteffort]/pod<uid>`, and sets
what bounds each pod as a whole and what the classes of service share. Not being allowed to is no
reason not to run the pod: it is logged once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from nodeagent.pods import bounds, cgrouptree, qos, timings
from nodeagent.pods.cgrouptree import CgroupError as CgroupError
from nodeagent.pods.timings import Timings
from orch.wire.pods import Pod

log = logging.getLogger(__name__)

_TRIES = 20
_PAUSE_S = 0.1

T = TypeVar("T")


class PodCgroups:
    """`parent` is the cgroup that holds all pods, `/orchpods`; `root` where hierarchies are.

    What takes how long is told to `times`.
    """

    def __init__(self, parent: str, times: Timings, *, root: str = "/sys/fs/cgroup") -> None:
        self._parent = parent.strip("/")
        self._root = Path(root)
        self._times = times
        self._refused = ""
        self._shares: Mapping[str, int] = {}  # of the classes, as last written
        self._balanced: tuple[Pod, ...] = ()  # what they were written for

    async def ensure(self, pod: Pod) -> None:
        """Make the pod's cgroup where it is not, and set its bounds where they differ."""
        with self._timed("create"):
            await self._try(self._ensure, pod)

    async def balance(self, pods: Iterable[Pod]) -> None:
        """Give each class of service its share of the processor: what its pods ask for."""
        pods, known = tuple(pods), self._balanced
        if self._shares and len(pods) == len(known) and all(map(operator.is_, pods, known)):
            return
        shares = bounds.class_shares(pods)
        if shares != self._shares:
            with self._timed("update"):
                if not await self._try(self._set_shares, shares):
                    return
        self._shares, self._balanced = shares, pods

    async def remove(self, uid: str) -> None:
        """Remove the pod's cgroup and all below it, killing what is left in them.

        CgroupError when it stays all the same.
        """
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
            self._times.observe(timings.CGROUPS, loop.time() - began_s, operation)

    async def _try(self, work: Callable[[T], None], about: T) -> bool:
        try:
            await asyncio.to_thread(work, about)
        except OSError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.warning("pods run without bounds of their own: %s", error)
            return False
        return True

    def _ensure(self, pod: Pod) -> None:
        below = qos.cgroup_path(self._parent, qos.qos_class(pod), pod.metadata.uid or "")
        for name, hierarchy in cgrouptree.hierarchies(self._root).items():
            directory = hierarchy / below
            cgrouptree.make(name, hierarchy, directory)
            cgrouptree.set_bounds(directory, bounds.pod_bounds(pod, unified=name == "unified"))

    def _set_shares(self, shares: Mapping[str, int]) -> None:
        for name, hierarchy in cgrouptree.hierarchies(self._root).items():
            for qos_class, amount in shares.items():
                directory = hierarchy / self._parent / qos.CGROUPS[qos_class]
                cgrouptree.make(name, hierarchy, directory)
                bound = bounds.share_bound(amount, unified=name == "unified")
                cgrouptree.set_bounds(directory, bound)

    def _remove(self, name: str) -> bool:
        gone = True
        for hierarchy in cgrouptree.hierarchies(self._root).values():
            for of_class in qos.CGROUPS.values():
                gone &= cgrouptree.remove_tree(hierarchy / self._parent / of_class / name)
        return gone

    def _remove_parent(self) -> None:
        self._shares = {}
        for hierarchy in cgrouptree.hierarchies(self._root).values():
            for below in (*filter(None, qos.CGROUPS.values()), ""):
                try:
                    (hierarchy / self._parent / below).rmdir()
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
                        raise
