"""A real Prometheus scrapes the agent over TLS with a client certificate."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import LocalCluster, eventually, jobs_of
from tests.fakes.prometheus import Prometheus, prometheus

# What the reference collector chose and promtool's advice on style does not like.
REFERENCE_NAMES = ("container_memory_failcnt", "container_fs_inodes_total")
PATHS = [
    "/metrics/resource", "/metrics/slis", "/metrics/containerstats", "/metrics/probes", "/metrics",
]  # fmt: skip


@pytest.fixture(scope="module")
def scraper(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes every page of the agent each second."""
    with prometheus(tmp_path_factory.mktemp("prometheus"), jobs_of(cluster, *PATHS)) as running:
        yield running


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_scraped_without_error(
    cluster: LocalCluster, scraper: Prometheus, path: str
) -> None:
    # the SLI page is filled by the first health probe, as a supervisor would send it
    cluster.kubectl("get", "--raw", cluster.proxy("/healthz"))

    def up() -> bool:
        try:
            targets = scraper.ask("/api/v1/targets")["activeTargets"]
        except OSError:
            return False
        target = next((t for t in targets if t["labels"]["job"] == path), None)
        if target is None:
            return False
        assert target["lastError"] == "", target["lastError"]
        return bool(target["health"] == "up")

    eventually(up, within_s=20, what=f"{path} is up")
    # A scrape's samples can be queried a moment after its target is shown as up.
    eventually(lambda: scraper.value(f'up{{job="{path}"}}') == 1, within_s=20, what="its series")


def test_the_pages_hold_what_they_are_scraped_for(scraper: Prometheus) -> None:
    def working_set() -> list[Any]:
        query = 'container_memory_working_set_bytes{container="memory",job="/metrics/resource"}'
        return scraper.query(query)

    (series,) = eventually(working_set, within_s=30, what="the demo pod's memory is scraped")
    assert float(series["value"][1]) > 20 * 1024 * 1024

    def healthcheck() -> list[Any]:
        query = 'orch_healthcheck{name="ping",type="healthz"}'
        return scraper.query(query)

    (series,) = eventually(healthcheck, within_s=30, what="the health gauge is scraped")
    assert series["value"][1] == "1"


@pytest.mark.parametrize("path", PATHS)
def test_promtool_accepts_every_page(cluster: LocalCluster, path: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    page = cluster.kubectl("get", "--raw", cluster.proxy(path)).stdout
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, timeout=30
    )
    assert page.count("\n") > 2
    complaints = [
        line
        for line in (checked.stderr + checked.stdout).splitlines()
        if not line.startswith(REFERENCE_NAMES)
    ]
    assert complaints == []
