"""How long the start of a pod took, by the stamps of the API and of the runtime; pure."""

from __future__ import annotations

from datetime import datetime

from nodeagent.pods import manifests
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.restarts import is_sidecar
from nodeagent.runtime.base import ContainerState
from orch.wire import times
from orch.wire.pods import Pod


def age_s(pod: Pod, now: datetime) -> float:
    """Since its creation in the API, to the second; 0 for a static pod, which begins when seen."""
    created = pod.metadata.creationTimestamp
    if not created or manifests.is_static(pod):
        return 0.0
    return (now - times.parse_time(created)).total_seconds()


def initialising_s(pod: Pod, seen: ObservedPod) -> float:
    """How long its init containers ran, every try of them; sidecars run beside the others."""
    first = {c.name for c in pod.spec.initContainers or () if not is_sidecar(c)}
    return sum(
        (one.finished_at_ns - one.started_at_ns) / 1e9
        for one in seen.containers
        if one.container.name in first and one.container.state is ContainerState.EXITED
    )
