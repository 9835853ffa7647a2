"""A real Prometheus scrapes the programs over TLS with a client certificate, and is asked what
alerts and dashboards ask."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.deploy.test_mixin import queries
from tests.e2e.harness import ROOT, LocalCluster, eventually
from tests.fakes.prometheus import Prometheus, prometheus
from tools import metrics_page

# What the reference collector chose and promtool's advice on style does not like.
REFERENCE_NAMES = ("container_memory_failcnt", "container_fs_inodes_total")
# Counted every quarter of a minute: a young agent has none yet.
CONDITIONAL = {
    "container_file_descriptors", "container_processes", "container_sockets", "container_threads",
    "container_threads_max", "container_ulimits_soft",
}  # fmt: skip
PROGRAMS = {"10250": "nodeagent", "6443": "apiserver", "10257": "controllerManager"}
# Nothing was evicted, no image was missed, no request failed, and one controller leads.
WITHOUT_DATA = {"PodsEvicted", "ImagePullsFail", "APIErrors", "LeaderMissing"}
PATHS = [
    "/metrics/resource", "/metrics/slis", "/metrics/containerstats", "/metrics/probes", "/metrics",
]  # fmt: skip


@pytest.fixture(scope="module")
def scraper(
    cluster: LocalCluster, demo: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus with the jobs of deploy/, and the agent's probes, each second."""
    with prometheus(tmp_path_factory.mktemp("prometheus"), jobs(cluster)) as running:
        yield running


def jobs(cluster: LocalCluster) -> list[dict[str, Any]]:
    deployed = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    probes = {**deployed[0], "job_name": "nodeagent-probes", "metrics_path": "/metrics/probes"}
    return [job_on(cluster, job) for job in (*deployed, probes)]


def job_on(cluster: LocalCluster, job: dict[str, Any]) -> dict[str, Any]:
    """The job with this cluster's addresses and files."""
    program = PROGRAMS[job["static_configs"][0]["targets"][0].rpartition(":")[2]]
    return {
        **job,
        "scrape_interval": "1s",
        "tls_config": {
            "ca_file": cluster.info["caFile"],
            "cert_file": cluster.info["monitoringCert"],
            "key_file": cluster.info["monitoringKey"],
        },
        "static_configs": [{"targets": [cluster.info[program].removeprefix("https://")]}],
    }


def test_every_page_is_scraped_without_error(cluster: LocalCluster, scraper: Prometheus) -> None:
    def scraped() -> bool:
        try:
            targets = scraper.ask("/api/v1/targets")["activeTargets"]
        except OSError:
            return False
        assert [target["lastError"] for target in targets if target["lastError"]] == []
        healthy = {target["labels"]["job"] for target in targets if target["health"] == "up"}
        return healthy == {job["job_name"] for job in jobs(cluster)}

    eventually(scraped, within_s=20, what="every job is up")
    # A scrape's samples can be queried a moment after its target is shown as up.
    total = len(jobs(cluster))
    eventually(lambda: scraper.value("sum(up)") == total, within_s=20, what="the series of all")


def test_what_panels_and_rules_ask_has_an_answer(
    cluster: LocalCluster, scraper: Prometheus
) -> None:
    """Alerts are asked without their bounds, which a healthy cluster does not pass."""
    cluster.kubectl("get", "--raw", "/api/v1/nodes/none", check=False)  # an answer with an error
    bare = {where: asked_at_once(expression) for where, expression in queries()}

    def answered() -> bool:
        without = {where for where, expression in bare.items() if not scraper.query(expression)}
        assert without - WITHOUT_DATA == set()
        return True

    eventually(answered, within_s=60, what="all have data", poll_s=2)


def asked_at_once(expression: str) -> str:
    """The query a minute's window can answer, with no bound and everything chosen."""
    expression = re.sub(r"\[(\d+[mh]|\$__rate_interval)\]", "[10s]", expression)
    expression = re.sub(r" offset \d+m", "", expression)
    expression = re.sub(r"\$\w+", ".*", expression)
    return re.sub(r"\s(==|<|>) [\d.e*+ ]+$", "", expression.strip())


def test_the_pages_hold_what_they_are_scraped_for(scraper: Prometheus) -> None:
    def working_set() -> list[Any]:
        query = 'container_memory_working_set_bytes{container="memory",job="nodeagent-resource"}'
        return scraper.query(query)

    (series,) = eventually(working_set, within_s=30, what="the demo pod's memory is scraped")
    assert float(series["value"][1]) > 20 * 1024 * 1024

    def healthcheck() -> list[Any]:
        query = 'orch_healthcheck{job="nodeagent-slis",name="ping",type="healthz"}'
        return scraper.query(query)

    (series,) = eventually(healthcheck, within_s=30, what="the health gauge is scraped")
    assert series["value"][1] == "1"


@pytest.mark.parametrize(
    "family", ["apiserver_request_duration_seconds", "nodeagent_http_requests_duration_seconds"]
)
def test_a_latency_leads_to_a_request(
    cluster: LocalCluster, scraper: Prometheus, family: str
) -> None:
    """By its exemplar: the ID that the answer and the lines of the log have."""

    def found() -> set[str]:
        now = str(int(time.time()) + 60)
        query = {"query": f"{family}_bucket", "start": "0", "end": now}
        series = scraper.ask("/api/v1/query_exemplars", **query)
        return {one["labels"]["request_id"] for s in series for one in s["exemplars"]}

    ids = eventually(found, within_s=60, what="exemplars")
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,64}", id_) for id_ in ids)


def test_the_list_of_metrics_is_that_of_the_live_pages(cluster: LocalCluster) -> None:
    """`python -m tools.metrics_page .run` writes it anew."""
    rows = metrics_page.documented(metrics_page.PAGE.read_text())
    live = metrics_page.fetched(cluster.info)
    assert rows.keys() == live.keys()
    for heading, families in live.items():
        table = rows[heading]
        shown = {family.name: family for family in families}
        for name, family in shown.items():
            row = table[name]
            assert replace(row, labels=family.labels, since="") == family
            assert family.labels <= row.labels, (heading, name)
        assert table.keys() - shown.keys() <= CONDITIONAL, heading


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
