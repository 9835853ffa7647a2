"""Keeps count of what probes find: which running containers are ready, started, or to be killed.

One task per probe of a running container, begun and ended as containers come and go. Liveness and
readiness wait until a startup probe has succeeded. Listeners get the uid of a pod whose result
changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from nodeagent.pods import counts as pods_counts
from nodeagent.pods.actions import ProbeResults, Unhealthy
from nodeagent.pods.counts import PodCounts, ProbeKey
from nodeagent.pods.events import PodEvents
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.prober import results
from nodeagent.pods.prober.probes import Outcome, Prober, ProbeTarget
from nodeagent.pods.prober.results import KeptResult, Kind, ResultFiles, Tally
from nodeagent.runtime.base import ContainerDetail, ContainerState
from orch.component.process import clock, loops
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog
from orch.wire.podrules.podspec import all_containers
from orch.wire.records.pods import Container, Pod, Probe

log = logging.getLogger(__name__)

_RESULTS = {True: "successful", False: "failed", None: "unknown"}
_READY_AT_FIRST = {Kind.STARTUP: None, Kind.LIVENESS: True, Kind.READINESS: False}


@dataclass
class _Watched:
    """One running container and the state of its probes."""

    pod: Pod
    container: Container
    detail: ContainerDetail
    address: str
    tallies: dict[Kind, Tally] = field(default_factory=dict)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    unhealthy: Unhealthy | None = None
    errors: OnceLog = field(default_factory=lambda: OnceLog(log))  # probes that cannot be made


class Checkpoints(Protocol):
    """What `nodeagent.checkpoint` knows of containers that cannot answer a probe."""

    def is_frozen(self, container_id: str) -> bool: ...


class ContainerHealth:
    """`follow` a pod whenever it was looked at, `leave` it when it goes, `close` at the end.

    `checkpoints` is None on a node that makes none.
    """

    def __init__(
        self,
        prober: Prober,
        events: PodEvents,
        counts: PodCounts,
        *,
        files: ResultFiles,
        checkpoints: Checkpoints | None = None,
        now: Now = clock.utc_now,
    ) -> None:
        self._files = files
        self._keeping = asyncio.Lock()
        self._recalled: dict[str, Mapping[str, KeptResult]] = {}  # at the start, by uid
        self._prober = prober
        self._events = events
        self._counts = counts
        self._checkpoints = checkpoints
        self._now = now
        self._watched: dict[str, _Watched] = {}
        self._listeners: list[Callable[[str], None]] = []

    def on_change(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    async def recall(self, uid: str) -> None:
        """Read what a former agent knew of a pod, before it is followed for the first time."""
        if uid not in self._recalled:
            self._recalled[uid] = await self._files.load(uid)

    def follow(self, pod: Pod, seen: ObservedPod, host_ip: str) -> None:
        """Probe the pod's running containers, and stop probing those that run no more.

        Those of a pod in the host's network are reached at `host_ip`.
        """
        running = dict(_running(pod, seen))
        for container_id in self._of(pod.metadata.uid or "", without=set(running)):
            self._end(container_id)
        address = _address(pod, seen, host_ip)
        for container_id, (container, detail) in running.items():
            if container_id not in self._watched and results.probes_of(container):
                self._begin(_Watched(pod, container, detail, address))

    def leave(self, uid: str) -> None:
        self._recalled.pop(uid, None)
        for container_id in self._of(uid, without=set()):
            self._end(container_id)

    async def close(self) -> None:
        tasks = [task for watched in self._watched.values() for task in watched.tasks]
        self._watched.clear()
        await loops.cancel(*tasks)
        await self._prober.close()

    def results(self, uid: str) -> ProbeResults:
        """The results of a pod's running containers."""
        own = {k: w for k, w in self._watched.items() if w.pod.metadata.uid == uid}
        return ProbeResults(
            unhealthy={k: w.unhealthy for k, w in own.items() if w.unhealthy},
            unready=frozenset(k for k, w in own.items() if not _is_ready(w)),
            unstarted=frozenset(k for k, w in own.items() if not w.started.is_set()),
        )

    def _of(self, uid: str, *, without: set[str]) -> list[str]:
        return [
            container_id
            for container_id, watched in self._watched.items()
            if watched.pod.metadata.uid == uid and container_id not in without
        ]

    def _begin(self, watched: _Watched) -> None:
        container_id = watched.detail.container.id
        self._watched[container_id] = watched
        probes = results.probes_of(watched.container)
        known = self._known(watched)
        if Kind.STARTUP not in probes or known.started:
            watched.started.set()
            probes.pop(Kind.STARTUP, None)
        for kind, probe in probes.items():
            first = _READY_AT_FIRST[kind]
            if kind is Kind.READINESS:
                first = known.ready
            watched.tallies[kind] = Tally(first)
            name = f"{kind.value} probe of {watched.pod.key}/{watched.container.name}"
            watched.tasks.append(loops.spawn(self._probe(watched, kind, probe), name=name))

    def _known(self, watched: _Watched) -> KeptResult:
        """The result that a former agent, or the API, recorded for this container."""
        container_id = watched.detail.container.id
        recalled = self._recalled.get(watched.pod.metadata.uid or "", {})
        return recalled.get(container_id) or _shown_by_api(watched)

    async def _keep(self, changing: _Watched, kind: Kind, *, good: bool) -> None:
        """Save the results of a pod's containers with the change applied."""
        uid = changing.pod.metadata.uid or ""
        own = {k: w for k, w in self._watched.items() if w.pod.metadata.uid == uid}
        kept = {}
        for container_id, watched in own.items():
            started, ready = watched.started.is_set(), _is_ready(watched)
            if watched is changing and kind is Kind.STARTUP:
                started = good
            if watched is changing and kind is Kind.READINESS:
                ready = good
            kept[container_id] = KeptResult(started, ready)
        await self._files.save(uid, kept)

    def _end(self, container_id: str) -> None:
        for task in self._watched.pop(container_id).tasks:
            task.cancel()

    async def _probe(self, watched: _Watched, kind: Kind, probe: Probe) -> None:
        """Probe until the container is to be killed, or a startup probe has succeeded."""
        loop = asyncio.get_running_loop()
        if kind is not Kind.STARTUP:
            await watched.started.wait()
        await asyncio.sleep(self._delay_s(watched, probe))
        planned_s = loop.time()
        while True:
            try:
                await self._probe_once(watched, kind, probe)
            except Exception:  # else this container would never be probed again, unnoticed
                name = f"{watched.pod.key}: container {watched.container.name}"
                log.exception("pod %s: its %s probe failed unexpectedly", name, kind.value.lower())
            if watched.unhealthy or (kind is Kind.STARTUP and watched.started.is_set()):
                return
            planned_s = max(planned_s + results.period_s(probe), loop.time())
            await asyncio.sleep(planned_s - loop.time())

    async def _probe_once(self, watched: _Watched, kind: Kind, probe: Probe) -> None:
        container_id = watched.detail.container.id
        target = ProbeTarget(container_id, watched.container, watched.address)
        was_frozen = self._is_frozen(container_id)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        outcome = await self._prober.check(target, probe)
        self._count(watched, kind, outcome, loop.time() - began_s)
        if not outcome.good and (was_frozen or self._is_frozen(container_id)):
            return  # it is being checkpointed and cannot answer
        if outcome.good is None:
            self._tell_error(watched, kind, outcome.text)
            return
        watched.errors.recovered(subject=kind)
        before = watched.tallies[kind]
        after = results.count(before, outcome.good, probe)
        if not outcome.good:
            text = f"{kind.value} probe failed: {outcome.text}"
            self._events.warning(watched.pod, "Unhealthy", text)
        if after.good is before.good:
            watched.tallies[kind] = after
            return
        async with self._keeping:  # kept before anyone can see it
            await self._keep(watched, kind, good=outcome.good)
            watched.tallies[kind] = after
            self._apply(watched, kind, probe, outcome)
        self._tell(watched, kind, outcome)

    def _is_frozen(self, container_id: str) -> bool:
        return self._checkpoints is not None and self._checkpoints.is_frozen(container_id)

    def _count(self, watched: _Watched, kind: Kind, outcome: Outcome, took_s: float) -> None:
        meta = watched.pod.metadata
        key = ProbeKey(
            kind.value,
            _RESULTS[outcome.good],
            watched.container.name,
            meta.name,
            meta.namespace or "",
            meta.uid or "",
        )
        self._counts.probes[key] += 1
        self._counts.timings.observe(
            pods_counts.PROBE, took_s, key.probe_type, key.container, key.pod, key.namespace
        )

    def _apply(self, watched: _Watched, kind: Kind, probe: Probe, outcome: Outcome) -> None:
        """What is thought of a container changed."""
        if kind is Kind.STARTUP and outcome.good:
            watched.started.set()
        elif kind is not Kind.READINESS and not outcome.good:
            watched.unhealthy = Unhealthy(
                f"Container {watched.container.name} failed {kind.value.lower()} probe, "
                "will be restarted",
                probe.terminationGracePeriodSeconds,
            )

    def _tell(self, watched: _Watched, kind: Kind, outcome: Outcome) -> None:
        name = f"{watched.pod.key}: container {watched.container.name}"
        passed = "succeeds" if outcome.good else f"fails: {outcome.text}"
        log.info("pod %s: its %s probe %s", name, kind.value.lower(), passed)
        for listener in self._listeners:
            listener(watched.pod.metadata.uid or "")

    def _tell_error(self, watched: _Watched, kind: Kind, error: str) -> None:
        """Report a probe that could not run: an event each time, a log line once."""
        if not error:
            return
        text = f"{kind.value} probe errored and resulted in unknown state: {error}"
        self._events.warning(watched.pod, "Unhealthy", text)
        name = f"{watched.pod.key}: container {watched.container.name}"
        text = "pod %s: its %s probe cannot be made: %s"
        watched.errors.failed(text, name, kind.value.lower(), error, subject=kind)

    def _delay_s(self, watched: _Watched, probe: Probe) -> float:
        """What is left of the initial delay, counted from the container's start."""
        ran_s = self._now().timestamp() - watched.detail.started_at_ns / 1e9
        return min(max((probe.initialDelaySeconds or 0) - ran_s, 0), probe.initialDelaySeconds or 0)


def _is_ready(watched: _Watched) -> bool:
    readiness = watched.tallies.get(Kind.READINESS)
    return readiness is None or readiness.good is True


def _running(
    pod: Pod, seen: ObservedPod
) -> Iterator[tuple[str, tuple[Container, ContainerDetail]]]:
    for container in all_containers(pod):
        latest = seen.latest(container.name)
        if latest and latest.container.state is ContainerState.RUNNING:
            yield latest.container.id, (container, latest)


def _address(pod: Pod, seen: ObservedPod, host_ip: str) -> str:
    if pod.spec.hostNetwork:
        return host_ip or "127.0.0.1"
    return seen.sandbox.ips[0] if seen.sandbox and seen.sandbox.ips else ""


def _shown_by_api(watched: _Watched) -> KeptResult:
    """What the pod's status in the API says of this very container."""
    container_id = watched.detail.container.id
    for status in watched.pod.status.containerStatuses or ():
        if (status.containerID or "").endswith(container_id):
            return KeptResult(bool(status.started), status.ready)
    return KeptResult(started=False, ready=False)
