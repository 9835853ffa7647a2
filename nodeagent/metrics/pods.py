"""The pods' part of the agent's metrics page, and the page of probes.

Every value is read from the registry and the counts when a page is requested; nothing is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from nodeagent.metrics.families import BETA, by_label, counter, counters, gauge, gauges
from nodeagent.pods.counts import FAMILIES, PROBE, PodCounts, ProbeKey
from nodeagent.pods.decide.phase import FINAL_PHASES
from nodeagent.pods.registry import PodRegistry
from orch.component.process import system
from orch.wire.podrules import podspec


def pod_metrics(registry: PodRegistry, counts: PodCounts, mirrors: int) -> Iterator[Metric]:
    """Desired, running and started pods and containers, rejections, and mirror pods in the API."""
    static = Counter("true" if podspec.is_static(pod) else "" for pod in registry.pods())
    yield gauges("nodeagent_desired_pods", "Pods that should run.", ["static"], by_label(static))
    yield gauge("nodeagent_mirror_pods", "Mirror pods that the API holds.", mirrors)
    yield from _lifecycles(registry)
    views = registry.views().values()
    running = sum(1 for view in views if view.active)
    yield gauge("nodeagent_running_pods", "Pods with a running container.", running)
    states = Counter(c.container.state.value for view in views for c in view.containers)
    yield gauges(
        "nodeagent_running_containers",
        "Containers of pods, by their state.",
        ["container_state"],
        by_label(states),
    )
    yield from _starts(counts)
    yield from _image_volumes(counts)
    yield from _listings(counts)
    for family in FAMILIES:
        yield counts.timings.collect(family)


def probe_metrics(counts: PodCounts) -> Iterator[Metric]:
    """Probes of containers, and since when this process counts them."""
    text = "Start time of the process since unix epoch in seconds."
    yield gauge("process_start_time_seconds", text, system.process_start_s())
    yield counts.timings.collect(PROBE)
    yield counters(
        "prober_probe",
        "Probes of containers, by their result.",
        ProbeKey._fields,
        sorted(counts.probes.items()),
        tier=BETA,
    )


def _lifecycles(registry: PodRegistry) -> Iterator[Metric]:
    """Pods that have not finished, and the step of the lifecycle that each is in."""
    active: Counter[str] = Counter()
    working: Counter[tuple[str, str, str]] = Counter()
    for pod in registry.pods():
        static = "true" if podspec.is_static(pod) else ""
        over = pod.status.phase in FINAL_PHASES
        active[static] += not over
        lifecycle = "terminating" if over or pod.metadata.deletionTimestamp else "sync"
        if over and not registry.view(pod.metadata.uid or "").active:
            lifecycle = "terminated"
        working[lifecycle, "desired", static] += 1
    for uid, view in registry.views().items():
        if view.active and registry.desired(uid) is None:
            working["terminating", "orphan", "unknown"] += 1
    yield gauges("nodeagent_active_pods", "Pods that are not over.", ["static"], by_label(active))
    yield gauges(
        "nodeagent_working_pods",
        "Pods by what is done about them, and whether anyone wants them.",
        ["lifecycle", "config", "static"],
        sorted(working.items()),
    )


def _image_volumes(counts: PodCounts) -> Iterator[Metric]:
    for name, text, value in (
        (
            "nodeagent_image_volume_requested",
            "Mounts of images as volumes that were asked for.",
            counts.image_volumes_requested,
        ),
        (
            "nodeagent_image_volume_mounted_succeed",
            "Mounts of images as volumes that were made.",
            counts.image_volumes_mounted,
        ),
        (
            "nodeagent_image_volume_mounted_errors",
            "Mounts of images as volumes that could not be made.",
            counts.image_volume_errors,
        ),
    ):
        yield counter(name, text, value, tier=BETA)


def _listings(counts: PodCounts) -> Iterator[Metric]:
    text = "When the runtime's pods were listed last, in Unix seconds; 0 for not yet."
    yield gauge("nodeagent_pleg_last_seen_seconds", text, counts.listed_at_s)
    yield counter(
        "nodeagent_pleg_discard_events",
        "Events of the runtime passed over: they told nothing new.",
        counts.discarded_events,
    )


def _starts(counts: PodCounts) -> Iterator[Metric]:
    for name, text, value in (
        ("nodeagent_started_pods", "Sandboxes of pods started.", counts.started_pods),
        (
            "nodeagent_started_pods_errors",
            "Sandboxes that could not be started.",
            counts.started_pod_errors,
        ),
    ):
        yield counter(name, text, value)
    yield counters(
        "nodeagent_started_containers",
        "Containers started.",
        ("container_type",),
        by_label(counts.started_containers),
    )
    yield counters(
        "nodeagent_started_containers_errors",
        "Containers that could not be started, by their waiting reason.",
        ("container_type", "code"),
        sorted(counts.started_container_errors.items()),
    )
    yield counters(
        "nodeagent_image_garbage_collected",
        "Unused images removed, by the reason: space or age.",
        ("reason",),
        by_label(counts.images_removed),
    )
    yield counters(
        "nodeagent_evictions",
        "Pods evicted, by what they used too much of.",
        ("eviction_signal",),
        by_label(counts.evictions),
    )
    yield counters(
        "nodeagent_admission_rejections",
        "Pods that this node did not take, by the reason.",
        ("reason",),
        by_label(counts.rejections),
    )
