"""Known loads on a real runtime, as a real Prometheus sees them over the agent's pages.

One container is held to a quarter of a core and burns all of it, one keeps exceeding what memory it
may have, one reads a file past the page cache. `rate()` over the scraped counters is compared with
the kernel's own files over the same time; how much work the machine gave them in that time is
theirs to say.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import LocalCluster, eventually, jobs_of
from tests.e2e.test_first_five_minutes import (
    cgroup_of,
    container_id,
    read_cpu_ns,
    read_psi_totals,
    summary_of,
)
from tests.fakes.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.seconds(40)

needs_psi = pytest.mark.skipif(
    not Path("/proc/pressure/cpu").exists(), reason="this kernel reports no pressure stalls"
)
JOBS = ("/metrics/containerstats", "/metrics/resource")
WINDOW = "12s"
USEC = 1_000_000
BURN = "while :; do :; done"
# More than the container may hold: every read of the file makes the kernel reclaim the one before.
EXCEED = (
    "dd if=/dev/zero of=/scratch/big bs=1M count=48 2>/dev/null; "
    "while :; do cat /scratch/big > /dev/null; done"
)
DIRECT = (
    "dd if=/dev/zero of=/scratch/file bs=1M count=8 2>/dev/null; sync; "
    "while :; do dd if=/scratch/file of=/dev/null bs=4k iflag=direct 2>/dev/null; done"
)


def load(name: str, command: str, **limits: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", command],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }


@pytest.fixture(scope="module")
def loads(cluster: LocalCluster) -> Iterator[dict[str, str]]:
    """Container name → id of the three loads, running; gone afterwards."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "loads"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "containers": [
                load("quarter", BURN, cpu="250m", memory="32Mi"),
                load("exceeding", EXCEED, cpu="100m", memory="16Mi"),
                load("direct", DIRECT, cpu="100m", memory="64Mi"),
            ],
        },
    }
    manifest = cluster.run_dir / "manifests" / "loads.json"
    manifest.write_text(json.dumps(pod))
    name = f"loads-{cluster.node}"

    def running() -> Any:
        listed = cluster.get("/api/v1/namespaces/default/pods")["items"]
        found = [p for p in listed if p["metadata"]["name"] == name]
        statuses = found[0]["status"].get("containerStatuses", []) if found else []
        return found[0] if [s["ready"] for s in statuses] == [True] * 3 else None

    found = eventually(running, within_s=60, what="the three loads run")
    yield {one: container_id(found, one) for one in ("quarter", "exceeding", "direct")}
    manifest.unlink()


@pytest.fixture(scope="module")
def scraper(
    cluster: LocalCluster, loads: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    jobs = jobs_of(cluster, *JOBS)
    with prometheus(tmp_path_factory.mktemp("prometheus"), jobs) as running:
        yield running


def series(metric: str, container: str, job: str = "/metrics/containerstats") -> str:
    return f'{metric}{{container="{container}",job="{job}"}}'


def rate(scraper: Prometheus, metric: str, container: str, **more: str) -> float | None:
    return scraper.value(f"rate({series(metric, container, **more)}[{WINDOW}])")


def test_a_quarter_of_a_core_burnt_is_a_quarter_per_second(
    loads: dict[str, str], scraper: Prometheus
) -> None:
    metric = "container_cpu_usage_seconds_total"
    for job in JOBS:
        scrapes = f"count_over_time({series(metric, 'quarter', job)}[{WINDOW}])"
        eventually(
            lambda scrapes=scrapes: (scraper.value(scrapes) or 0) >= 6,  # two scrapes may share one
            within_s=90,
            what=f"six samples of the burning container by {job}",
        )

    def agrees() -> bool:
        """Other load on the machine may change between the two windows, which overlap only."""
        before_ns, begun_s = read_cpu_ns(loads["quarter"]), time.monotonic()
        time.sleep(12)  # what is measured is this time
        kernels = (read_cpu_ns(loads["quarter"]) - before_ns) / 1e9 / (time.monotonic() - begun_s)
        seen = [rate(scraper, metric, "quarter", job=job) for job in JOBS]
        assert None not in seen
        assert 0.03 < kernels <= 0.26, "a quarter, or less on a machine that is busy"
        return seen == pytest.approx([kernels] * len(JOBS), abs=0.05)

    eventually(agrees, within_s=60, what="the rates of the kernel's counter")


@needs_psi
def test_a_container_that_wants_more_than_its_share_waits_for_cpu(
    loads: dict[str, str], scraper: Prometheus
) -> None:
    metric = "container_pressure_cpu_waiting_seconds_total"
    before = read_psi_totals(loads["quarter"], "cpu")["some"]
    seen = eventually(
        lambda: rate(scraper, metric, "quarter"), within_s=60, what="its pressure is scraped"
    )
    assert 0.2 < seen <= 1.05, "three quarters of the time it may not run, and wants to"
    eventually(
        lambda: read_psi_totals(loads["quarter"], "cpu")["some"] > before,
        within_s=30,
        what="the kernel counts it further",
    )


@needs_psi
@pytest.mark.parametrize(("container", "resource"), [("exceeding", "memory"), ("direct", "io")])
def test_what_stalls_a_container_rises_where_it_stalls(
    cluster: LocalCluster,
    loads: dict[str, str],
    scraper: Prometheus,
    container: str,
    resource: str,
) -> None:
    metric = f"container_pressure_{resource}_waiting_seconds_total"
    seen = eventually(
        lambda: rate(scraper, metric, container), within_s=90, what=f"{resource} pressure rises"
    )
    assert seen <= 1.05
    before = read_psi_totals(loads[container], resource)["some"]
    time.sleep(1.1)  # older than the oldest sample a reader is given
    shown = summary_of_loads(cluster, container)[resource]["psi"]["some"]["total"]
    after = read_psi_totals(loads[container], resource)["some"]
    assert 0 < before <= shown <= after
    page = scraper.value(series(metric, container))
    assert page is not None and page * USEC <= after
    idle = scraper.value(series(metric, "quarter")) or 0.0
    assert page > idle, "the burning container stalls for cpu alone"


def test_the_container_that_exceeds_its_memory_is_shown_at_its_limit(
    cluster: LocalCluster, loads: dict[str, str]
) -> None:
    memory = summary_of_loads(cluster, "exceeding")["memory"]
    assert 8 * 2**20 < memory["usageBytes"] <= 16 * 2**20
    assert memory["availableBytes"] + memory["workingSetBytes"] == 16 * 2**20


def test_bytes_read_past_the_cache_are_those_of_the_kernels_file_or_absent(
    loads: dict[str, str], scraper: Prometheus
) -> None:
    query = f"sum({series('container_fs_reads_bytes_total', 'direct')})"
    before = read_bytes(loads["direct"])
    if before is None:  # a kernel that keeps no io numbers for this disk: absent, never zero
        rss = series("container_memory_rss", "direct")
        eventually(lambda: scraper.query(rss), within_s=60, what="the container is scraped")
        assert scraper.value(query) is None
        return
    time.sleep(3)
    seen = eventually(lambda: scraper.value(query), within_s=60, what="its reads are scraped")
    after = read_bytes(loads["direct"])
    assert after is not None and after > before
    assert before <= seen <= after


def read_bytes(one: str) -> int | None:
    """What the container read from disks, by the kernel's own file; None where it has none."""
    directory = cgroup_of(one, "blkio")
    v1 = directory / "blkio.throttle.io_service_bytes_recursive"
    if v1.exists():
        reads = [line.split() for line in v1.read_text().splitlines() if " Read " in line]
        return sum(int(words[2]) for words in reads) or None
    io = directory / "io.stat"
    words = io.read_text().split() if io.exists() else []
    return sum(int(word[7:]) for word in words if word.startswith("rbytes=")) or None


def summary_of_loads(cluster: LocalCluster, container: str) -> dict[str, Any]:
    return summary_of(cluster, container, pod="loads")
