"""Sizes in force and sizes allocated → the step that brings them together; pure.

Containers that do not run are left alone: they start with what is allocated. Also the conditions
and events that tell of resizes, in the reference agent's words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from nodeagent.pods.actions import Action, ResizePod, StopContainers
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.resize.judging import Pending
from nodeagent.pods.resize.sizes import InForce, Size, container_size, pod_size
from nodeagent.runtime.base import ContainerDetail
from orch.wire.podrules.podspec import lasting
from orch.wire.records.pods import Container, Pod, PodCondition

RESIZE = "pod resize"  # the key of its back-off among those of containers
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
CONDITIONS = (PENDING, IN_PROGRESS)
_RESTART = "RestartContainer"
_PARTS = {
    "cpu": ("cpu_request_milli", "cpu_limit_milli"),
    "memory": ("memory_request_bytes", "memory_limit_bytes"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A running container and its size, allocated and in force."""

    container: Container
    detail: ContainerDetail
    wanted: Size
    has: Size

    @property
    def restarts(self) -> bool:
        """Whether the container wants to be restarted for what changes."""
        asked = {p.resourceName for p in self.container.resizePolicy or () if _restarts(p)}
        return any(
            name in asked and any(getattr(self.wanted, f) != getattr(self.has, f) for f in fields)
            for name, fields in _PARTS.items()
        )


def _restarts(policy: object) -> bool:
    return getattr(policy, "restartPolicy", "") == _RESTART


def changes(pod: Pod, seen: ObservedPod, in_force: InForce) -> Iterator[Change]:
    """The running containers that have another size than is allocated."""
    for container in lasting(pod):
        detail = seen.running(container.name)
        if detail is None or detail.container.id in in_force.restarting:
            continue
        wanted, has = container_size(pod, container), in_force.containers.get(detail.container.id)
        if has is not None and wanted != has:
            yield Change(container, detail, wanted, has)


def is_in_progress(pod: Pod, seen: ObservedPod, in_force: InForce) -> bool:
    return _whole_differs(pod, in_force) or any(True for _ in changes(pod, seen, in_force))


def next_change(pod: Pod, seen: ObservedPod, in_force: InForce) -> Action | None:
    """Containers to be restarted stop first, so that room is made; None: nothing is to change."""
    found = list(changes(pod, seen, in_force))
    restarts = [change for change in found if change.restarts]
    if restarts:
        ids = tuple(change.detail.container.id for change in restarts)
        return StopContainers(ids, "its resize requires a restart", for_resize=True)
    if not found and not _whole_differs(pod, in_force):
        return None
    return ResizePod(tuple(change.detail.container.id for change in found))


def _whole_differs(pod: Pod, in_force: InForce) -> bool:
    return in_force.whole is not None and in_force.whole != pod_size(pod)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one pod's resize: why it waits, and whether what was granted is in force.

    `generation` is the pod's when it was granted; `error` why it is not in force yet, if known.
    """

    pending: Pending | None = None
    in_progress: bool = False
    generation: int = 0
    error: str = ""


NO_RESIZE = Progress()


def conditions(progress: Progress) -> Iterator[PodCondition]:
    """Only those that hold: without a resize there is none."""
    if pending := progress.pending:
        yield PodCondition(
            type=PENDING,
            status="True",
            reason=pending.reason,
            message=pending.message,
            observedGeneration=pending.generation or None,
        )
    if progress.in_progress:
        yield PodCondition(
            type=IN_PROGRESS,
            status="True",
            reason="Error" if progress.error else None,
            message=progress.error or None,
            observedGeneration=progress.generation or None,
        )


def event_text(prefix: str, pod: Pod, generation: int, error: str = "") -> str:
    """The text of an event: what the containers of `pod` have, as JSON."""
    listed = {"initContainers": pod.spec.initContainers, "containers": pod.spec.containers}
    told: dict[str, object] = {
        name: [{"name": c.name, "resources": _shown(c)} for c in containers]
        for name, containers in listed.items()
        if containers
    }
    told["generation"] = generation
    if error:
        told["error"] = error
    return f"{prefix}: {json.dumps(told, separators=(',', ':'))}"


def _shown(container: Container) -> object:
    return container.resources.to_wire() if container.resources else {}
