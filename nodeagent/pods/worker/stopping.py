"""Stops containers gracefully: preStop hook, then SIGTERM, then SIGKILL.

Lifecycle hooks are run here, the postStart hook too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from nodeagent.pods.actions import StopContainers
from nodeagent.pods.backoff import failing_as
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.prober.probes import Outcome, Prober, ProbeTarget
from nodeagent.pods.spec import spec
from nodeagent.pods.worker.services import PodServices
from nodeagent.runtime.base import ContainerDetail, ContainerState
from orch.component.process import loops
from orch.wire.podrules.podspec import all_containers, is_sidecar
from orch.wire.records.handlers import LifecycleHandler, Probe
from orch.wire.records.pods import Container, Pod, PodSpec

NO_LIMIT_S = 3600  # of a postStart hook, which has none of its own


async def run_hook(
    prober: Prober, pod: Pod, target: ProbeTarget, handler: LifecycleHandler, *, limit_s: int
) -> Outcome:
    """Run a hook, in its turn, for at most `limit_s`; one that cannot be run counts as failed."""
    if handler.sleep is not None:
        await asyncio.sleep(min(max(handler.sleep.seconds, 0), limit_s))
        return Outcome(True)
    action = Probe(
        exec=handler.exec,
        httpGet=handler.httpGet,
        tcpSocket=handler.tcpSocket,
        timeoutSeconds=limit_s,
    )
    if handler.exec is None:
        await prober.wait_turn(pod, action)
    outcome = await prober.check(target, action)
    if outcome.good is None:
        return Outcome(False, outcome.text or "the container runtime gave no answer")
    return outcome


_LEAST_GRACE_S = 2  # what remains of the grace period after a hook, at least
_TICK_S = 0.01  # timers may fire this much early
_OVERTIME_S = 10  # of a command that takes longer: its container has been killed by then


class _Turns:
    """Who may be told to stop: sidecars after the main containers, the last of them first."""

    def __init__(self, pod: Pod | None, chosen: Sequence[ContainerDetail]) -> None:
        spec = pod.spec if pod else PodSpec(containers=[])
        self._main = [c.name for c in spec.containers]
        self._sidecars = [c.name for c in spec.initContainers or () if is_sidecar(c)]
        self._ended = {detail.container.name: asyncio.Event() for detail in chosen}
        self.containers = {c.name: c for c in all_containers(pod)} if pod else {}

    async def wait(self, name: str, limit_s: float) -> float:
        """Wait until it is this container's turn, or for `limit_s`; returns the seconds."""
        if name not in self._sidecars:
            return 0.0
        before = {*self._main, *self._sidecars[self._sidecars.index(name) + 1 :]}
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                for other in before & self._ended.keys():
                    await self._ended[other].wait()
        return loop.time() - began_s

    def ended(self, name: str) -> None:
        self._ended[name].set()


class Stopping:
    """Stops containers of one pod; `pod` is None for an orphan."""

    def __init__(self, uid: str, services: PodServices) -> None:
        self._uid = uid
        self._services = services

    async def stop(self, action: StopContainers, pod: Pod | None, seen: ObservedPod) -> None:
        """Stop the containers, each in its turn. StepFailed names the first that could not be."""
        grace_s = action.grace_s
        if grace_s is None:
            grace_s = spec.grace_period_s(pod) if pod else seen.grace_period_s()
        ids = frozenset(action.ids)
        chosen = [detail for detail in seen.containers if detail.container.id in ids]
        for detail in chosen:
            text = f"Stopping container {detail.container.name}: {action.why}"
            self._services.events.normal(pod, "Killing", text)
        turns = _Turns(pod, chosen)
        stops = (self._stop_container(detail, pod, seen, grace_s, turns) for detail in chosen)
        results = await asyncio.gather(*stops, return_exceptions=True)
        async with failing_as("FailedKillPod"):
            await self._services.pleg.refresh(self._uid, containers=action.ids)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _stop_container(
        self,
        detail: ContainerDetail,
        pod: Pod | None,
        seen: ObservedPod,
        grace_s: int,
        turns: _Turns,
    ) -> None:
        name, left_s = detail.container.name, grace_s
        container = turns.containers.get(name)
        try:
            async with contextlib.AsyncExitStack() as stack:
                running = detail.container.state is ContainerState.RUNNING
                if pod and container and running and grace_s > 0:
                    hook = self._pre_stop(detail, pod, container, seen, grace_s)
                    used_s = await stack.enter_async_context(hook)
                    used_s += await turns.wait(name, grace_s - used_s)
                    left_s = max(grace_s - int(used_s + _TICK_S), min(_LEAST_GRACE_S, grace_s))
                await self._services.runtime.stop_container(detail.container.id, timeout_s=left_s)
        finally:
            turns.ended(name)

    @contextlib.asynccontextmanager
    async def _pre_stop(
        self,
        detail: ContainerDetail,
        pod: Pod,
        container: Container,
        seen: ObservedPod,
        grace_s: int,
    ) -> AsyncIterator[float]:
        """Run the preStop hook; yields how long it took, in seconds, of which it has `grace_s`.

        One that takes longer runs on while its container stops, and ends with it.
        """
        handler = container.lifecycle and container.lifecycle.preStop
        if not handler:
            yield 0.0
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        address = seen.address(self._services.settings.host_ip)
        on_host = bool(pod.spec.hostNetwork)
        target = ProbeTarget(detail.container.id, container, address, on_host)
        limit_s = grace_s + _OVERTIME_S if handler.exec else grace_s
        hook = run_hook(self._services.prober, pod, target, handler, limit_s=limit_s)
        task = loops.spawn(hook, name=f"preStop hook of {container.name}")
        try:
            await asyncio.wait((task,), timeout=grace_s)
            outcome = task.result() if task.done() else _overdue(handler, grace_s)
            if not outcome.good:
                text = f"PreStopHook failed: {outcome.text}"
                self._services.events.warning(pod, "FailedPreStopHook", text)
            yield loop.time() - began_s
        finally:
            await loops.cancel(task)


def _overdue(handler: LifecycleHandler, grace_s: int) -> Outcome:
    """A sleep that the grace period cut short has done all it could."""
    text = f"it did not end within the grace period of {grace_s} s"
    return Outcome(handler.sleep is not None, text)
