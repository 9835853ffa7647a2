"""One pod's worker: observe, plan, do one step, show the status; again, until the pod is gone.

Nothing a pod or the runtime does ends a worker: failures become waiting reasons with back-off, a
runtime that is away is waited for, and an error nobody expected is logged and tried again. A
request to remove the pod interrupts whatever step is under way.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from dataclasses import dataclass

from nodeagent.pods import counts as pods_counts
from nodeagent.pods.actions import Action, CreateSandbox, Plan, StartContainer
from nodeagent.pods.backoff import StepBackoffs, StepFailed
from nodeagent.pods.decide import plan
from nodeagent.pods.decide.phase import FINAL_PHASES, RUNNING, Ending, ended, shown
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.spec import references, volume_files
from nodeagent.pods.volumes.volumes import Knowledge, VolumeError
from nodeagent.pods.worker import report, steps
from nodeagent.pods.worker.report import StatusReport
from nodeagent.pods.worker.services import PodServices
from nodeagent.pods.worker.steps import Steps
from nodeagent.runtime.base import RuntimeUnavailable
from orch.component.process import loops
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.wire import times
from orch.wire.podrules.podspec import all_containers, container_type, find_container
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

_PAUSE_AFTER_BUG_S = 10.0
_PAUSE_WITHOUT_PROGRESS_S = 1.0
_UNAVAILABLE_S = (0.5, 2.0, 30.0)  # first pause, factor, longest one
_TICK_S = 0.01
_FILE_POLL_S = 1.0  # how often a file that a container waits for is looked for


@dataclass(frozen=True, slots=True)
class Removal:
    """The pod is to go; `grace_s` None means its own grace period."""

    grace_s: int | None = None


class PodWorker:
    """Works on one pod from `run`; `pod` is None for what was found without one.

    `seen_s` is when the agent saw the pod first, in loop time.
    """

    def __init__(self, uid: str, pod: Pod | None, services: PodServices, seen_s: float) -> None:
        self.uid = uid
        self.pod = pod
        self._services = services
        self._pleg = services.pleg
        self._registry = services.registry
        self._steps = Steps(uid, services)
        self._report = StatusReport(uid, services)
        self._backoffs = StepBackoffs()
        self._unavailable = Backoff(*_UNAVAILABLE_S)
        self._counts = services.counts
        self._seen_s = seen_s
        self._starts = False  # made here, and not shown as running yet
        self._wake = asyncio.Event()
        self._removal: Removal | None = None
        self._ending: Ending | None = None
        self._ended_at = ""
        self._shown_in_volumes: Pod | None = None
        self._refresh_at_s = math.inf  # loop time when volumes are compared with the API
        self._failures = OnceLog(log)  # of steps, by subject
        self._stale = OnceLog(log)  # files of its volumes
        self._interrupt = asyncio.Event()  # a new request to remove the pod
        self._failed_action: tuple[Action, float] | None = None  # not again before this loop time

    @property
    def name(self) -> str:
        """`namespace/name`, or the uid of a pod whose name nobody knows."""
        if self.pod:
            return self.pod.key
        view = self._registry.view(self.uid)
        return f"{view.namespace}/{view.name}" if view.name else self.uid

    @property
    def removing(self) -> bool:
        return self._removal is not None

    @property
    def occupies(self) -> bool:
        """Whether the pod counts as using the node: until it is gone, or over."""
        shown = self._registry.status(self.uid)
        return self.pod is not None and (shown is None or shown.phase not in FINAL_PHASES)

    def poke(self) -> None:
        """Something about the pod changed: look again."""
        self._wake.set()

    def update(self, pod: Pod) -> None:
        """The pod's newest definition; the one that is known already is no reason to look again."""
        if self._ending:
            pod = ended(pod, self._ending, self._ended_at)
        known, self.pod = self.pod, pod
        if pod is known or pod == known:
            return
        for container in all_containers(pod):
            before = find_container(known, container.name) if known else None
            if before != container:
                self._forgive(container.name)  # what was wrong may be right now
        self.poke()

    def end(self, ending: Ending) -> bool:
        """Let the pod fail: its containers stop and stay so. False when it is over already."""
        if self.pod is None or self._ending or not self.occupies:
            return False
        log.warning("pod %s: %s: %s", self.name, ending.reason, ending.message.strip())
        self._ending = ending
        self._ended_at = times.format_time(self._services.now())
        self.pod = ended(self.pod, ending, self._ended_at)
        self._failed_action = None
        self._interrupt.set()
        self.poke()
        return True

    def remove(self, removal: Removal) -> None:
        """Stop and remove the pod; a second request can only shorten the grace period."""
        known = self._removal
        if known and (removal.grace_s is None or removal == known):
            return
        if not known:
            log.info("pod %s: removing", self.name)
        self._removal = removal
        self._failed_action = None
        self._interrupt.set()
        self.poke()

    async def run(self) -> None:
        """Work until the pod is removed and nothing is left of it."""
        if self.pod:
            self._counts.timings.observe(pods_counts.WORKER_START, self._now_s() - self._seen_s)
        while True:
            self._wake.clear()
            began_s = self._now_s()
            try:
                wait_s, done = await self._turn()
                operation = "terminate" if self.removing else "sync"
                self._counts.timings.observe(pods_counts.WORKER, self._now_s() - began_s, operation)
            except RuntimeUnavailable as error:
                await self._wait_for_runtime(error)
                continue
            except Exception:
                log.exception("pod %s: unexpected error, trying again", self.name)
                wait_s, done = _PAUSE_AFTER_BUG_S, False
            if done:
                return
            await self._sleep(wait_s)

    async def _wait_for_runtime(self, error: RuntimeUnavailable) -> None:
        """Until it lists again; one that lists and yet does not take calls is asked less often."""
        log.debug("pod %s: the runtime does not take calls: %s", self.name, error)
        await asyncio.sleep(self._unavailable.next())
        await self._pleg.after_listing(self.uid)

    async def _turn(self) -> tuple[float | None, bool]:
        """How long to wait at most (None: until woken), and whether the pod is gone."""
        if not self._registry.settled(self.uid):
            await self._pleg.after_listing(self.uid)
        seen = self._registry.view(self.uid)
        if self._removal is not None:
            return await self._remove(seen, self._removal)
        if self.pod is None:
            return None, False
        await self._look_for_files()
        await self._refresh_volumes(self.pod, seen)
        await self._services.health.recall(self.uid)
        self._services.health.follow(self.pod, seen, self._services.settings.host_ip)
        probed = self._services.health.results(self.uid)
        backoffs = self._backoffs.active(self._now_s())
        decided = plan.next_step(self.pod, seen, backoffs, self._now_ns(), probed)
        pod = shown(self.pod, seen) if self._ending else self.pod
        await self._report.show(pod, seen, decided)
        self._observe_start(pod, seen)
        if decided.action is None:
            return self._until_next(decided), False
        return await self._perform(decided.action, seen), False

    def _observe_start(self, pod: Pod, seen: ObservedPod) -> None:
        shown = self._registry.status(self.uid)
        if self._starts and shown and shown.phase == RUNNING:
            self._starts = False
            took_s = self._now_s() - self._seen_s
            total_s = max(took_s, report.age_s(pod, self._services.now()))
            own_s = total_s - self._steps.pulled_s - report.initialising_s(pod, seen)
            self._counts.timings.observe(pods_counts.POD_START, took_s)
            self._counts.timings.observe(pods_counts.POD_START_TOTAL, total_s)
            self._counts.timings.observe(pods_counts.POD_START_SLI, max(0.0, own_s))

    async def _remove(self, seen: ObservedPod, removal: Removal) -> tuple[float | None, bool]:
        self._services.health.leave(self.uid)
        action = plan.removal_step(seen, grace_s=removal.grace_s)
        if action is not None:
            wait_s = await self._perform(action, seen)
            if self.pod is not None:
                view = self._registry.view(self.uid)
                await self._report.show(self.pod, view, Plan(finished=True))
            return wait_s, False
        try:
            await steps.remove_traces(self.uid, self._services)
        except StepFailed as failed:
            self._note(failed)
            return self._backoffs.active(self._now_s())[plan.SANDBOX].remaining_s, False
        self._services.events.forget(self.uid)
        self._services.objects.forget(self.uid)
        self._counts.forget(self.uid)
        log.info("pod %s: removed", self.name)
        return None, True

    async def _perform(self, action: Action, seen: ObservedPod) -> float | None:
        """Do a step; how long to wait before the next one."""
        held_s = self._held_s(action)
        if held_s > 0:
            return held_s
        try:
            finished = await self._do(action, seen)
        except StepFailed as failed:
            self._note(failed)
            backoff = self._backoffs.active(self._now_s()).get(failed.subject)
            self._failed_action = (action, self._now_s() + (backoff.remaining_s if backoff else 0))
            await self._pleg.after_listing(self.uid)
            return 0.0
        if not finished:  # its effect is unknown: look at what there is before going on
            await self._pleg.after_listing(self.uid)
            return 0.0
        self._succeeded(action)
        unchanged = self._registry.view(self.uid) == seen
        return _PAUSE_WITHOUT_PROGRESS_S if unchanged else 0.0

    async def _do(self, action: Action, seen: ObservedPod) -> bool:
        """False when a new request to end or remove the pod interrupted the step."""
        self._interrupt.clear()
        step = self._steps.perform(action, self.pod, seen)
        task = loops.spawn(step, name=f"pod {self.name}: {type(action).__name__}")
        asked = loops.spawn(self._interrupt.wait(), name=f"pod {self.name}: removal")
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            task.result()
            return True
        finally:
            await loops.cancel(task, asked)

    def _succeeded(self, action: Action) -> None:
        self._failed_action = None
        self._unavailable.reset()
        subject = action.name if isinstance(action, StartContainer) else plan.SANDBOX
        self._forgive(subject)
        if isinstance(action, CreateSandbox):
            self._counts.started_pods += 1
            self._starts = self._starts or action.attempt == 0
        if isinstance(action, StartContainer):
            self._counts.started_containers[container_type(self.pod, action.name)] += 1
            log.info("pod %s: started container %s", self.name, action.name)

    def _note(self, failed: StepFailed) -> None:
        self._backoffs.note(failed, self._now_s())
        subject = failed.subject
        about = f"pod {self.name}" + (f": container {subject}" if subject else "")
        self._failures.failed("%s: %s: %s", about, failed.reason, failed, subject=subject)
        self._services.events.failed(self.pod, failed)
        self._count_failure(failed)

    def _forgive(self, subject: str) -> None:
        self._backoffs.clear(subject)
        self._failures.recovered(subject=subject)

    def _count_failure(self, failed: StepFailed) -> None:
        if failed.subject:
            key = (container_type(self.pod, failed.subject), failed.reason)
            self._counts.started_container_errors[key] += 1
        elif failed.reason in ("FailedCreatePodSandBox", "FailedMount"):
            self._counts.started_pod_errors += 1

    def _held_s(self, action: Action) -> float:
        """How long a step that failed is not to be repeated; the plan sees to starts itself."""
        if self._failed_action is None or self._failed_action[0] != action:
            return 0.0
        if isinstance(action, StartContainer):
            return 0.0
        return max(0.0, self._failed_action[1] - self._now_s())

    async def _look_for_files(self) -> None:
        for path in self._backoffs.awaited():
            if await steps.exists(path):
                log.info("pod %s: %s is there now, trying again", self.name, path)
                self._backoffs.retry(path)

    async def _refresh_volumes(self, pod: Pod, seen: ObservedPod) -> None:
        """Files that show the pod's own fields and objects of the API follow them as it runs."""
        if not seen.containers or not any(
            map(volume_files.is_made_of_files, pod.spec.volumes or ())
        ):
            return
        if pod is self._shown_in_volumes and self._now_s() < self._refresh_at_s:
            return
        self._shown_in_volumes = pod
        shows_objects = bool(references.shown_in_volumes(pod))
        after_s = self._services.objects.refresh_s if shows_objects else math.inf
        self._refresh_at_s = self._now_s() + after_s * random.uniform(0.75, 1.0)  # noqa: S311
        objects = await self._services.objects.shown_in_volumes(pod)
        try:
            known = Knowledge(self._services.settings.allocatable, objects)
            await self._services.volumes.prepare(pod, known)
        except VolumeError as error:
            again_s = self._now_s() + self._services.objects.refresh_s
            self._refresh_at_s = min(self._refresh_at_s, again_s)
            text = "pod %s: the files of its volumes stay as they are, retrying: %s"
            self._stale.failed(text, self.name, error)
            self._services.events.warning(pod, "FailedMount", str(error))
        else:
            self._stale.recovered()

    def _until_next(self, decided: Plan) -> float | None:
        wakes = [self._refresh_at_s - self._now_s(), decided.wake_in_s]
        if self._backoffs.awaited():
            wakes.append(_FILE_POLL_S)
        soonest = min((wake for wake in wakes if wake is not None), default=math.inf)
        return None if math.isinf(soonest) else max(soonest, _TICK_S)

    async def _sleep(self, wait_s: float | None) -> None:
        """Until woken, or so long at most; a moment in any case, to let others run."""
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
