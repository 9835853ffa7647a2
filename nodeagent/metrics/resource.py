"""/metrics/resource: cpu, memory and swap of node, pods and containers, for autoscalers; pure.

Names, labels and stability are those the metrics collection server reads. Every sample carries
the stamp of its reading; what is not known is left out, and no single pod can spoil the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nodeagent.metrics import text
from nodeagent.metrics.text import Page
from nodeagent.stats.samples import CgroupSample, ContainerSample, Sample

_NSEC_PER_S = 1e9

Value = Callable[[CgroupSample], float | None]


class _Row(NamedTuple):
    labels: str
    sample: CgroupSample


def render_resource_metrics(sample: Sample | None, *, openmetrics: bool = False) -> bytes:
    """The page; without a sample it holds the two error gauges alone, with value 1."""
    page = Page(openmetrics=openmetrics)
    if sample is None:
        return _errors(page, 1)
    containers = list(_container_rows(sample))
    pods = list(_pod_rows(sample))
    _family(page, "container_cpu_usage_seconds_total", "counter", _CPU, containers)
    _family(page, "container_memory_working_set_bytes", "gauge", _WORKING_SET, containers)
    _start_times(page, sample)
    _family(page, "container_swap_limit_bytes", "gauge", _SWAP_LIMIT, containers)
    _family(page, "container_swap_usage_bytes", "gauge", _SWAP, containers)
    _node(page, sample)
    _family(page, "pod_cpu_usage_seconds_total", "counter", _CPU, pods)
    _family(page, "pod_memory_working_set_bytes", "gauge", _WORKING_SET, pods)
    _family(page, "pod_swap_usage_bytes", "gauge", _SWAP, pods)
    return _errors(page, 0)


_HELP = {
    "container_cpu_usage_seconds_total": "Cumulative cpu time consumed by the container in "
    "core-seconds",
    "container_memory_working_set_bytes": "Current working set of the container in bytes",
    "container_start_time_seconds": "Start time of the container since unix epoch in seconds",
    "container_swap_limit_bytes": "Current amount of the container swap limit in bytes. Reported "
    "only on non-windows systems",
    "container_swap_usage_bytes": "Current amount of the container swap usage in bytes. Reported "
    "only on non-windows systems",
    "node_cpu_usage_seconds_total": "Cumulative cpu time consumed by the node in core-seconds",
    "node_memory_working_set_bytes": "Current working set of the node in bytes",
    "node_swap_usage_bytes": "Current swap usage of the node in bytes. Reported only on "
    "non-windows systems",
    "pod_cpu_usage_seconds_total": "Cumulative cpu time consumed by the pod in core-seconds",
    "pod_memory_working_set_bytes": "Current working set of the pod in bytes",
    "pod_swap_usage_bytes": "Current amount of the pod swap usage in bytes. Reported only on "
    "non-windows systems",
}


def _cpu_seconds(sample: CgroupSample) -> float | None:
    return sample.cpu.usage_nsec / _NSEC_PER_S if sample.cpu else None


def _working_set(sample: CgroupSample) -> float | None:
    return sample.memory.working_set_bytes if sample.memory else None


def _swap(sample: CgroupSample) -> float | None:
    return sample.memory.swap_bytes if sample.memory else None


def _swap_limit(sample: CgroupSample) -> float | None:
    return sample.limits.swap_bytes if _swap(sample) is not None else None


_CPU: Value = _cpu_seconds
_WORKING_SET: Value = _working_set
_SWAP: Value = _swap
_SWAP_LIMIT: Value = _swap_limit


def _stability(name: str) -> str:
    return "ALPHA" if "_swap_" in name else "STABLE"


def _begin(page: Page, name: str, kind: str) -> None:
    page.family(name, kind, _HELP[name], stability=_stability(name))


def _family(page: Page, name: str, kind: str, value_of: Value, rows: list[_Row]) -> None:
    values = [(row, value) for row in rows if (value := value_of(row.sample)) is not None]
    if values:
        _begin(page, name, kind)
    for row, value in values:
        page.sample(name, row.labels, value, page.stamp(row.sample.time_ns))


def _node(page: Page, sample: Sample) -> None:
    if sample.node.cgroup:
        rows = [_Row("", sample.node.cgroup)]
        _family(page, "node_cpu_usage_seconds_total", "counter", _CPU, rows)
        _family(page, "node_memory_working_set_bytes", "gauge", _WORKING_SET, rows)
    swap = sample.node.swap
    if swap:
        _begin(page, "node_swap_usage_bytes", "gauge")
        page.sample("node_swap_usage_bytes", "", swap.used_bytes, page.stamp(swap.time_ns))


def _start_times(page: Page, sample: Sample) -> None:
    started = [
        (labels, container.target.started_at_ns)
        for labels, container in _labelled_containers(sample)
        if container.target.started_at_ns > 0
    ]
    if started:
        _begin(page, "container_start_time_seconds", "gauge")
    for labels, started_at_ns in started:
        page.sample("container_start_time_seconds", labels, started_at_ns / _NSEC_PER_S)


def _labelled_containers(sample: Sample) -> Iterator[tuple[str, ContainerSample]]:
    for pod in sample.pods:
        for container in pod.containers:
            if container.cgroup:
                yield (
                    text.label_block(
                        container=container.target.name,
                        namespace=pod.target.namespace,
                        pod=pod.target.name,
                    ),
                    container,
                )


def _container_rows(sample: Sample) -> Iterator[_Row]:
    for labels, container in _labelled_containers(sample):
        if container.cgroup:
            yield _Row(labels, container.cgroup)


def _pod_rows(sample: Sample) -> Iterator[_Row]:
    for pod in sample.pods:
        if pod.cgroup:
            labels = text.label_block(namespace=pod.target.namespace, pod=pod.target.name)
            yield _Row(labels, pod.cgroup)


def _errors(page: Page, value: int) -> bytes:
    meaning = "1 if there was an error while getting container metrics, 0 otherwise"
    page.family("resource_scrape_error", "gauge", meaning, stability="STABLE")
    page.sample("resource_scrape_error", "", value)
    page.family("scrape_error", "gauge", f"(Deprecated since 1.29.0) {meaning}", stability="ALPHA")
    page.sample("scrape_error", "", value)
    return page.render()
