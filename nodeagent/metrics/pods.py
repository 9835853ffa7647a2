"""The pods' part of the agent's metrics page, read from the registry when it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from nodeagent.pods import manifests
from nodeagent.pods.counts import ProbeKey
from nodeagent.pods.registry import PodRegistry

_ALPHA, _BETA = "[ALPHA] ", "[BETA] "


def pod_metrics(registry: PodRegistry) -> Iterator[Metric]:
    """Desired, running and started pods and containers, refusals, probes."""
    static = Counter("true" if manifests.is_static(pod) else "" for pod in registry.pods())
    yield _gauges("nodeagent_desired_pods", "Pods that should run.", "static", static)
    views = registry.views().values()
    running = GaugeMetricFamily("nodeagent_running_pods", _ALPHA + "Pods with a running container.")
    running.add_metric([], sum(1 for view in views if view.active))
    yield running
    states = Counter(c.container.state.value for view in views for c in view.containers)
    yield _gauges(
        "nodeagent_running_containers",
        "Containers of pods, by their state.",
        "container_state",
        states,
    )
    yield from _starts(registry)
    yield _counters(
        "prober_probe",
        _BETA + "Probes of containers, by their result.",
        ProbeKey._fields,
        registry.counts.probes.items(),
    )


def _starts(registry: PodRegistry) -> Iterator[Metric]:
    counts = registry.counts
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
        "nodeagent_admission_rejections",
        _ALPHA + "Pods that this node did not take, by the reason.",
        ("reason",),
        [((reason,), count) for reason, count in counts.rejections.items()],
    )


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
