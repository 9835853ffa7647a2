"""Publishes the status of a pod in the registry and in events.

Also measures how long a pod's start took, by the timestamps of the API and of the runtime.
"""

from __future__ import annotations

import logging
from datetime import datetime

from nodeagent.pods.actions import Plan
from nodeagent.pods.decide import status
from nodeagent.pods.decide.admission import Refusal
from nodeagent.pods.decide.status import Facts
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.resize.changes import IN_PROGRESS, NO_RESIZE, Progress, event_text
from nodeagent.pods.spec import spec
from nodeagent.pods.worker.services import PodServices
from nodeagent.runtime.base import ContainerState
from orch.wire import times
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import FINAL_PHASES, all_containers, is_sidecar
from orch.wire.records.pods import Pod, PodStatus

log = logging.getLogger(__name__)


class StatusReport:
    """The status of one pod, published while the pod is desired."""

    def __init__(self, uid: str, services: PodServices) -> None:
        self._uid = uid
        self._services = services
        self._registry = services.registry

    async def publish(
        self,
        pod: Pod,
        seen: ObservedPod,
        decided: Plan,
        resize: Progress = NO_RESIZE,
        *,
        removed: bool = False,
    ) -> None:
        """Compute the status from the observed pod and the plan, and publish it."""
        if self._registry.desired(self._uid) is None:
            return
        facts = Facts(
            now=times.format_time(self._services.now()),
            host_ip=self._services.settings.host_ip,
            plan=decided,
            removed=removed,
            probed=self._services.health.results(self._uid),
            resize=resize,
            in_force=self._services.sizes.of(pod, seen, self._services.allocations.of(self._uid)),
            devices=self._services.device_health(self._uid),
            recursion_possible=spec.recursion_possible(self._services.settings),
            messages=await self._services.messages.of(seen, all_containers(pod)),
        )
        self._services.events.crash_loops(pod, _crash_looping(seen, decided))
        self._services.events.pull_backoffs(pod, _waiting_for_pulls(pod, decided))
        before = self._registry.status(self._uid)
        self._tell_of_resize(pod, before or pod.status, resize)
        self._registry.set_status(self._uid, status.pod_status(pod, seen, facts, before))

    def _tell_of_resize(self, pod: Pod, before: PodStatus, resize: Progress) -> None:
        """By the last status, which may be that of an agent that was killed meanwhile."""
        known = next((c for c in before.conditions or () if c.type == IN_PROGRESS), None)
        events, generation = self._services.events, resize.generation
        if resize.in_progress and resize.error:
            if known is None or known.message != resize.error:
                text = event_text("Pod resize error", pod, generation, resize.error)
                events.warning(pod, "ResizeError", text)
        elif known and not resize.in_progress and pod.status.phase not in FINAL_PHASES:
            told = known.observedGeneration or generation
            text = event_text("Pod resize completed", pod, told)
            events.normal(pod, "ResizeCompleted", text)
            if known.message:
                log.info("pod %s: the resize that failed has succeeded", pod.key)


def refuse(pod: Pod, refusal: Refusal, services: PodServices) -> None:
    """Publish that this node rejects a pod, and why."""
    log.warning("pod %s: %s: %s", pod.key, refusal.reason, refusal.message)
    services.counts.rejections[refusal.reason] += 1
    services.events.warning(pod, refusal.reason, refusal.message)
    now = times.format_time(services.now())
    refused = status.refused_status(pod, refusal.reason, refusal.message, now)
    services.registry.set_status(pod.metadata.uid or "", refused)


def _crash_looping(seen: ObservedPod, decided: Plan) -> dict[str, int]:
    """Containers waiting to be restarted, with the attempt that ended."""
    names = [name for name, w in decided.waiting.items() if w.reason == "CrashLoopBackOff"]
    latest = {name: seen.latest(name) for name in names}
    return {name: detail.container.attempt for name, detail in latest.items() if detail}


def _waiting_for_pulls(pod: Pod, decided: Plan) -> dict[str, str]:
    """Containers waiting for another pull, with their image."""
    names = {name for name, w in decided.waiting.items() if w.reason == "ImagePullBackOff"}
    return {c.name: c.image for c in all_containers(pod) if c.name in names}


def age_s(pod: Pod, now: datetime) -> float:
    """Age since creation in the API, to the second; 0 for a static pod."""
    created = pod.metadata.creationTimestamp
    if not created or podspec.is_static(pod):
        return 0.0
    return (now - times.parse_time(created)).total_seconds()


def initialising_s(pod: Pod, seen: ObservedPod) -> float:
    """How long all attempts of the init containers ran, without sidecars."""
    inits = {c.name for c in pod.spec.initContainers or () if not is_sidecar(c)}
    return sum(
        (detail.finished_at_ns - detail.started_at_ns) / 1e9
        for detail in seen.containers
        if detail.container.name in inits and detail.container.state is ContainerState.EXITED
    )


def former_end(seen: ObservedPod, name: str) -> str:
    """How the container of that name had ended before, for a log line; "" if it had not."""
    latest = seen.latest(name)
    if latest is None or latest.container.state is not ContainerState.EXITED:
        return ""
    reason = f" ({latest.reason})" if latest.reason else ""
    return f" again: it had ended with {latest.exit_code}{reason}"
