"""Counters and timings of the work on pods, for the agent's metrics page.

Histograms have the buckets of the reference agent's metrics. Components that count receive the
object; only the metrics page reads it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from prometheus_client import Histogram
from prometheus_client.core import HistogramMetricFamily, Metric

from orch.component.diagnostics import metrics

_DEFAULT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STARTS_S = (
    *(0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0),
    *(300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0),
)
_PULLS_S = (1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0)
_SYNCS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0)
_SIZES = {
    **{f"{size}MB": size for size in (10, 100, 500)},
    **{f"{size}GB": size * 1000 for size in (1, 5, 10, 20, 30, 40, 60, 100)},
}  # bound as in the label → megabytes


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    text: str
    labels: tuple[str, ...] = ()
    buckets_s: tuple[float, ...] = _DEFAULT_S

    @property
    def help(self) -> str:
        return f"[ALPHA] {self.text}"


POD_START = Family(
    "nodeagent_pod_start_duration_seconds",
    "From seeing a pod first to its running.",
    buckets_s=_STARTS_S,
)
POD_START_SLI = Family(
    "nodeagent_pod_start_sli_duration_seconds",
    "From a pod's creation to its running, without pulling images and running init containers.",
    buckets_s=_STARTS_S,
)
POD_START_TOTAL = Family(
    "nodeagent_pod_start_total_duration_seconds",
    "From a pod's creation to its running, with pulling images and running init containers.",
    buckets_s=_STARTS_S,
)
WORKER_START = Family(
    "nodeagent_pod_worker_start_duration_seconds",
    "From seeing a pod first to beginning to work on it.",
)
WORKER = Family(
    "nodeagent_pod_worker_duration_seconds",
    "One look at a pod with the step that it led to.",
    ("operation_type",),
)
STATUS_SYNC = Family(
    "nodeagent_pod_status_sync_duration_seconds",
    "From a changed status of a pod to the API's having it.",
    buckets_s=_SYNCS_S,
)
RELIST = Family("nodeagent_pleg_relist_duration_seconds", "Listing all pods of the runtime.")
RELIST_INTERVAL = Family(
    "nodeagent_pleg_relist_interval_seconds", "Between two listings of the runtime's pods."
)
IMAGE_PULL = Family(
    "nodeagent_image_pull_duration_seconds",
    "Pulling an image, by its size.",
    ("image_size_in_bytes",),
    _PULLS_S,
)
CREDENTIAL_PLUGIN = Family(
    "nodeagent_credential_provider_plugin_duration_seconds",
    "Asking a plugin for the passwords of a registry.",
    ("plugin_name",),
)
CGROUPS = Family(
    "nodeagent_cgroup_manager_duration_seconds",
    "Making (create), bounding (update) and removing (destroy) cgroups of pods.",
    ("operation_type",),
)
RESIZE = Family(
    "nodeagent_pod_resize_duration_milliseconds",
    "Putting a new size of a pod in force.",
    ("success",),
    (10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000),
)
DEVICE_ALLOCATION = Family(
    "nodeagent_device_plugin_alloc_duration_seconds",
    "Asking a device plugin for the devices of a container.",
    ("resource_name",),
)
EVICTION_STATS_AGE = Family(
    "nodeagent_eviction_stats_age_seconds",
    "How old the statistics were by which a pod was evicted.",
    ("eviction_signal",),
)
PROBE = Family(
    "prober_probe_duration_seconds",
    "Duration of the probes of containers.",
    ("probe_type", "container", "pod", "namespace"),
)
FAMILIES = (
    *(POD_START, POD_START_SLI, POD_START_TOTAL, WORKER, WORKER_START, STATUS_SYNC),
    *(RELIST, RELIST_INTERVAL, IMAGE_PULL, CREDENTIAL_PLUGIN, CGROUPS, EVICTION_STATS_AGE),
    *(RESIZE, DEVICE_ALLOCATION),
)


@dataclass(slots=True)
class Timings:
    """Observed durations, by family and label values."""

    _histograms: dict[Family, Histogram] = field(default_factory=dict)

    def observe(self, family: Family, duration_s: float, *labels: str) -> None:
        histogram = self._histograms.get(family)
        if histogram is None:
            histogram = self._histograms[family] = Histogram(
                family.name, family.help, family.labels, registry=None, buckets=family.buckets_s
            )
        (histogram.labels(*labels) if labels else histogram).observe(duration_s)

    def collect(self, family: Family) -> Metric:
        """The family, without series before the first observation."""
        histogram = self._histograms.get(family)
        if histogram is None:
            return HistogramMetricFamily(family.name, family.help, labels=family.labels)
        return metrics.computed(histogram)

    def forget(self, family: Family, *labels: str) -> None:
        if family in self._histograms:
            self._histograms[family].remove(*labels)


def size_class(size_bytes: int) -> str:
    """The label for an image's size: `10MB-100MB`."""
    bounds = pairwise(("0", *_SIZES))
    found = (f"{low}-{high}" for low, high in bounds if size_bytes <= _SIZES[high] * 1_000_000)
    return next(found, "GT100GB")


class ProbeKey(NamedTuple):
    """The labels of `prober_probe_total`, in their order."""

    probe_type: str  # Liveness | Readiness | Startup
    result: str  # successful | failed | unknown
    container: str
    pod: str
    namespace: str
    pod_uid: str


class PodCounts:
    """Counters only grow, except that `forget` drops the probes of removed pods."""

    def __init__(self) -> None:
        self.timings = Timings()
        self.images_removed: Counter[str] = Counter()  # by reason
        self.credential_plugin_errors: Counter[str] = Counter()  # by plugin
        self.image_volumes_requested = 0
        self.image_volumes_mounted = 0
        self.image_volume_errors = 0
        self.started_pods = 0
        self.started_pod_errors = 0
        self.started_containers: Counter[str] = Counter()  # by type
        self.started_container_errors: Counter[tuple[str, str]] = Counter()  # by type, reason
        self.evictions: Counter[str] = Counter()  # by signal
        self.rejections: Counter[str] = Counter()  # by reason
        self.requested_resizes: Counter[tuple[str, str, str]] = Counter()  # see `allocations`
        self.infeasible_resizes = 0
        self.deferred_accepted_resizes = 0
        self.device_registrations: Counter[str] = Counter()  # by resource
        self.pod_resources_requests: Counter[str] = Counter()  # by method
        self.pod_resources_errors: Counter[str] = Counter()  # by method
        self.probes: Counter[ProbeKey] = Counter()
        self.discarded_events = 0  # of the runtime
        self.listed_at_s = 0.0  # when the runtime was listed last, in Unix seconds

    def forget(self, uid: str) -> None:
        """Drop the probe series of a removed pod."""
        for key in [key for key in self.probes if key.pod_uid == uid]:
            del self.probes[key]
            self.timings.forget(PROBE, key.probe_type, key.container, key.pod, key.namespace)
