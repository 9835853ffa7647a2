"""/metrics/containerstats over captured hosts: series, labels, and two independent checkers."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from nodeagent.metrics.containerstats import render_container_metrics
from nodeagent.stats.host import machine as host_machine
from nodeagent.stats.reading import HostReader
from nodeagent.stats.samples import FsSample, ProcessUse, Sample
from nodeagent.stats.sources import Background
from tests.fakes import hosts
from tests.fakes.hosts import CONTAINER_CGROUP, LAYOUTS, POD, POD_CGROUP, SANDBOX_CGROUP

SIX = {"container", "id", "image", "name", "namespace", "pod"}


def sample_of(layout: str, name: str = "web-0") -> Sample:
    sources = hosts.sources(hosts.TREES / layout)
    reader = HostReader(sources, Background(sources))
    sample = reader.read([dataclasses.replace(POD, name=name)])
    reader.close()
    container = sample.pods[0].containers[0]
    rootfs = FsSample(sample.time_ns, 10, 20, 5, 3, 4, 1)
    use = ProcessUse(sample.time_ns - 30_000_000_000, 7, 2, 1024)
    pod = sample.pods[0]._replace(containers=(container._replace(rootfs=rootfs, use=use),))
    return dataclasses.replace(sample, pods=(pod,))


def facts() -> host_machine.HostFacts:
    root = hosts.TREES / "hybrid"
    return host_machine.read_host_facts(
        str(root / "proc"), str(root / "sys"), str(root / "etc"), hardware=lambda: hosts.HARDWARE
    )


def series_of(page: bytes, *, is_openmetrics: bool = False) -> list[Any]:
    parse: Any = openmetrics if is_openmetrics else prometheus
    return [sample for family in parse(page.decode()) for sample in family.samples]


def by_id(page: bytes, name: str) -> dict[str, float]:
    return {one.labels["id"]: one.value for one in series_of(page) if one.name == name}


def test_node_pods_sandboxes_and_containers_have_a_row_each() -> None:
    page = render_container_metrics(sample_of("v2"))
    assert by_id(page, "container_memory_working_set_bytes").keys() == {
        "/",
        POD_CGROUP,
        SANDBOX_CGROUP,
        CONTAINER_CGROUP,
    }


def test_rendering_pauses_between_families() -> None:
    given: list[None] = []
    page = render_container_metrics(sample_of("v2"), pause=lambda: given.append(None))
    assert len(given) == page.count(b"# TYPE") > 20


def test_the_six_labels_are_on_every_series_of_a_container() -> None:
    rows = {
        "/": ("", "", "", "", ""),
        POD_CGROUP: ("", "", "", "shop", "web-0"),
        SANDBOX_CGROUP: ("POD", "", "5a9b3e", "shop", "web-0"),
        CONTAINER_CGROUP: ("web", "localhost/web:1", "4f1c2d", "shop", "web-0"),
    }
    for one in series_of(render_container_metrics(sample_of("v2"))):
        if one.name == "container_scrape_error":
            continue
        assert one.labels.keys() >= SIX
        found = tuple(one.labels[key] for key in ("container", "image", "name", "namespace", "pod"))
        assert found == rows[one.labels["id"]]


# k8s e2e_node/container_metrics_test.go
EXPECTED = (
    "blkio_device_usage_total",
    "cpu_system_seconds_total",
    "cpu_usage_seconds_total",
    "file_descriptors",
    "sockets",
    "ulimits_soft",
    "cpu_user_seconds_total",
    "fs_reads_bytes_total",
    "fs_reads_total",
    "fs_usage_bytes",
    "fs_writes_bytes_total",
    "fs_writes_total",
    "last_seen",
    "memory_cache",
    "memory_failcnt",
    "memory_failures_total",
    "memory_mapped_file",
    "memory_max_usage_bytes",
    "memory_rss",
    "memory_swap",
    "memory_usage_bytes",
    "memory_working_set_bytes",
    "oom_events_total",
    "processes",
    "spec_cpu_period",
    "spec_cpu_shares",
    "spec_memory_limit_bytes",
    "spec_memory_reservation_limit_bytes",
    "spec_memory_swap_limit_bytes",
    "start_time_seconds",
    "threads",
    "threads_max",
)


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_a_container_has_the_series_that_dashboards_expect(layout: str) -> None:
    page = render_container_metrics(sample_of(layout))
    lines = [line for line in page.decode().splitlines() if 'container="web"' in line]
    names = {line.partition("{")[0] for line in lines}
    assert {f"container_{name}" for name in EXPECTED} <= names


def test_pressure_is_in_seconds_waiting_for_some_and_stalled_for_full() -> None:
    page = render_container_metrics(sample_of("v2"))
    for number, resource in enumerate(("cpu", "memory", "io"), 1):
        waiting = by_id(page, f"container_pressure_{resource}_waiting_seconds_total")
        stalled = by_id(page, f"container_pressure_{resource}_stalled_seconds_total")
        assert waiting[CONTAINER_CGROUP] == (number * 1_000_000 + 123) / 1e6
        assert stalled[CONTAINER_CGROUP] == (number * 1_000_000 + 45) / 1e6
        assert waiting.keys() >= {"/", POD_CGROUP, SANDBOX_CGROUP}


def test_pressure_is_omitted_without_the_gate_and_where_there_is_none() -> None:
    assert b"pressure" not in render_container_metrics(sample_of("v2"), psi=False)
    assert b"container_pressure" not in render_container_metrics(sample_of("v1"))


def test_the_network_is_shown_for_the_node_and_for_sandboxes_only() -> None:
    received = by_id(
        render_container_metrics(sample_of("v2")), "container_network_receive_bytes_total"
    )
    assert received.keys() == {"/", SANDBOX_CGROUP}


def test_values_keep_their_units() -> None:
    page = render_container_metrics(sample_of("v2"))
    at = CONTAINER_CGROUP
    assert by_id(page, "container_cpu_usage_seconds_total")[at] == 123.456789
    assert by_id(page, "container_cpu_cfs_throttled_seconds_total")[at] == 9.0
    assert by_id(page, "container_memory_failcnt_total")[at] == 7, "so the parser calls it"
    assert by_id(page, "container_spec_memory_limit_bytes")[at] == 268435456
    assert by_id(page, "container_spec_memory_limit_bytes")[POD_CGROUP] == 0, "no limit"
    assert by_id(page, "container_start_time_seconds")[at] == 1_790_000_000
    assert by_id(page, "container_last_seen")[at] == 1_800_000_000


def test_disk_use_has_the_stamp_of_its_measurement() -> None:
    sample = sample_of("v2")
    container = sample.pods[0].containers[0]
    before_ns = sample.time_ns - 30_000_000_000
    rootfs = FsSample(before_ns, 10, 20, 5, 3, 4, 1)
    pod = sample.pods[0]._replace(containers=(container._replace(rootfs=rootfs),))
    page = render_container_metrics(dataclasses.replace(sample, pods=(pod,)))
    stamps = {
        one.name: one.timestamp
        for one in series_of(page)
        if one.labels.get("id") == CONTAINER_CGROUP
    }
    assert stamps["container_fs_usage_bytes"] == before_ns / 1e9
    assert stamps["container_fs_inodes_free"] == sample.time_ns / 1e9, "that is asked every time"


def test_free_inodes_have_the_stamp_of_the_node_beside_an_older_reading_of_the_runtime() -> None:
    sample = sample_of("v2")
    container = sample.pods[0].containers[0]
    assert container.cgroup and sample.node.cgroup
    older = container.cgroup._replace(time_ns=sample.time_ns - 8_000_000_000)
    pod = sample.pods[0]._replace(containers=(container._replace(cgroup=older),))
    page = render_container_metrics(dataclasses.replace(sample, pods=(pod,)))
    of_container = [one for one in series_of(page) if one.labels.get("id") == CONTAINER_CGROUP]
    stamps = {one.name: one.timestamp for one in of_container}
    assert stamps["container_memory_usage_bytes"] == older.time_ns / 1e9
    for name in ("limit_bytes", "inodes_free", "inodes_total"):
        assert stamps[f"container_fs_{name}"] == sample.node.cgroup.time_ns / 1e9


@pytest.mark.parametrize("layout", ["v1", "hybrid"])
def test_version_1_has_kernel_memory_in_a_file_of_its_own(layout: str) -> None:
    found = by_id(render_container_metrics(sample_of(layout)), "container_memory_kernel_usage")
    assert found == {CONTAINER_CGROUP: 262144}


@pytest.mark.parametrize(("layout", "of_all"), [("v2", 6), ("hybrid", 3)])
def test_a_pod_has_the_processes_of_its_containers_and_sandbox(layout: str, of_all: int) -> None:
    found = by_id(render_container_metrics(sample_of(layout)), "container_processes")
    assert found[POD_CGROUP] == found[CONTAINER_CGROUP] + found[SANDBOX_CGROUP] == of_all


def test_a_pod_s_oom_kills_are_omitted_where_the_kernel_does_not_sum_them() -> None:
    of_v2 = by_id(render_container_metrics(sample_of("v2")), "container_oom_events_total")
    assert of_v2 == {POD_CGROUP: 2, SANDBOX_CGROUP: 2, CONTAINER_CGROUP: 2}
    of_v1 = by_id(render_container_metrics(sample_of("v1")), "container_oom_events_total")
    assert of_v1 == {CONTAINER_CGROUP: 2}


def test_the_machine_is_described_beside_its_containers() -> None:
    page = render_container_metrics(sample_of("v2"), host=facts())
    machine = {one.name: one for one in series_of(page) if one.name.startswith("machine_")}
    assert machine["machine_cpu_cores"].value == 2
    assert machine["machine_memory_bytes"].value == 24684084 * 1024
    assert machine["machine_cpu_cores"].labels == {
        "boot_id": "11111111-2222-3333-4444-555555555555",
        "machine_id": "0123456789abcdef0123456789abcdef",
        "system_uuid": "99999999-8888-7777-6666-555555555555",
    }


def test_without_a_sample_the_page_reports_an_error() -> None:
    (only,) = series_of(render_container_metrics(None))
    assert (only.name, only.value) == ("container_scrape_error", 1)


NAMES = ["plain", 'with "quotes"', "back\\slash", "two\nlines", "süß 日本"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_any_name_survives_and_both_formats_agree(name: str, is_openmetrics: bool) -> None:
    sample = sample_of("v2", name)
    page = render_container_metrics(sample, openmetrics=is_openmetrics)
    series = series_of(page, is_openmetrics=is_openmetrics)
    assert {one.labels["pod"] for one in series if "pod" in one.labels} == {"", name}
    plain = render_container_metrics(sample)
    assert [one.value for one in series] == [one.value for one in series_of(plain)]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_devices_survive(name: str) -> None:
    sample = sample_of("v2")
    numbers = {(one.major, one.minor): name for one in sample.pods[0].containers[0].cgroup.io}
    node = dataclasses.replace(sample.node, devices=numbers)
    series = series_of(render_container_metrics(dataclasses.replace(sample, node=node)))
    read = [one for one in series if one.name == "container_fs_reads_bytes_total"]
    assert f"/dev/{name}" in {one.labels["device"] for one in read}


class Fixed:
    """A collector that hands out what was parsed, for the other renderer."""

    def __init__(self, page: bytes) -> None:
        self._families = list(prometheus(page.decode()))

    def collect(self) -> Iterator[Any]:
        yield from self._families


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reference_renderer_writes_the_same_series(layout: str) -> None:
    page = render_container_metrics(sample_of(layout), host=facts())
    registry = CollectorRegistry()
    registry.register(Fixed(page))  # type: ignore[arg-type]
    ours = {(one.name, str(sorted(one.labels.items()))): one.value for one in series_of(page)}
    theirs = series_of(generate_latest(registry))
    assert ours == {(one.name, str(sorted(one.labels.items()))): one.value for one in theirs}
    assert len(theirs) == len(ours), "no series twice"


@pytest.mark.real
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_promtool_accepts_the_page(layout: str, name: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    page = render_container_metrics(sample_of(layout, name), host=facts())
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, timeout=30
    )
    complaints = [
        line
        for line in (checked.stderr + checked.stdout).decode().splitlines()
        if not any(name in line for name in REFERENCE_NAMES)
    ]
    assert complaints == []


# Names the reference collector chose that promtool's style advice does not like; exit code 3.
REFERENCE_NAMES = ("container_memory_failcnt", "container_fs_inodes_total")
