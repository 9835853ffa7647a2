"""The overview page: gathers what it shows, and answers GET /overview.

Viewers share a view for a few seconds, so that many cost as much as one. Who may see it was decided
before; see `access`. Nothing on it can be changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from aiohttp import web

from nodeagent.archives.bounds import Archive
from nodeagent.archives.manifest import ENCRYPTED_SUFFIX
from nodeagent.checkpoint import CheckpointService
from nodeagent.overview import page
from nodeagent.overview.history import History, Series
from nodeagent.overview.style import POLICY
from nodeagent.overview.view import (
    ArchiveView,
    CauseView,
    CheckView,
    ContainerView,
    Course,
    PodView,
    StoreView,
    View,
)
from nodeagent.pods.registry import PodRegistry
from nodeagent.pressure.evidence import Subject
from nodeagent.pressure.watch import Findings, PressureWatch
from nodeagent.psi import RESOURCES
from orch.component.diagnostics.health import HealthChecks
from orch.component.http.sliced_response import respond
from orch.component.process import loops
from orch.component.process.threads import run_in_thread
from orch.wire import names
from orch.wire.errors import ApiError
from orch.wire.records.pods import ContainerStatus, Pod

SHARED_S = 2.0  # for so long viewers get the same view
_MAX_CAUSES = 5
_MAX_SUFFERERS = 3
_WELL = {"Running", "Succeeded"}
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
}


class Overview:
    """`cpus` are those of the machine; `checkpoints` is None where their gate is off."""

    def __init__(
        self,
        history: History,
        pressure: PressureWatch,
        registry: PodRegistry,
        checkpoints: CheckpointService | None,
        health: HealthChecks,
        *,
        node_name: str,
        cpus: int,
        now_s: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        self._history = history
        self._pressure = pressure
        self._registry = registry
        self._checkpoints = checkpoints
        self._health = health
        self._node_name = node_name
        self._cpus = cpus
        self._now_s = now_s
        self._gathering: asyncio.Task[View] | None = None
        self._gathered_s = 0.0

    async def show(self, request: web.Request) -> web.Response:
        """The handler; with `?refresh=0` the page does not load itself anew."""
        refreshes = request.query.get("refresh") != "0"
        view = await self.view()
        body = await run_in_thread(lambda: page.render(view, refreshes=refreshes), name="overview")
        return respond(200, body, HEADERS)

    async def view(self) -> View:
        """What is shown now; ApiError 500 before the first reading."""
        task = self._gathering
        if task is None or (task.done() and self._is_old(task)):
            self._gathering = task = loops.spawn(self._gather(), name="overview")
        return await asyncio.shield(task)

    def _is_old(self, task: asyncio.Task[View]) -> bool:
        failed = task.cancelled() or task.exception() is not None
        return failed or self._now_s() - self._gathered_s >= SHARED_S

    async def _gather(self) -> View:
        found = await self._pressure.findings()
        store = await self._store()
        self._gathered_s = self._now_s()
        node, series = found.sample.node, self._history.node
        stalls = {name: series.stalls[name] for name in RESOURCES if name in series.stalls}
        return View(
            node_name=self._node_name,
            version=names.VERSION,
            time_ns=found.sample.time_ns,
            cpus=self._cpus,
            memory_bytes=node.memory_bytes,
            cores=_course(series.cores),
            used_bytes=_course(series.memory_bytes),
            stalls={name: _course(values) for name, values in stalls.items()},
            causes=list(_causes(found)),
            pods=page.in_order(self._pod(pod) for pod in self._registry.pods()),
            store=store,
            checks=[CheckView(result.name, result.ok) for result in self._health.latest],
        )

    def _pod(self, pod: Pod) -> PodView:
        series = self._history.of_pod(pod.metadata.uid or "") or Series()
        status = pod.status
        known = {found.name: found for found in status.containerStatuses or ()}
        states = [_state(known.get(container.name)) for container in pod.spec.containers]
        waits = [state for state in states if state not in ("running", "Completed")]
        told = status.reason or status.phase or "Pending"
        return PodView(
            namespace=pod.metadata.namespace or "",
            name=pod.metadata.name,
            status=told,
            is_well=told in _WELL and not waits,
            ready=sum(found.ready for found in known.values()),
            restarts=sum(found.restartCount for found in known.values()),
            containers=[
                ContainerView(container.name, container.image or "", state)
                for container, state in zip(pod.spec.containers, states, strict=True)
            ],
            cores=_course(series.cores),
            memory_bytes=_course(series.memory_bytes),
            stalls={name: values[-1] for name, values in series.stalls.items()},
        )

    async def _store(self) -> StoreView | None:
        if self._checkpoints is None:
            return None
        counts = self._checkpoints.counts
        results = counts.results["success"], counts.results["error"]
        try:
            archives = await self._checkpoints.archives()
        except ApiError as error:
            return StoreView((), 0, 0, *results, error.message)
        used = sum(archive.size_bytes for archive in archives)
        newest = [_archive(archive) for archive in archives[: -page.MAX_ARCHIVES - 1 : -1]]
        return StoreView(newest, len(archives), used, *results)


def _course(values: Sequence[float]) -> Course:
    """A copy: a thread renders it while the loop goes on."""
    return Course(values[-1], list(values))


def _causes(found: Findings) -> Iterator[CauseView]:
    for cause in found.causes[:_MAX_CAUSES]:
        suffers = [_named(subject) for subject in cause.suffers[:_MAX_SUFFERERS]]
        more = len(cause.suffers) - len(suffers)
        yield CauseView(
            resource=cause.resource,
            culprit=_named(cause.culprit),
            does=cause.does,
            suffers=[*suffers, *([f"{more} more"] if more else [])],
            next_step=cause.next_step,
            since_ns=found.since_ns.get((cause.resource, cause.kind, cause.culprit)),
        )


def _named(subject: Subject) -> str:
    if subject.pod:
        pod = f"{page.shown(subject.namespace)}/{page.shown(subject.pod)}"
        return f"pod {pod} ({page.shown(subject.container)})"
    return f"service {page.shown(subject.service)}" if subject.service else "the node"


def _state(status: ContainerStatus | None) -> str:
    state = status.state if status else None
    if state and state.running:
        return "running"
    if state and state.terminated:
        return state.terminated.reason or f"ended with {state.terminated.exitCode}"
    return (state and state.waiting and state.waiting.reason) or "waiting"


def _archive(archive: Archive) -> ArchiveView:
    manifest = archive.manifest
    parts = (manifest.namespace, manifest.pod, manifest.container) if manifest else ()
    notes = {"encrypted": archive.name.endswith(ENCRYPTED_SUFFIX), "pinned": archive.pinned}
    return ArchiveView(
        container="/".join(parts) if all(parts) and parts else archive.name,
        size_bytes=archive.size_bytes,
        created_ns=int(archive.created.timestamp()) * 10**9,
        note=", ".join(note for note, holds in notes.items() if holds),
    )
