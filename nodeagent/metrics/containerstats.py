"""/metrics/containerstats: all numbers of every cgroup, with the six fixed labels; pure.

Node, pods, containers and sandboxes are rows, a family is a column. A label block is built once per
cgroup and cached, a line is a single formatted string: for a thousand containers a page has forty
thousand lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nodeagent.metrics import columns, device_columns, text
from nodeagent.metrics.columns import Row
from nodeagent.metrics.text import Page
from nodeagent.stats.samples import CgroupSample, PodSample, ProcessSample, Sample

if TYPE_CHECKING:
    from nodeagent.stats.host.machine import HostFacts


def render_container_metrics(
    sample: Sample | None,
    *,
    openmetrics: bool = False,
    psi: bool = True,
    host: HostFacts | None = None,
    pause: Callable[[], None] = lambda: None,
) -> bytearray:
    """The page; without a sample it holds `container_scrape_error 1` alone.

    `psi` is the feature gate, `host` adds the machine's own families. An unknown value has no line,
    a family without lines is left out. `pause` is called between families.
    """
    page = Page(openmetrics=openmetrics, pause=pause)
    if sample is not None:
        rows = list(_rows(sample, page))
        _labels.end_page()
        columns.write_cpu(page, rows)
        columns.write_memory(page, rows)
        columns.write_processes(page, rows)
        columns.write_open_files(page, rows)
        columns.write_limits(page, rows)
        columns.write_times(page, rows)
        device_columns.write_devices(page, rows, sample.node.devices)
        device_columns.write_filesystems(page, rows, sample.node)
        device_columns.write_network(page, rows)
        if psi:
            columns.write_pressure(page, rows)
    page.family("container_scrape_error", "1 if there was an error, 0 otherwise")
    page.sample("container_scrape_error", "", 0 if sample is not None else 1)
    if host is not None:
        _write_machine(page, host)
    return page.render()


def _write_machine(page: Page, host: HostFacts) -> None:
    labels = text.label_block(
        boot_id=host.boot_id, machine_id=host.machine_id, system_uuid=host.system_uuid
    )
    for name, help_text, value in (
        ("machine_cpu_cores", "Number of logical CPU cores.", host.cpu_count),
        ("machine_cpu_physical_cores", "Number of physical CPU cores.", host.physical_cores),
        ("machine_cpu_sockets", "Number of CPU sockets.", host.sockets),
        ("machine_memory_bytes", "Amount of memory installed on the machine.", host.memory_bytes),
        ("machine_swap_bytes", "Amount of swap memory available on the machine.", host.swap_bytes),
    ):
        if value or name == "machine_swap_bytes":
            page.family(name, help_text)
            page.sample(name, labels, value)
    page.family("machine_scrape_error", "1 if there was an error, 0 otherwise")
    page.sample("machine_scrape_error", "", 0)


def _label_block(container: str, path: str, image: str, name: str, namespace: str, pod: str) -> str:
    block = text.label_block(
        container=container, id=path, image=image, name=name, namespace=namespace, pod=pod
    )
    return block[:-1]


_labels = text.LabelCache(_label_block)


def _rows(sample: Sample, page: Page) -> Iterator[Row]:
    node = sample.node
    if node.cgroup:
        labels = _labels("", "/", "", "", "", "")
        end = page.stamp(node.cgroup.time_ns)
        yield Row(labels, end, node.cgroup, node.boot_time_ns, node.network, node.fs)
    for pod in sample.pods:
        yield from _pod_rows(pod, page)


def _with_all_processes(cgroup: CgroupSample, pod: PodSample) -> CgroupSample:
    """The pod's own cgroup has no process, those below have; the kernel sums the threads."""
    threads = cgroup.processes.threads if cgroup.processes else None
    return cgroup._replace(processes=ProcessSample(threads, pod.count_processes()))


def _pod_rows(pod: PodSample, page: Page) -> Iterator[Row]:
    target = pod.target
    of_pod = (target.namespace, target.name)
    if pod.cgroup:
        labels = _labels("", pod.path, "", "", *of_pod)
        end = page.stamp(pod.cgroup.time_ns)
        network = None if pod.sandbox else pod.network  # runtimes do not measure sandboxes
        yield Row(labels, end, _with_all_processes(pod.cgroup, pod), target.started_at_ns, network)
    if pod.sandbox:
        labels = _labels("POD", pod.sandbox_path, "", target.sandbox_id or "", *of_pod)
        end = page.stamp(pod.sandbox.time_ns)
        yield Row(labels, end, pod.sandbox, target.started_at_ns, pod.network)
    for container in pod.containers:
        if container.cgroup:
            own = container.target
            labels = _labels(own.name, container.path, own.image, own.id, *of_pod)
            cgroup, rootfs = container.cgroup, container.rootfs
            end = page.stamp(cgroup.time_ns)
            yield Row(labels, end, cgroup, own.started_at_ns, None, rootfs, container.use)
