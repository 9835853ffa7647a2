"""Parts are killed, stopped or started twice: no pods are lost and everything recovers."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import LocalCluster, eventually

pytestmark = pytest.mark.seconds(180)


CONTAINERS = [
    {"name": name, "image": "localhost/busybox:1", "command": ["sleep", "10000"]}
    for name in ("a", "b", "c")
]  # they rest, since the cluster lives for minutes
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kept"},
    "spec": {"terminationGracePeriodSeconds": 0, "containers": CONTAINERS},
}  # fmt: skip


@pytest.fixture(scope="module")
def pod_name(cluster: LocalCluster) -> str:
    (cluster.run_dir / "manifests" / "kept.json").write_text(json.dumps(POD))
    name = f"kept-{cluster.node}"
    eventually(
        lambda: len([i for i in cluster.container_ids(name).values() if i]) == len(CONTAINERS),
        within_s=30,
        what="the pod runs",
    )
    return name


def restarts(cluster: LocalCluster, pod: str) -> int:
    statuses = cluster.pod(pod)["status"]["containerStatuses"]
    return sum(status["restartCount"] for status in statuses)


def test_an_agent_that_is_killed_finds_its_pods_again(cluster: LocalCluster, pod_name: str) -> None:
    ids, renewed = cluster.container_ids(pod_name), cluster.lease()["spec"]["renewTime"]
    pid = cluster.pid("nodeagent")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: cluster.pid("nodeagent") != pid, within_s=30, what="a new agent process")
    eventually(
        lambda: cluster.lease()["spec"]["renewTime"] > renewed,
        within_s=30,
        what="the new agent renews the Lease",
    )
    eventually(
        lambda: cluster.ready_condition()["status"] == "True", within_s=30, what="Ready again"
    )
    assert cluster.container_ids(pod_name) == ids
    assert restarts(cluster, pod_name) == 0
    events = cluster.get("/api/v1/events")["items"]
    assert "NodeNotReady" not in {event["reason"] for event in events}, "Ready never flipped"


def test_a_second_agent_on_the_same_lock_file_does_not_start_work(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "nodeagent.main",
            f"--lock-file={cluster.run_dir / 'nodeagent.lock'}",
            f"--root-dir={tmp_path / 'root'}",
            "--healthz-port=0", "--container-runtime-endpoint=",
        ],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"pid {cluster.pid('nodeagent')}" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "root" / "checkpoints").exists()


def test_a_runtime_that_stops_makes_the_node_not_ready_until_it_returns(
    cluster: LocalCluster, pod_name: str, real_runtime: RealRuntime
) -> None:
    ids = cluster.container_ids(pod_name)
    real_runtime.control("stop", "--signal", "KILL")
    try:
        condition = eventually(
            lambda: (c := cluster.ready_condition())["status"] == "False" and c,
            within_s=45,
            what="Ready is False",
        )
        assert condition["reason"] == "NodeAgentNotReady"
        assert "container runtime" in condition["message"]
    finally:
        real_runtime.control("start")
    eventually(
        lambda: cluster.ready_condition()["status"] == "True", within_s=45, what="Ready again"
    )
    assert cluster.container_ids(pod_name) == ids
    assert restarts(cluster, pod_name) == 0


def test_an_api_server_gone_for_a_minute_loses_no_pod(cluster: LocalCluster, pod_name: str) -> None:
    ids = cluster.container_ids(pod_name)
    agent = cluster.pid("nodeagent")
    # orch-up would start the API server again at once: hold it still for the minute.
    os.kill(cluster.process.pid, signal.SIGSTOP)
    try:
        os.kill(cluster.pid("apiserver"), signal.SIGKILL)
        time.sleep(60)
        running = still_running(ids.values())
        assert all(running.values()), f"containers ended without an API server: {running}"
    finally:
        os.kill(cluster.process.pid, signal.SIGCONT)
    eventually(
        lambda: cluster.request("/readyz") == "ok",
        within_s=20,
        what="the API server answers again",
    )
    before = cluster.lease()["spec"]["renewTime"]
    eventually(
        lambda: cluster.lease()["spec"]["renewTime"] > before,
        within_s=25,
        what="the Lease is renewed again",
    )
    eventually(
        lambda: cluster.ready_condition()["status"] == "True", within_s=20, what="Ready again"
    )
    assert cluster.pid("nodeagent") == agent, "the agent itself never restarted"
    assert cluster.container_ids(pod_name) == ids
    assert restarts(cluster, pod_name) == 0


def test_a_node_whose_agent_is_gone_becomes_unknown_and_recovers(
    cluster: LocalCluster, pod_name: str
) -> None:
    # orch-up would start the agent again at once: hold it still meanwhile.
    os.kill(cluster.process.pid, signal.SIGSTOP)
    try:
        renewed = time.monotonic()
        os.kill(cluster.pid("nodeagent"), signal.SIGKILL)
        condition = eventually(
            lambda: (c := cluster.ready_condition())["status"] == "Unknown" and c,
            within_s=75,
            what="Ready is Unknown",
            poll_s=0.5,
        )
        assert time.monotonic() - renewed > 38, "not before 50 s after the last renewal"
        assert condition["reason"] == "NodeStatusUnknown"
        unreachable = ("node.orch.io/unreachable", "NoSchedule")
        eventually(lambda: unreachable in cluster.taints(), within_s=30, what="its taint")
    finally:
        os.kill(cluster.process.pid, signal.SIGCONT)
    eventually(
        lambda: cluster.ready_condition()["status"] == "True" and not cluster.taints(),
        within_s=30,
        what="Ready again, without taints",
    )
    assert restarts(cluster, pod_name) == 0


def still_running(container_ids: Iterable[str]) -> dict[str, bool]:
    """Container id → whether the kernel still has processes in its cgroup."""
    groups = {
        path.name: path
        for path in map(Path, glob.glob("/sys/fs/cgroup/*/orchpods/**/pod*/*", recursive=True))
    }
    names = [one.removeprefix("containerd://") for one in container_ids]
    return {name: bool((groups[name] / "cgroup.procs").read_text().strip()) for name in names}
