"""Puts the allocated size of a running pod in force, without restarting anything.

What grows of the pod's cgroup grows first, then the containers change, those that shrink before
those that grow, and what shrinks of the pod comes last: so the parts never exceed the whole. A
limit of memory that is in use already is refused, because the kernel would kill for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodeagent.pods import counts as pods_counts
from nodeagent.pods.actions import ResizePod, StepBackoff
from nodeagent.pods.backoff import StepFailed
from nodeagent.pods.cgroups.pod_cgroups import CgroupError
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.resize.changes import (
    NO_RESIZE,
    RESIZE,
    Change,
    Progress,
    changes,
    is_in_progress,
)
from nodeagent.pods.resize.sizes import InForce, Size, pod_size
from nodeagent.pods.spec import spec
from nodeagent.pods.worker.services import PodServices
from nodeagent.runtime.base import RuntimeCallError, RuntimeUnavailable
from orch.wire.podrules.podspec import FINAL_PHASES
from orch.wire.records.pods import Pod

_REASON = "ResizeError"
_MS = 1000


class Resizing:
    """Resizes one pod; StepFailed says why it is not possible now."""

    def __init__(self, uid: str, services: PodServices) -> None:
        self._uid = uid
        self._services = services

    def in_force(self, pod: Pod, seen: ObservedPod) -> InForce:
        return self._services.sizes.of(pod, seen, self._services.allocations.of(self._uid))

    def state(
        self, pod: Pod, seen: ObservedPod, backoffs: Mapping[str, StepBackoff]
    ) -> tuple[InForce, Progress]:
        """What is in force, and how far the resize is; one that has failed says why until it
        succeeds.
        """
        in_force = self.in_force(pod, seen)
        if pod.status.phase in FINAL_PHASES:
            return in_force, NO_RESIZE
        allocations, failed = self._services.allocations, backoffs.get(RESIZE)
        allocation = allocations.of(self._uid)
        return in_force, Progress(
            pending=allocations.pending(self._uid),
            in_progress=is_in_progress(pod, seen, in_force),
            generation=allocation.generation if allocation else 0,
            error=failed.message if failed else "",
        )

    async def resize(self, action: ResizePod, pod: Pod, seen: ObservedPod) -> None:
        """Whatever was done before a failure is remembered."""
        began_s = asyncio.get_running_loop().time()
        succeeded = False
        try:
            async with self._services.resizing:
                await self._resize(action, pod, seen)
            succeeded = True
        finally:
            took_ms = (asyncio.get_running_loop().time() - began_s) * _MS
            timings = self._services.counts.timings
            timings.observe(pods_counts.RESIZE, took_ms, str(succeeded).lower())

    async def _resize(self, action: ResizePod, pod: Pod, seen: ObservedPod) -> None:
        services, in_force = self._services, self.in_force(pod, seen)
        found = [c for c in changes(pod, seen, in_force) if c.detail.container.id in action.ids]
        told: dict[str, Size] = {}
        try:
            await self._require_memory(pod, found, in_force)
            await services.cgroups.resize(pod, grow=True)
            for change in sorted(found, key=_grows):
                await self._update(pod, change)
                told[change.detail.container.id] = change.wanted
            await services.cgroups.resize(pod, grow=False)
        except CgroupError as error:
            raise StepFailed(RESIZE, _REASON, str(error)) from error
        except RuntimeUnavailable:
            raise
        except RuntimeCallError as error:
            raise StepFailed(RESIZE, _REASON, str(error)) from error
        finally:
            if told:
                await services.sizes.note(seen, containers=told)
        await services.sizes.note(seen, whole=pod_size(pod))
        if told:
            await services.pleg.refresh(self._uid, containers=tuple(told))

    async def _update(self, pod: Pod, change: Change) -> None:
        settings = self._services.settings
        memory = spec.node_memory(settings)
        wanted = spec.container_resources(pod, change.container, memory, settings.policy)
        resources = replace(wanted, oom_score_adj=None)  # of its processes, as they were started
        await self._services.runtime.update_resources(change.detail.container.id, resources)

    async def _require_memory(self, pod: Pod, found: Sequence[Change], in_force: InForce) -> None:
        """StepFailed when a limit would fall below what is used."""
        lower = [change for change in found if _is_lower(change.wanted, change.has)]
        whole = pod_size(pod)
        lowers_pod = _is_lower(whole, in_force.whole)
        problems = [text for change in lower if (text := await self._shortage(change))]
        if lowers_pod:
            limit_bytes = whole.memory_limit_bytes
            used_bytes = await self._services.cgroups.memory_used_bytes(pod)
            if used_bytes is not None and used_bytes >= limit_bytes:
                problems.insert(0, _below_usage("pod", limit_bytes, used_bytes))
        if problems:
            shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise StepFailed(RESIZE, _REASON, f"cannot decrease memory limits: {shown}")

    async def _shortage(self, change: Change) -> str:
        name, limit_bytes = change.container.name, change.wanted.memory_limit_bytes
        usages = await self._services.runtime.container_usage(change.detail.container.id)
        used_bytes = usages[0].memory_usage_bytes if usages else None
        if used_bytes is None:
            return f'missing container "{name}" memory usage'
        if used_bytes < limit_bytes:
            return ""
        return _below_usage(f'container "{name}"', limit_bytes, used_bytes)


def _below_usage(what: str, limit_bytes: int, used_bytes: int) -> str:
    return (
        f"attempting to set {what} memory limit ({limit_bytes}) below current usage ({used_bytes})"
    )


def _is_lower(wanted: Size, has: Size | None) -> bool:
    """Whether the limit of memory falls, or there is one now."""
    limit, former = wanted.memory_limit_bytes, has.memory_limit_bytes if has else 0
    return limit > 0 and (former == 0 or limit < former)


def _grows(change: Change) -> bool:
    return change.wanted.memory_limit_bytes >= change.has.memory_limit_bytes
