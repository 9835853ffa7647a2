"""Puts the status of one pod where everyone can see it: in the registry, and in events."""

from __future__ import annotations

from nodeagent.pods import spec, status
from nodeagent.pods.actions import Plan
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.services import PodServices
from nodeagent.pods.status import Facts
from orch.wire import times
from orch.wire.pods import Pod


class Display:
    """Shows nothing of a pod that is no longer desired."""

    def __init__(self, uid: str, services: PodServices) -> None:
        self._uid = uid
        self._services = services
        self._registry = services.registry

    async def show(self, pod: Pod, seen: ObservedPod, decided: Plan) -> None:
        """Compute the status from what is seen and planned, and show it."""
        if self._registry.desired(self._uid) is None:
            return
        facts = Facts(
            now=times.format_time(self._services.now()),
            host_ip=self._services.settings.host_ip,
            plan=decided,
            signs=self._services.vitals.signs(self._uid),
            messages=await self._services.messages.of(seen, spec.all_containers(pod)),
        )
        self._services.events.crash_loops(pod, _crash_looping(seen, decided))
        self._services.events.pull_backoffs(pod, _waiting_for_pulls(pod, decided))
        before = self._registry.status(self._uid)
        self._registry.set_status(self._uid, status.pod_status(pod, seen, facts, before))


def _crash_looping(seen: ObservedPod, decided: Plan) -> dict[str, int]:
    """Containers that wait for their next start, with the attempt that ended."""
    names = [name for name, w in decided.waiting.items() if w.reason == "CrashLoopBackOff"]
    latest = {name: seen.latest(name) for name in names}
    return {name: detail.container.attempt for name, detail in latest.items() if detail}


def _waiting_for_pulls(pod: Pod, decided: Plan) -> dict[str, str]:
    """Containers that wait for another pull, with their image."""
    names = {name for name, w in decided.waiting.items() if w.reason == "ImagePullBackOff"}
    return {c.name: c.image for c in spec.all_containers(pod) if c.name in names}
