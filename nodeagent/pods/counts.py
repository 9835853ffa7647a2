"""What happened to pods since the agent began, counted for its metrics page."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from nodeagent.pods.timings import PROBE, Timings


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
        self.image_volumes_requested = 0
        self.image_volumes_mounted = 0
        self.image_volume_errors = 0
        self.started_pods = 0
        self.started_pod_errors = 0
        self.started_containers: Counter[str] = Counter()  # by type
        self.started_container_errors: Counter[tuple[str, str]] = Counter()  # by type, reason
        self.evictions: Counter[str] = Counter()  # by signal
        self.rejections: Counter[str] = Counter()  # by reason
        self.probes: Counter[ProbeKey] = Counter()
        self.discarded_events = 0  # of the runtime
        self.listed_at_s = 0.0  # when the runtime was listed last, in Unix seconds

    def forget(self, uid: str) -> None:
        """A pod is gone: its probes are no longer shown."""
        for key in [key for key in self.probes if key.pod_uid == uid]:
            del self.probes[key]
            self.timings.forget(PROBE, key.probe_type, key.container, key.pod, key.namespace)
