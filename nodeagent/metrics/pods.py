"""The pods' part of the agent's metrics page, and the page of probes; read from the registry and
from what was counted, when asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from nodeagent.pods.counts import FAMILIES, PROBE, PodCounts, ProbeKey
from nodeagent.pods.decide.phase import FINAL_PHASES
from nodeagent.pods.registry import PodRegistry
from orch.component.process import system
from orch.wire.podrules import podspec

_ALPHA, _BETA = "[ALPHA] ", "[BETA] "


def pod_metrics(registry: PodRegistry, counts: PodCounts, mirrors: int) -> Iterator[Metric]:
    """Desired, running and started pods and containers, refusals; `mirrors` the API holds."""
    static = Counter("true" if podspec.is_static(pod) else "" for pod in registry.pods())
    yield _gauges("nodeagent_desired_pods", "Pods that should run.", "static", static)
    yield _gauge("nodeagent_mirror_pods", "Mirror pods that the API holds.", mirrors)
    yield from _lifecycles(registry)
    views = registry.views().values()
    running = sum(1 for view in views if view.active)
    yield _gauge("nodeagent_running_pods", "Pods with a running container.", running)
    states = Counter(c.container.state.value for view in views for c in view.containers)
    yield _gauges(
        "nodeagent_running_containers",
        "Containers of pods, by their state.",
        "container_state",
        states,
    )
    yield from _starts(counts)
    yield from _image_volumes(counts)
    yield from _listings(counts)
    for family in FAMILIES:
        yield counts.timings.shown(family)


def probe_metrics(counts: PodCounts) -> Iterator[Metric]:
    """Probes of containers, and since when this process counts them."""
    text = "Start time of the process since unix epoch in seconds."
    yield _gauge("process_start_time_seconds", text, system.process_start_s())
    yield counts.timings.shown(PROBE)
    yield _counters(
        "prober_probe",
        _BETA + "Probes of containers, by their result.",
        ProbeKey._fields,
        counts.probes.items(),
    )


def _lifecycles(registry: PodRegistry) -> Iterator[Metric]:
    """Pods that are not over, and what is being done about each of them."""
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
    yield _gauges("nodeagent_active_pods", "Pods that are not over.", "static", active)
    family = GaugeMetricFamily(
        "nodeagent_working_pods",
        _ALPHA + "Pods by what is done about them, and whether anyone wants them.",
        labels=["lifecycle", "config", "static"],
    )
    for labels, count in sorted(working.items()):
        family.add_metric(list(labels), count)
    yield family


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
        yield _counters(name, _BETA + text, (), [((), value)])


def _listings(counts: PodCounts) -> Iterator[Metric]:
    text = "When the runtime's pods were listed last, in Unix seconds; 0 for not yet."
    yield _gauge("nodeagent_pleg_last_seen_seconds", text, counts.listed_at_s)
    yield _counters(
        "nodeagent_pleg_discard_events",
        _ALPHA + "Events of the runtime passed over: they told nothing new.",
        (),
        [((), counts.discarded_events)],
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
        yield _counters(name, _ALPHA + text, (), [((), value)])
    yield _counters(
        "nodeagent_started_containers",
        _ALPHA + "Containers started.",
        ("container_type",),
        [((kind,), count) for kind, count in counts.started_containers.items()],
    )
    yield _counters(
        "nodeagent_started_containers_errors",
        _ALPHA + "Containers that could not be started, by their waiting reason.",
        ("container_type", "code"),
        counts.started_container_errors.items(),
    )
    yield _counters(
        "nodeagent_image_garbage_collected",
        _ALPHA + "Unused images removed, by the reason: space or age.",
        ("reason",),
        [((reason,), count) for reason, count in counts.images_removed.items()],
    )
    yield _counters(
        "nodeagent_evictions",
        _ALPHA + "Pods evicted, by what they used too much of.",
        ("eviction_signal",),
        [((signal,), count) for signal, count in counts.evictions.items()],
    )
    yield _counters(
        "nodeagent_admission_rejections",
        _ALPHA + "Pods that this node did not take, by the reason.",
        ("reason",),
        [((reason,), count) for reason, count in counts.rejections.items()],
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, _ALPHA + text, value=value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, _ALPHA + text, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family


def _counters(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], int]]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=list(labels))
    for key, count in sorted(values):
        family.add_metric(list(key), count)
    return family
