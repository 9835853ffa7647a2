"""/metrics/resource: cpu, memory and swap of node, pods and containers, for autoscalers; pure.

Names, labels and stability are those that metrics-server reads. Every sample has the stamp of its
reading; unknown values are left out, and no single pod can break the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nodeagent.metrics import text
from nodeagent.metrics.text import Page, number
from nodeagent.stats.samples import CgroupSample, Sample

_NSEC_PER_S = 1e9

Value = Callable[[CgroupSample], float | None]


class _Row(NamedTuple):
    """`end` is the stamp, as the end of a line."""

    labels: str
    end: str
    sample: CgroupSample
    started_at_ns: int = 0


def render_resource_metrics(sample: Sample | None, *, openmetrics: bool = False) -> bytearray:
    """The page; without a sample only the two error gauges, with value 1."""
    page = Page(openmetrics=openmetrics)
    if sample is None:
        return _errors(page, 1)
    containers = _newest(list(_container_rows(sample, page)))
    pods = _newest(list(_pod_rows(sample, page)))
    _container_labels.end_page()
    _pod_labels.end_page()
    _family(page, "container_cpu_usage_seconds_total", _cpu_seconds, containers)
    _family(page, "container_memory_working_set_bytes", _working_set, containers)
    _start_times(page, containers)
    _family(page, "container_swap_limit_bytes", _swap_limit, containers)
    _family(page, "container_swap_usage_bytes", _swap, containers)
    _node(page, sample)
    _family(page, "pod_cpu_usage_seconds_total", _cpu_seconds, pods)
    _family(page, "pod_memory_working_set_bytes", _working_set, pods)
    _family(page, "pod_swap_usage_bytes", _swap, pods)
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


def _write(page: Page, name: str, lines: list[str]) -> None:
    if lines:
        page.family(name, _HELP[name], stability="ALPHA" if "_swap_" in name else "STABLE")
        page.extend(lines)


def _family(page: Page, name: str, value_of: Value, rows: list[_Row]) -> None:
    lines = [
        f"{name}{labels} {number(value)}{end}"
        for labels, end, sample, _ in rows
        if (value := value_of(sample)) is not None
    ]
    _write(page, name, lines)


def _node(page: Page, sample: Sample) -> None:
    cgroup, swap = sample.node.cgroup, sample.node.swap
    if cgroup:
        rows = [_Row("", page.stamp(cgroup.time_ns), cgroup)]
        _family(page, "node_cpu_usage_seconds_total", _cpu_seconds, rows)
        _family(page, "node_memory_working_set_bytes", _working_set, rows)
    if swap:
        name = "node_swap_usage_bytes"
        _write(page, name, [f"{name} {swap.used_bytes}{page.stamp(swap.time_ns)}"])


def _start_times(page: Page, rows: list[_Row]) -> None:
    name = "container_start_time_seconds"
    lines = [
        f"{name}{labels} {number(started_at_ns / _NSEC_PER_S)}\n"
        for labels, _, _, started_at_ns in rows
        if started_at_ns > 0
    ]
    _write(page, name, lines)


def _container_rows(sample: Sample, page: Page) -> Iterator[_Row]:
    for pod in sample.pods:
        namespace, name = pod.target.namespace, pod.target.name
        for container in pod.containers:
            target, cgroup = container.target, container.cgroup
            if cgroup:
                labels = _container_labels(target.name, namespace, name)
                yield _Row(labels, page.stamp(cgroup.time_ns), cgroup, target.started_at_ns)


def _pod_rows(sample: Sample, page: Page) -> Iterator[_Row]:
    for pod in sample.pods:
        if pod.cgroup:
            target = pod.target
            labels = _pod_labels(target.namespace, target.name)
            yield _Row(labels, page.stamp(pod.cgroup.time_ns), pod.cgroup, target.started_at_ns)


def _newest(rows: list[_Row]) -> list[_Row]:
    """One row per name: a pod's successor replaces the pod that is still terminating."""
    if len({row.labels for row in rows}) == len(rows):
        return rows
    return list(
        {row.labels: row for row in sorted(rows, key=lambda row: row.started_at_ns)}.values()
    )


_container_labels = text.LabelCache(
    lambda container, namespace, pod: text.label_block(
        container=container, namespace=namespace, pod=pod
    )
)
_pod_labels = text.LabelCache(lambda namespace, pod: text.label_block(namespace=namespace, pod=pod))


def _errors(page: Page, value: int) -> bytearray:
    meaning = "1 if there was an error while getting container metrics, 0 otherwise"
    page.family("resource_scrape_error", meaning, stability="STABLE")
    page.sample("resource_scrape_error", "", value)
    page.family("scrape_error", f"(Deprecated since 1.29.0) {meaning}", stability="ALPHA")
    page.sample("scrape_error", "", value)
    return page.render()
