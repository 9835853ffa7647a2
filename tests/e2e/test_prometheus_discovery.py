"""A scraper that knows an API server alone finds the nodes, and kubernetes-mixin its series."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.harness import ROOT, LocalCluster, eventually
from tests.fakes.prometheus import Prometheus, victoria_metrics

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.seconds(20)]

CONFIG = ROOT / "deploy" / "prometheus-kubernetes.yml"
# By panel of kubernetes-mixin (commit aa38e2b): what it asks, shortened. `C` chooses targets.
PANELS = {
    "Kubelet: Running Kubelets": 'sum(kubelet_node_name{C, job="kubelet"})',
    "Kubelet: Running Pods": 'sum(kubelet_running_pods{C, job="kubelet"})',
    "Kubelet: Running Containers":
        'sum(kubelet_running_containers{C, job="kubelet", container_state="running"})',
    "Kubelet: Operation Rate":
        'sum(rate(kubelet_runtime_operations_total{C, job="kubelet"}[10s])) by (operation_type)',
    "Kubelet: Operation duration 99th quantile":
        "histogram_quantile(0.99, sum(rate(kubelet_runtime_operations_duration_seconds_bucket"
        '{C, job="kubelet"}[10s])) by (instance, operation_type, le))',
    "Kubelet: Pod Start Rate": 'sum(kubelet_pod_start_duration_seconds_count{C, job="kubelet"})',
    "Kubelet: Pod worker": 'sum(kubelet_pod_worker_duration_seconds_bucket{C, job="kubelet"})',
    "Kubelet: Cgroup manager": 'sum(kubelet_cgroup_manager_duration_seconds_count{C})',
    "Kubelet: PLEG relist interval":
        "histogram_quantile(0.99, sum(rate(kubelet_pleg_relist_interval_seconds_bucket"
        '{C, job="kubelet"}[10s])) by (instance, le))',
    "Kubelet: RPC rate": 'sum(rate(rest_client_requests_total{C, code=~"2.."}[10s]))',
    "Kubelet: Memory": 'process_resident_memory_bytes{C, job="kubelet"}',
    "rule: PLEG by node":
        'kubelet_pleg_relist_duration_seconds_count{job="kubelet"} * on (cluster, instance)'
        ' group_left(node) kubelet_node_name{job="kubelet"}',
    "Pod: CPU Usage":
        'sum(rate(container_cpu_usage_seconds_total{C, job="cadvisor", image!="", pod=~"demo-.*"}'
        "[10s])) by (container)",
    "Pod: CPU Throttling":
        'sum(container_cpu_cfs_throttled_periods_total{C, job="cadvisor", container!=""})'
        ' / sum(container_cpu_cfs_periods_total{C, job="cadvisor", container!=""})',
    "Pod: Memory Usage":
        'sum(container_memory_working_set_bytes{C, job="cadvisor", container!="", image!=""})',
    "Pod: Memory (RSS)":
        'sum(container_memory_rss{C, job="cadvisor", container!="", container!="POD"})',
    "Pod: Receive Bandwidth":
        'sum(container_network_receive_bytes_total{C, job="cadvisor", pod=~"demo-.*"}) by (pod)',
    "alert: KubeletClientCertificateExpiration":
        'kubelet_certificate_manager_client_ttl_seconds{job="kubelet"}',
    "alert: KubeletClientCertificateRenewalErrors":
        "kubelet_certificate_manager_client_expiration_renew_errors",
}  # fmt: skip


def jobs(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Those of deploy/, with this cluster's address and files."""
    tls = {
        "ca_file": cluster.info["caFile"],
        "cert_file": cluster.info["monitoringCert"],
        "key_file": cluster.info["monitoringKey"],
    }
    found = []
    for job in yaml.safe_load(CONFIG.read_text())["scrape_configs"]:
        (discovery,) = job["kubernetes_sd_configs"]
        server = {**discovery, "api_server": cluster.info["apiserver"], "tls_config": tls}
        found.append({**job, "tls_config": tls, "kubernetes_sd_configs": [server]})
    return found


@pytest.fixture(scope="module")
def scraper(
    cluster: LocalCluster, demo: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    with victoria_metrics(tmp_path_factory.mktemp("scraper"), jobs(cluster)) as running:
        yield running


def test_the_nodes_are_found_and_scraped(cluster: LocalCluster, scraper: Prometheus) -> None:
    def scraped() -> bool:
        try:
            targets = scraper.ask("/api/v1/targets")["activeTargets"]
        except OSError:
            return False
        assert {target["health"] for target in targets} == {"up"}
        return {target["labels"]["job"] for target in targets} == {"kubelet", "cadvisor"}

    eventually(scraped, within_s=60, what="both jobs are up")
    for target in scraper.ask("/api/v1/targets")["activeTargets"]:
        assert target["labels"]["node"] == cluster.node
        assert target["scrapeUrl"].startswith(cluster.info["nodeagent"])


def test_a_node_that_comes_is_a_target_and_one_that_goes_is_none(
    cluster: LocalCluster, scraper: Prometheus
) -> None:
    def targets() -> set[str]:
        try:
            found = scraper.ask("/api/v1/targets")["activeTargets"]
        except OSError:
            return set()
        return {target["labels"]["node"] for target in found}

    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "late"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.9"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        },
    }
    eventually(lambda: targets() == {cluster.node}, within_s=60, what="the node is a target")
    created = json.dumps(node).encode()
    file = cluster.run_dir / "late.json"
    file.write_bytes(created)
    cluster.kubectl("create", "-f", str(file))
    patch = json.dumps({"status": node["status"]})
    cluster.kubectl("patch", "node", "late", "--subresource=status", "--type=merge", "-p", patch)
    eventually(lambda: targets() == {cluster.node, "late"}, within_s=60, what="the new node")
    cluster.kubectl("delete", "node", "late")
    eventually(lambda: targets() == {cluster.node}, within_s=60, what="without the new node")


def test_what_the_mixin_asks_has_an_answer(scraper: Prometheus) -> None:
    chosen = 'cluster="main"'
    asked = {panel: re.sub(r"\bC\b", chosen, query) for panel, query in PANELS.items()}

    def answered() -> bool:
        without = {panel for panel, query in asked.items() if not scraper.query(query)}
        assert without == set()
        return True

    eventually(answered, within_s=90, what="all have data", poll_s=2)


def test_debians_prometheus_has_no_discovery_by_api_servers() -> None:
    """Why the others run with another scraper; where this fails, they can use Prometheus."""
    promtool = shutil.which("promtool")
    packaged = promtool and subprocess.run(["dpkg", "-S", promtool], capture_output=True)
    if not promtool or not packaged or packaged.returncode:
        pytest.skip("Prometheus is not here as a package of Debian")
    checked = subprocess.run(
        [promtool, "check", "config", "--syntax-only", str(CONFIG)], capture_output=True, text=True
    )
    assert "field kubernetes_sd_configs not found" in checked.stdout + checked.stderr
