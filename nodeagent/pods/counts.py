"""What happened to pods since the agent began, counted for its metrics page."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from nodeagent.pods.timings import Timings


class ProbeKey(NamedTuple):
    """The labels of `prober_probe_total`, in their order."""

    probe_type: str  # Liveness | Readiness | Startup
    result: str  # successful | failed | unknown
    container: str
    pod: str
    namespace: str
    pod_uid: str


class PodCounts:
    """Only grows, but for the probes of pods that are gone."""

    def __init__(self) -> None:
        self.timings = Timings()
        self.images_removed: Counter[str] = Counter()  # by reason
        self.started_pods = 0
        self.started_pod_errors = 0
        self.started_containers: Counter[str] = Counter()  # by type
        self.started_container_errors: Counter[tuple[str, str]] = Counter()  # by type, reason
        self.evictions: Counter[str] = Counter()  # by signal
        self.rejections: Counter[str] = Counter()  # by reason
        self.probes: Counter[ProbeKey] = Counter()

    def forget(self, uid: str) -> None:
        """A pod is gone: its probes are no longer shown."""
        for key in [key for key in self.probes if key.pod_uid == uid]:
            del self.probes[key]
