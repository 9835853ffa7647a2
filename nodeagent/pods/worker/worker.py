"""The worker of one pod: observe, plan, publish the status, act; repeat until the pod is removed.

No failure ends a worker: failed steps become waiting reasons with back-off, an unavailable runtime
is awaited, and an unexpected error is logged and retried. A request to remove the pod interrupts
the current step.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from nodeagent.pods import counts as pods_counts
from nodeagent.pods.actions import Action, CreateSandbox, Plan, ResizePod, StartContainer
from nodeagent.pods.backoff import StepBackoffs, StepFailed
from nodeagent.pods.decide import plan
from nodeagent.pods.decide.phase import (
    FINAL_PHASES,
    RUNNING,
    Ending,
    deadline_left_s,
    fail_pod,
    overdue,
    show_running,
)
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.resize.changes import RESIZE
from nodeagent.pods.spec import references, spec, volume_files
from nodeagent.pods.volumes.volumes import ProjectedData, VolumeError
from nodeagent.pods.worker import report, steps
from nodeagent.pods.worker.report import StatusReport
from nodeagent.pods.worker.services import PodServices
from nodeagent.pods.worker.steps import Steps
from nodeagent.runtime.base import RuntimeUnavailable
from orch.component.process import loops
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.wire import times
from orch.wire.podrules.podspec import all_containers, container_type
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

_PAUSE_AFTER_BUG_S = 10.0
_PAUSE_WITHOUT_PROGRESS_S = 1.0
_UNAVAILABLE_S = (0.5, 2.0, 30.0)  # first pause, factor, longest pause
_TICK_S = 0.01
_FILE_POLL_S = 1.0  # how often the worker checks for an awaited file


@dataclass(frozen=True, slots=True)
class PodRemoval:
    """A request to remove the pod; `grace_s` None means its own grace period."""

    grace_s: int | None = None


class PodWorker:
    """Runs one pod; `pod` is None for an orphan, `seen_s` the loop time when it was first seen.

    `former` are the last attempts, by container, of a worker that has removed the same pod: its
    restarts count on.
    """

    def __init__(
        self,
        uid: str,
        pod: Pod | None,
        services: PodServices,
        seen_s: float,
        former: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.uid = uid
        self.pod = pod
        self.attempts = dict(former)
        self._services = services
        self._pleg = services.pleg
        self._registry = services.registry
        self._steps = Steps(uid, services)
        self._report, self._backoffs = StatusReport(uid, services), StepBackoffs()
        self._unavailable = Backoff(*_UNAVAILABLE_S)
        self._counts = services.counts
        self._seen_s = seen_s
        self._is_new = not (pod and pod.status.startTime)  # no agent had accepted it
        self._is_starting = False  # created by this worker, and not Running yet
        self._wake = asyncio.Event()
        self._removal: PodRemoval | None = None
        self._ending: Ending | None = None
        self._ended_at = ""
        self._projected: Pod | None = None  # whose fields the volumes show
        self._refresh_at_s = math.inf  # loop time of the next refresh of volumes from the API
        self._failures = OnceLog(log)  # of steps, by subject
        self._stale = OnceLog(log)  # files of its volumes
        self._interrupt = asyncio.Event()  # a new request to remove the pod
        self._failed_action: tuple[Action, float] | None = None  # with the loop time of a retry

    @property
    def name(self) -> str:
        """`namespace/name`, or the uid of a pod whose name is unknown."""
        if self.pod:
            return self.pod.key
        view = self._registry.view(self.uid)
        return f"{view.namespace}/{view.name}" if view.name else self.uid

    def wake(self) -> None:
        """Something about the pod changed: sync it now."""
        self._wake.set()

    def update(self, pod: Pod) -> None:
        """Take over the pod's newest definition; an unchanged one does not wake the worker."""
        if self._ending:
            pod = fail_pod(pod, self._ending, self._ended_at)
        known, self.pod = self.pod, pod
        if pod is known or pod == known:
            return
        before = {each.name: each for each in all_containers(known)} if known else {}
        for container in all_containers(pod):
            if before.get(container.name) != container:
                self._clear_failure(container.name, RESIZE)  # the new definition may be right
        if known and self._removal and spec.grace_period_s(pod) < spec.grace_period_s(known):
            self._interrupt_step()
        self.wake()

    def end(self, ending: Ending) -> bool:
        """Fail the pod and stop its containers for good. False when it has ended or will sooner."""
        known = self._ending
        if self.pod is None or self._registry.has_ended(self.uid):
            return False
        if known and known.grace_s <= ending.grace_s:
            return False
        log.warning("pod %s: %s: %s", self.name, ending.reason, ending.message.strip())
        self._ending = ending
        self._ended_at = times.format_time(self._services.now())
        self.pod = fail_pod(self.pod, ending, self._ended_at)
        self._interrupt_step()
        return True

    def _deadline_left_s(self) -> float | None:
        """None: the pod has no deadline to meet, or no more."""
        pod, status = self.pod, self._registry.status(self.uid)
        if pod is None or status is None:  # before its first status it may turn out to have ended
            return None
        if self._ending or self._removal or status.phase in FINAL_PHASES:
            return None
        return deadline_left_s(pod, status.startTime, self._services.now())

    def _end_overdue(self, pod: Pod) -> None:
        left_s = self._deadline_left_s()
        ending = overdue(spec.grace_period_s(pod))
        if left_s is not None and left_s <= 0 and self.end(ending):
            self._services.events.normal(self.pod, ending.reason, ending.message)

    def remove(self, removal: PodRemoval) -> None:
        """Stop and remove the pod; a second request can only change the grace period."""
        known = self._removal
        if known and (removal.grace_s is None or removal == known):
            return
        if not known:
            log.info("pod %s: removing", self.name)
        self._removal = removal
        self._interrupt_step()

    def _interrupt_step(self) -> None:
        self._failed_action = None
        self._interrupt.set()
        self.wake()

    async def run(self) -> None:
        """Run until the pod is removed and nothing is left of it."""
        if self.pod:
            self._counts.timings.observe(pods_counts.WORKER_START, self._now_s() - self._seen_s)
        while True:
            self._wake.clear()
            began_s = self._now_s()
            try:
                wait_s, done = await self._sync()
                operation = "terminate" if self._removal else "sync"
                self._counts.timings.observe(pods_counts.WORKER, self._now_s() - began_s, operation)
            except RuntimeUnavailable as error:
                await self._wait_for_runtime(error)
                continue
            except Exception:
                log.exception("pod %s: unexpected error, retrying", self.name)
                wait_s, done = _PAUSE_AFTER_BUG_S, False
            if done:
                return
            await self._sleep(wait_s)

    async def _wait_for_runtime(self, error: RuntimeUnavailable) -> None:
        """Wait for a listing; back off from a runtime that lists but fails other calls."""
        log.debug("pod %s: the runtime is unavailable: %s", self.name, error)
        await asyncio.sleep(self._unavailable.next())
        await self._pleg.after_listing(self.uid)

    async def _sync(self) -> tuple[float | None, bool]:
        """Return how long to wait at most (None: until woken) and whether the pod is removed."""
        if not self._registry.settled(self.uid):
            await self._pleg.after_listing(self.uid)
        seen = self._registry.view(self.uid)
        if self._removal is not None:
            return await self._remove(seen, self._removal)
        if self.pod is None:
            return None, False
        self._end_overdue(self.pod)
        await self._check_awaited_files()
        await self._refresh_volumes(self.pod, seen)
        await self._services.health.recall(self.uid)
        self._services.health.follow(self.pod, seen, self._services.settings.host_ip)
        probed = self._services.health.results(self.uid)
        backoffs = self._backoffs.active(self._now_s())
        in_force, resize = self._steps.resizing.state(self.pod, seen, backoffs)
        decided = plan.next_step(self.pod, seen, backoffs, self._now_ns(), probed, in_force)
        pod = show_running(self.pod, seen) if self._ending else self.pod
        await self._report.publish(pod, seen, decided, resize)
        self._observe_start(pod, seen)
        if decided.action is None:
            return self._until_next(decided), False
        return await self._perform(self._counted(decided.action), seen), False

    def _counted(self, action: Action) -> Action:
        """A first start counts on from a former worker's."""
        former = self.attempts.get(action.name) if isinstance(action, StartContainer) else None
        if former is None or not isinstance(action, StartContainer) or action.attempt > former:
            return action
        return replace(action, attempt=former + 1)

    def _observe_start(self, pod: Pod, seen: ObservedPod) -> None:
        status = self._registry.status(self.uid)
        if self._is_starting and status and status.phase == RUNNING:
            self._is_starting = False
            took_s = self._now_s() - self._seen_s
            total_s = max(took_s, report.age_s(pod, self._services.now()))
            own_s = total_s - self._steps.pulled_s - report.initialising_s(pod, seen)
            observe = self._counts.timings.observe
            observe(pods_counts.POD_START, took_s)
            observe(pods_counts.POD_START_TOTAL, total_s)
            observe(pods_counts.POD_START_SLI, max(0.0, own_s))

    async def _remove(self, seen: ObservedPod, removal: PodRemoval) -> tuple[float | None, bool]:
        self._services.health.leave(self.uid)
        for detail in reversed(seen.containers):
            self.attempts[detail.container.name] = detail.container.attempt
        if self.pod and self.pod.metadata.deletionTimestamp and not seen.active:
            await self._report.publish(self.pod, seen, Plan(finished=True), removed=True)
        action = plan.removal_step(seen, grace_s=removal.grace_s)
        if action is not None:
            return await self._perform(action, seen), False
        try:
            await steps.remove_traces(self.uid, self._services)
        except StepFailed as failed:
            self._note(failed)
            return self._backoffs.active(self._now_s())[plan.SANDBOX].remaining_s, False
        services = self._services
        for part in (services.objects, services.sizes, services.events, self._counts):
            part.forget(self.uid)
        log.info("pod %s: removed", self.name)
        return None, True

    async def _perform(self, action: Action, seen: ObservedPod) -> float | None:
        """Perform an action and return how long to wait before the next."""
        if (delay_s := self._retry_delay_s(action)) > 0:
            return delay_s
        try:
            finished = await self._perform_interruptibly(action, seen)
        except StepFailed as failed:
            self._note(failed)
            backoff = self._backoffs.active(self._now_s()).get(failed.subject)
            self._failed_action = (action, self._now_s() + (backoff.remaining_s if backoff else 0))
            await self._pleg.after_listing(self.uid)
            return 0.0
        if not finished:  # its effect is unknown: observe before the next plan
            await self._pleg.after_listing(self.uid)
            return 0.0
        self._succeeded(action, seen)
        unchanged = self._registry.view(self.uid) == seen
        return _PAUSE_WITHOUT_PROGRESS_S if unchanged else 0.0

    async def _perform_interruptibly(self, action: Action, seen: ObservedPod) -> bool:
        """False when the pod's deadline, or a request to end or remove it, interrupted the step."""
        self._interrupt.clear()
        step = self._steps.perform(action, self.pod, seen)
        task = loops.spawn(step, name=f"pod {self.name}: {type(action).__name__}")
        interrupt = loops.spawn(self._interrupt.wait(), name=f"pod {self.name}: removal")
        try:
            left_s = self._deadline_left_s()
            timeout_s = None if left_s is None else left_s + _TICK_S
            await asyncio.wait(
                (task, interrupt), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not task.done():
                return False
            task.result()
            return True
        finally:
            await loops.cancel(task, interrupt)
            del task  # its error holds this frame: a failure would keep the pod as garbage

    def _succeeded(self, action: Action, before: ObservedPod) -> None:
        self._failed_action = None
        self._unavailable.reset()
        subject = action.name if isinstance(action, StartContainer) else plan.SANDBOX
        self._clear_failure(RESIZE if isinstance(action, ResizePod) else subject)
        if isinstance(action, CreateSandbox):
            self._counts.started_pods += 1
            self._is_starting = self._is_starting or (self._is_new and action.attempt == 0)
        if isinstance(action, StartContainer):
            self._counts.started_containers[container_type(self.pod, action.name)] += 1
            end = report.former_end(before, action.name)
            log.info("pod %s: started container %s%s", self.name, action.name, end)

    def _note(self, failed: StepFailed) -> None:
        self._backoffs.note(failed, self._now_s())
        subject, is_container = failed.subject, failed.subject not in (plan.SANDBOX, RESIZE)
        about = f"{self.name}: container {subject}" if is_container else self.name
        text = f"pod {about}: {failed.reason}: {failed}"
        self._failures.failed("%s", text, subject=subject, cause=failed.cause)
        if subject == RESIZE:
            return  # the status tells of it, and its event
        self._services.events.failed(self.pod, failed)
        if is_container:
            key = (container_type(self.pod, subject), failed.reason)
            self._counts.started_container_errors[key] += 1
        elif failed.reason in ("FailedCreatePodSandBox", "FailedMount"):
            self._counts.started_pod_errors += 1

    def _clear_failure(self, *subjects: str) -> None:
        for subject in subjects:
            self._backoffs.clear(subject)
            self._failures.recovered(subject=subject)

    def _retry_delay_s(self, action: Action) -> float:
        """The remaining back-off of a failed action; the plan itself delays container starts."""
        failed = self._failed_action
        if failed is None or failed[0] != action or isinstance(action, StartContainer):
            return 0.0
        return max(0.0, failed[1] - self._now_s())

    async def _check_awaited_files(self) -> None:
        for path in self._backoffs.awaited_files():
            if await asyncio.to_thread(os.path.exists, path):
                log.info("pod %s: %s appeared, retrying", self.name, path)
                self._backoffs.retry(path)

    async def _refresh_volumes(self, pod: Pod, seen: ObservedPod) -> None:
        """Update files that show the pod's own fields and objects of the API."""
        shown = any(map(volume_files.is_made_of_files, pod.spec.volumes or ()))
        if not (shown and seen.containers) or self._registry.has_ended(self.uid):
            self._projected, self._refresh_at_s = None, math.inf
            return
        if pod is self._projected and self._now_s() < self._refresh_at_s:
            return
        self._projected = pod
        shows_objects = bool(references.shown_in_volumes(pod))
        after_s = self._services.objects.refresh_s if shows_objects else math.inf
        self._refresh_at_s = self._now_s() + after_s * random.uniform(0.75, 1.0)  # noqa: S311
        objects = await self._services.objects.shown_in_volumes(pod)
        try:
            data = ProjectedData(self._services.settings.allocatable, objects)
            await self._services.volumes.prepare(pod, data)
        except VolumeError as error:
            again_s = self._now_s() + self._services.objects.refresh_s
            self._refresh_at_s = min(self._refresh_at_s, again_s)
            text = "pod %s: cannot update the files of its volumes, retrying: %s"
            self._stale.failed(text, self.name, error)
            self._services.events.warning(pod, "FailedMount", str(error))
        else:
            self._stale.recovered()

    def _until_next(self, decided: Plan) -> float | None:
        wakes = [self._refresh_at_s - self._now_s(), decided.wake_in_s, self._deadline_left_s()]
        if self._backoffs.awaited_files():
            wakes.append(_FILE_POLL_S)
        soonest = min((wake for wake in wakes if wake is not None), default=math.inf)
        return None if math.isinf(soonest) else max(soonest, _TICK_S)

    async def _sleep(self, wait_s: float | None) -> None:
        """Sleep until woken, at most `wait_s`; yield to other tasks in any case."""
        if wait_s is not None and wait_s <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _now_ns(self) -> int:
        return int(self._services.now().timestamp() * 1e9)
