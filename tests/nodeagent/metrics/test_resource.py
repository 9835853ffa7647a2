"""/metrics/resource: golden lines of the reference collector's own test, and Prometheus' parser."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from nodeagent.metrics.resource import render_resource_metrics
from nodeagent.stats.samples import (
    CgroupSample,
    ContainerSample,
    ContainerTarget,
    CpuSample,
    Limits,
    MemorySample,
    NodeSample,
    PodSample,
    PodTarget,
    Sample,
    SwapSample,
)

TIME_NS = 1624396278302_000_000  # 2021-06-22T21:11:18.302Z
STARTED_NS = 1_624_396_248_302_091_597


def cgroup(cpu_ns: int, memory: int | None, swap: int | None, limit: int | None) -> CgroupSample:
    return CgroupSample(
        TIME_NS,
        CpuSample(cpu_ns),
        MemorySample(working_set_bytes=memory, swap_bytes=swap),
        limits=Limits(swap_bytes=limit),
    )


def sample_of(namespace: str = "shop", name: str = "web-0") -> Sample:
    container = ContainerSample(
        ContainerTarget("web", "c1", STARTED_NS), cgroup(1_500_000_000, 4096, 512, 1024)
    )
    gone = ContainerSample(ContainerTarget("gone", "c2", STARTED_NS))
    pod = PodSample(
        PodTarget(namespace, name, "u1", "/p", containers=(container.target,)),
        cgroup(2_500_000_000, 8192, None, None),
        containers=(container, gone),
    )
    swap = SwapSample(TIME_NS, 2**30, 2**20)
    return Sample(TIME_NS, NodeSample(cgroup(10_000_000_000, 1000, 0, None), swap=swap), (pod,))


def lines_of(page: bytes) -> list[str]:
    return [line for line in page.decode().splitlines() if not line.startswith("#")]


def test_the_page_is_that_of_the_reference_collector() -> None:
    labels = 'container="web",namespace="shop",pod="web-0"'
    assert lines_of(render_resource_metrics(sample_of())) == [
        f"container_cpu_usage_seconds_total{{{labels}}} 1.5 1624396278302",
        f"container_memory_working_set_bytes{{{labels}}} 4096 1624396278302",
        f"container_start_time_seconds{{{labels}}} 1624396248.3020916",
        f"container_swap_limit_bytes{{{labels}}} 1024 1624396278302",
        f"container_swap_usage_bytes{{{labels}}} 512 1624396278302",
        "node_cpu_usage_seconds_total 10 1624396278302",
        "node_memory_working_set_bytes 1000 1624396278302",
        "node_swap_usage_bytes 1048576 1624396278302",
        'pod_cpu_usage_seconds_total{namespace="shop",pod="web-0"} 2.5 1624396278302',
        'pod_memory_working_set_bytes{namespace="shop",pod="web-0"} 8192 1624396278302',
        "resource_scrape_error 0",
        "scrape_error 0",
    ]


def test_families_carry_type_and_stability() -> None:
    page = render_resource_metrics(sample_of()).decode()
    assert "# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time" in page
    assert "# HELP container_swap_usage_bytes [ALPHA] " in page
    assert "# HELP scrape_error [ALPHA] (Deprecated since 1.29.0) " in page
    assert "# TYPE pod_cpu_usage_seconds_total counter" in page
    assert "# TYPE resource_scrape_error gauge" in page


def test_without_a_sample_only_the_error_gauges_remain() -> None:
    assert lines_of(render_resource_metrics(None)) == ["resource_scrape_error 1", "scrape_error 1"]


def test_a_page_without_pods_has_no_empty_family() -> None:
    page = render_resource_metrics(Sample(TIME_NS)).decode()
    assert "container_" not in page.replace("container metrics", "")


@pytest.mark.parametrize("newest_first", [False, True])
def test_of_two_pods_of_one_name_the_younger_is_shown(newest_first: bool) -> None:
    sample = sample_of()
    [old] = sample.pods
    container = old.containers[0]
    successor = old._replace(
        target=replace(old.target, uid="u2", started_at_ns=STARTED_NS + 1),
        cgroup=cgroup(9_000_000_000, 1, None, None),
        containers=(
            container._replace(
                target=replace(container.target, id="c9", started_at_ns=STARTED_NS + 10**9),
                cgroup=cgroup(8_000_000_000, 1, None, None),
            ),
        ),
    )
    pods = (successor, old) if newest_first else (old, successor)
    lines = lines_of(render_resource_metrics(replace(sample, pods=pods)))
    assert len(lines) == len({line.split(" ")[0] for line in lines}), "no series twice"
    used = [line.split(" ")[1] for line in lines if "cpu_usage" in line and "shop" in line]
    assert used == ["8", "9"]


@pytest.mark.parametrize("sample", [sample_of(), None], ids=["a sample", "no sample"])
def test_promtool_accepts_the_page(sample: Sample | None) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    page = render_resource_metrics(sample)
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, timeout=30
    )
    assert (checked.returncode, checked.stderr + checked.stdout) == (0, b"")


NAMES = ["plain", 'with "quotes"', "back\\slash", "two\nlines", "süß 日本"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_prometheus_reads_the_values_that_were_written(name: str, is_openmetrics: bool) -> None:
    page = render_resource_metrics(sample_of(name, name), openmetrics=is_openmetrics).decode()
    parse: Any = openmetrics if is_openmetrics else prometheus
    samples = {
        (sample.name, sample.labels.get("pod", "")): sample
        for family in parse(page)
        for sample in family.samples
    }
    cpu = samples["container_cpu_usage_seconds_total", name]
    assert cpu.labels == {"container": "web", "namespace": name, "pod": name}
    assert cpu.value == 1.5
    assert float(cpu.timestamp) == pytest.approx(1624396278.302)
    assert page.endswith("# EOF\n") == is_openmetrics
