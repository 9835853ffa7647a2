"""The README's first five minutes: kubectl answers, and the numbers are the kernel's."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import LocalCluster, eventually

pytestmark = pytest.mark.seconds(30)

CGROUP = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def pod(cluster: LocalCluster, demo: str) -> dict[str, Any]:
    """The demo pod as the API server shows it."""
    return cluster.pod(demo)


def test_the_node_is_ready_with_its_facts(cluster: LocalCluster) -> None:
    shown = cluster.kubectl("get", "nodes", "-o", "wide").stdout
    header, row = shown.splitlines()
    assert header.split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert row.split()[:2] == [cluster.node, "Ready"]
    assert "containerd://" in row
    assert Path("/proc/sys/kernel/osrelease").read_text().strip() in row


def test_pods_of_all_namespaces_are_listed(cluster: LocalCluster, pod: dict[str, Any]) -> None:
    rows = cluster.kubectl("get", "pods", "-A").stdout.splitlines()
    assert rows[0].split() == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert any(
        r.split()[:4] == ["default", pod["metadata"]["name"], "3/3", "Running"] for r in rows
    )


def test_nodes_pods_and_leases_print_in_one_call(cluster: LocalCluster) -> None:
    shown = cluster.kubectl("get", "nodes,pods,leases.coordination.orch.io", "-A").stdout
    assert "HOLDER" in shown
    assert f"lease.coordination.orch.io/{cluster.node}" in shown
    assert "<unknown>" not in shown


def test_describe_node_tells_conditions_capacity_and_pods(
    cluster: LocalCluster, pod: dict[str, Any]
) -> None:
    shown = cluster.kubectl("describe", "node", cluster.node).stdout
    for text in ("MemoryPressure", "NodeAgentReady", "Allocatable:", pod["metadata"]["name"]):
        assert text in shown
    assert "kernel" in shown.lower()


def cgroup_of(container_id: str, controller: str) -> Path:
    """Where the kernel keeps a container's files, found by its id alone."""
    roots = [CGROUP / controller, CGROUP]
    for root in roots:
        if root.is_dir():
            for parent, names, _ in os.walk(root):  # others may go meanwhile
                if container_id in names:
                    return Path(parent, container_id)
    raise AssertionError(f"no cgroup of {container_id} under {roots}")


def read_cpu_ns(container_id: str) -> int:
    v1 = CGROUP / "cpuacct"
    directory = cgroup_of(container_id, "cpuacct")
    if v1.is_dir():
        return int((directory / "cpuacct.usage").read_text())
    stat = dict(line.split() for line in (directory / "cpu.stat").read_text().splitlines())
    return int(stat["usage_usec"]) * 1000


def read_working_set(container_id: str) -> int:
    directory = cgroup_of(container_id, "memory")
    stat = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
    if (directory / "memory.usage_in_bytes").exists():
        usage = int((directory / "memory.usage_in_bytes").read_text())
        return max(0, usage - int(stat["total_inactive_file"]))
    usage = int((directory / "memory.current").read_text())
    return max(0, usage - int(stat["inactive_file"]))


def read_psi_totals(container_id: str, resource: str) -> dict[str, int]:
    directory = cgroup_of(container_id, "unified")
    lines = (directory / f"{resource}.pressure").read_text().splitlines()
    return {line.split()[0]: int(line.rpartition("total=")[2]) for line in lines}


def summary_of(cluster: LocalCluster, container: str, *, pod: str = "demo") -> dict[str, Any]:
    summary = cluster.get(cluster.proxy("/stats/summary"))
    assert summary["node"]["nodeName"] == cluster.node
    pods = [p for p in summary["pods"] if p["podRef"]["name"] == f"{pod}-{cluster.node}"]
    assert len(pods) == 1, [p["podRef"] for p in summary["pods"]]
    found: dict[str, Any] = next(c for c in pods[0]["containers"] if c["name"] == container)
    return found


def container_id(pod: dict[str, Any], name: str) -> str:
    statuses = {s["name"]: s for s in pod["status"]["containerStatuses"]}
    return str(statuses[name]["containerID"]).removeprefix("containerd://")


def test_disks_are_in_the_summary_of_a_pod_that_just_started(
    cluster: LocalCluster, pod: dict[str, Any]
) -> None:
    def disks() -> dict[str, Any] | None:
        container = summary_of(cluster, "cpu")
        return container if {"rootfs", "logs"} <= container.keys() else None

    # a reading every ten seconds, the runtime's look at layers as often, and the next reading
    shown = eventually(disks, within_s=90, what="its log and its writable layer are measured")
    assert shown["logs"]["capacityBytes"] > shown["logs"]["usedBytes"]
    assert shown["rootfs"]["inodesUsed"] > 0


def test_cpu_in_the_summary_is_the_kernels_counter(
    cluster: LocalCluster, pod: dict[str, Any]
) -> None:
    busy = container_id(pod, "cpu")
    seen: list[int] = []
    for _ in range(3):
        before = read_cpu_ns(busy)
        time.sleep(1.1)  # older than the oldest sample a reader is given
        value = summary_of(cluster, "cpu")["cpu"]["usageCoreNanoSeconds"]
        assert before <= value <= read_cpu_ns(busy)
        seen.append(value)
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_memory_in_the_summary_is_usage_minus_inactive_file(
    cluster: LocalCluster, pod: dict[str, Any]
) -> None:
    holder = container_id(pod, "memory")
    before = read_working_set(holder)
    time.sleep(1.1)
    value = summary_of(cluster, "memory")["memory"]["workingSetBytes"]
    after = read_working_set(holder)
    slack = 256 * 1024  # per-cpu charge batches move while nobody allocates
    assert min(before, after) - slack <= value <= max(before, after) + slack
    assert value > 20 * 1024 * 1024  # what the container holds


@pytest.mark.skipif(
    not Path("/proc/pressure/cpu").exists(), reason="this kernel reports no pressure stalls"
)
@pytest.mark.parametrize("resource", ["cpu", "memory", "io"])
def test_pressure_totals_in_the_summary_are_the_kernels(
    cluster: LocalCluster, pod: dict[str, Any], resource: str
) -> None:
    busy = container_id(pod, "cpu")
    before = read_psi_totals(busy, resource)
    time.sleep(1.1)
    psi = summary_of(cluster, "cpu")[resource]["psi"]
    after = read_psi_totals(busy, resource)
    for level in ("some", "full"):
        assert before[level] <= psi[level]["total"] <= after[level]
    if resource == "cpu":
        assert psi["some"]["total"] > 0, "a container at its CPU limit stalls"


def test_the_node_lease_is_renewed(cluster: LocalCluster) -> None:
    first = cluster.lease()["spec"]
    assert first["holderIdentity"] == cluster.node
    assert first["leaseDurationSeconds"] == 40

    def renewed() -> bool:
        return bool(cluster.lease()["spec"]["renewTime"] != first["renewTime"])

    eventually(renewed, within_s=30, what="the Lease is renewed")


def test_diagnostics_answer_through_the_proxy(cluster: LocalCluster) -> None:
    assert cluster.kubectl("get", "--raw", cluster.proxy("/healthz")).stdout == "ok"
    eventually(
        lambda: (
            'orch_healthcheck{name="runtime",type="readyz"} 1'  # which nobody asked for
            in cluster.request(cluster.proxy("/metrics/slis"))
        ),
        within_s=30,
        what="health is measured",
    )
    shown = 'container_cpu_usage_seconds_total{container="cpu"'

    def resource() -> str:
        page = cluster.request(cluster.proxy("/metrics/resource"))
        return page if shown in page else ""

    page = eventually(resource, within_s=20, what="the loop's reading has the container")
    assert "resource_scrape_error 0" in page
    configz = json.loads(cluster.kubectl("get", "--raw", cluster.proxy("/configz")).stdout)
    assert configz["nodeagentconfig"]["kind"] == "NodeAgentConfiguration"
