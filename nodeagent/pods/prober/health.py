"""Runs the probes of containers: which running containers are ready, started, or to be killed.

One task per probe of a running container. Liveness and readiness probes wait until the startup
probe has succeeded. Listeners get the uid of a pod whose result changed. Each result that changes
is a line of the log, a file and a report: beyond a rate they wait, and namespaces and pods take
turns.
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
from orch.component.http.fair_queue import Pace
from orch.component.process import clock, loops
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog
from orch.wire.podrules.podspec import all_containers
from orch.wire.records.handlers import Probe
from orch.wire.records.pods import Container, Pod

log = logging.getLogger(__name__)

CHANGES_PER_S, CHANGES_AT_ONCE = 10, 200  # of results: a node's pods may all fail at once

_RESULTS = {True: "successful", False: "failed", None: "unknown"}
_KILLED = KeptResult(started=False, ready=False, unhealthy=True)
_FIRST = {Kind.STARTUP: None, Kind.LIVENESS: True}


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
    errors: OnceLog = field(default_factory=lambda: OnceLog(log))  # probes that cannot run

    @property
    def name(self) -> str:
        return f"{self.pod.key}: container {self.container.name}"

    @property
    def is_ready(self) -> bool:
        readiness = self.tallies.get(Kind.READINESS)
        return readiness is None or readiness.good is True


class FrozenContainers(Protocol):
    """Containers that a checkpoint has frozen, and that cannot answer a probe."""

    def is_frozen(self, container_id: str) -> bool: ...


class ContainerHealth:
    """`follow` a pod after each observation, `leave` it when it is removed, `close` at the end.

    `checkpoints` is None on a node without checkpoints.
    """

    def __init__(
        self,
        prober: Prober,
        events: PodEvents,
        counts: PodCounts,
        *,
        files: ResultFiles,
        checkpoints: FrozenContainers | None = None,
        now: Now = clock.utc_now,
    ) -> None:
        self._files = files
        self._changes = Pace(CHANGES_PER_S, CHANGES_AT_ONCE)
        self._killed: dict[str, set[str]] = {}  # ended after a failed probe, by uid of the pod
        self._recalled: dict[str, Mapping[str, KeptResult]] = {}  # of the former agent, by uid
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
        """Read a former agent's results for a pod, before it is followed for the first time."""
        if uid not in self._recalled:
            self._recalled[uid] = known = await self._files.load(uid)
            self._killed[uid] = {key for key, kept in known.items() if kept.unhealthy}

    def follow(self, pod: Pod, seen: ObservedPod, host_ip: str) -> None:
        """Probe the pod's running containers, and stop probing those that have exited.

        Pods in the host's network are reached at `host_ip`.
        """
        running, uid = dict(_running(pod, seen)), pod.metadata.uid or ""
        killed = self._killed.setdefault(uid, set())
        for container_id in self._own(uid).keys() - running.keys():
            if self._watched[container_id].unhealthy:
                killed.add(container_id)
            self._end(container_id)
        killed &= {detail.container.id for detail in seen.containers} - running.keys()
        address = _address(pod, seen, host_ip)
        for container_id, (container, detail) in running.items():
            if watched := self._watched.get(container_id):
                watched.pod = pod  # else each container would keep the pod as it was then
            elif results.probes_of(container):
                self._begin(_Watched(pod, container, detail, address))

    def leave(self, uid: str) -> None:
        self._recalled.pop(uid, None)
        self._killed.pop(uid, None)
        for container_id in self._own(uid):
            self._end(container_id)

    async def close(self) -> None:
        tasks = [task for watched in self._watched.values() for task in watched.tasks]
        self._watched.clear()
        await loops.cancel(*tasks)
        await self._prober.close()

    def results(self, uid: str) -> ProbeResults:
        """The results of a pod's containers."""
        own = self._own(uid)
        return ProbeResults(
            unhealthy={k: w.unhealthy for k, w in own.items() if w.unhealthy},
            unready=frozenset(k for k, w in own.items() if not w.is_ready),
            unstarted=frozenset(k for k, w in own.items() if not w.started.is_set()),
            killed=frozenset(self._killed.get(uid, ())),
        )

    def _own(self, uid: str) -> dict[str, _Watched]:
        """The watched containers of a pod, by id."""
        return {k: w for k, w in self._watched.items() if w.pod.metadata.uid == uid}

    def _begin(self, watched: _Watched) -> None:
        container_id = watched.detail.container.id
        self._watched[container_id] = watched
        probes = results.probes_of(watched.container)
        known = self._known(watched)
        if Kind.STARTUP not in probes or known.started:
            watched.started.set()
            probes.pop(Kind.STARTUP, None)
        for kind, probe in probes.items():
            watched.tallies[kind] = Tally(known.ready if kind is Kind.READINESS else _FIRST[kind])
            name = f"{kind.value} probe of {watched.name}"
            watched.tasks.append(loops.spawn(self._probe(watched, kind, probe), name=name))

    def _known(self, watched: _Watched) -> KeptResult:
        """The result that a former agent, or the API, recorded for this container."""
        container_id = watched.detail.container.id
        recalled = self._recalled.get(watched.pod.metadata.uid or "", {})
        return recalled.get(container_id) or _shown_by_api(watched)

    async def _save(self, changing: _Watched, kind: Kind, *, good: bool) -> None:
        """Save the results of a pod's containers with the change applied."""
        uid = changing.pod.metadata.uid or ""
        kept = dict.fromkeys(self._killed.get(uid, ()), _KILLED)
        for container_id, watched in self._own(uid).items():
            started, ready = watched.started.is_set(), watched.is_ready
            if watched is changing and kind is Kind.STARTUP:
                started = good
            if watched is changing and kind is Kind.READINESS:
                ready = good
            failed = watched is changing and kind is not Kind.READINESS and not good
            unhealthy = failed or watched.unhealthy is not None
            kept[container_id] = KeptResult(started, ready, unhealthy)
        await self._files.save(uid, kept)

    def _end(self, container_id: str) -> None:
        for task in self._watched.pop(container_id).tasks:
            task.cancel()

    async def _probe(self, watched: _Watched, kind: Kind, probe: Probe) -> None:
        """Probe until the container has exited, is to be killed, or has started."""
        loop = asyncio.get_running_loop()
        if kind is not Kind.STARTUP:
            await watched.started.wait()
        await asyncio.sleep(self._delay_s(watched, probe))
        planned_s = loop.time()
        while True:
            try:
                await self._probe_once(watched, kind, probe)
            except Exception:  # else this container would never be probed again, unnoticed
                text = "pod %s: its %s probe failed unexpectedly"
                log.exception(text, watched.name, kind.value.lower())
            if kind is not Kind.READINESS and watched.unhealthy:
                return  # while its hook and its grace period run, only readiness is still asked
            if kind is Kind.STARTUP and watched.started.is_set():
                return
            planned_s = max(planned_s + results.period_s(probe), loop.time())
            await asyncio.sleep(planned_s - loop.time())

    async def _probe_once(self, watched: _Watched, kind: Kind, probe: Probe) -> None:
        container_id = watched.detail.container.id
        on_host = bool(watched.pod.spec.hostNetwork)
        target = ProbeTarget(container_id, watched.container, watched.address, on_host)
        await self._prober.wait_turn(watched.pod, probe)
        was_frozen = self._is_frozen(container_id)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        outcome = await self._prober.check(target, probe)
        self._count(watched, kind, outcome, loop.time() - began_s)
        if not outcome.good and (was_frozen or self._is_frozen(container_id)):
            return  # it is being checkpointed and cannot answer
        if outcome.good is None:
            self._report_error(watched, kind, outcome.text)
            return
        watched.errors.recovered(subject=kind)
        before = watched.tallies[kind]
        after = results.count(before, outcome.good, probe)
        if not outcome.good:
            text = f"{kind.value} probe failed: {outcome.text}"
            self._events.warning(watched.pod, "Unhealthy", text)
        if outcome.warns:
            text = f"{kind.value} probe warning: {outcome.text}"
            self._events.warning(watched.pod, "ProbeWarning", text)
        if after.good is before.good:
            watched.tallies[kind] = after
            return
        meta = watched.pod.metadata
        async with self._changes.turn(meta.namespace, meta.uid):  # saved before it becomes visible
            await self._save(watched, kind, good=outcome.good)
            watched.tallies[kind] = after
            self._apply(watched, kind, probe, outcome)
        self._report(watched, kind, outcome)

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
        """The result that counts has changed."""
        if kind is Kind.STARTUP and outcome.good:
            watched.started.set()
        elif kind is not Kind.READINESS and not outcome.good:
            watched.unhealthy = Unhealthy(
                f"Container {watched.container.name} failed {kind.value.lower()} probe, "
                "will be restarted",
                probe.terminationGracePeriodSeconds,
            )

    def _report(self, watched: _Watched, kind: Kind, outcome: Outcome) -> None:
        passed = "succeeds" if outcome.good else f"fails: {outcome.text}"
        log.info("pod %s: its %s probe %s", watched.name, kind.value.lower(), passed)
        for listener in self._listeners:
            listener(watched.pod.metadata.uid or "")

    def _report_error(self, watched: _Watched, kind: Kind, error: str) -> None:
        """Report a probe that could not run: an event each time, a log line once."""
        if not error:
            return
        text = f"{kind.value} probe errored and resulted in unknown state: {error}"
        self._events.warning(watched.pod, "Unhealthy", text)
        text = "pod %s: its %s probe cannot be made: %s"
        watched.errors.failed(text, watched.name, kind.value.lower(), error, subject=kind)

    def _delay_s(self, watched: _Watched, probe: Probe) -> float:
        """The rest of the initial delay, counted from the container's start."""
        delay_s = probe.initialDelaySeconds or 0
        ran_s = self._now().timestamp() - watched.detail.started_at_ns / 1e9
        return min(max(delay_s - ran_s, 0), delay_s)


def _running(
    pod: Pod, seen: ObservedPod
) -> Iterator[tuple[str, tuple[Container, ContainerDetail]]]:
    for container in all_containers(pod):
        latest = seen.latest(container.name)
        if latest and latest.container.state is ContainerState.RUNNING:
            yield latest.container.id, (container, latest)


def _address(pod: Pod, seen: ObservedPod, host_ip: str) -> str:
    return (host_ip or "127.0.0.1") if pod.spec.hostNetwork else seen.address()


def _shown_by_api(watched: _Watched) -> KeptResult:
    """The result for this container in the pod's status at the API server."""
    container_id = watched.detail.container.id
    for status in watched.pod.status.containerStatuses or ():
        if (status.containerID or "").endswith(container_id):
            return KeptResult(bool(status.started), status.ready)
    return KeptResult(started=False, ready=False)
