"""A device plugin of somebody else's beside a whole cluster, pods with its devices, kubectl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import LocalCluster, eventually
from tests.fakes import device_plugins
from tests.fakes.device_plugins import RESOURCE

pytestmark = pytest.mark.seconds(15)


@contextmanager
def plugin(cluster: LocalCluster) -> Iterator[subprocess.Popen[bytes]]:
    folder = cluster.run_dir / "nodeagent" / "device-plugins"
    line = device_plugins.command(folder, RESOURCE, "2")
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def amounts(cluster: LocalCluster) -> tuple[str | None, str | None]:
    status = cluster.get(f"/api/v1/nodes/{cluster.node}")["status"]
    return status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)


def create(cluster: LocalCluster, directory: Path, name: str, count: int) -> None:
    container = {
        "name": "c",
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", "echo $DEVICES; echo x > /dev/$DEVICES && ls /dev; sleep 1000"],
        "resources": {"limits": {RESOURCE: str(count)}},
    }
    spec: dict[str, Any] = {
        "nodeName": cluster.node,
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
        "containers": [container],
    }
    record = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    path = directory / f"{name}.json"
    path.write_text(json.dumps(record))
    cluster.kubectl("create", "-f", str(path))


def test_pods_have_devices_whoever_is_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    with plugin(cluster):
        eventually(lambda: amounts(cluster) == ("2", "2"), within_s=20, what="two devices")
        described = cluster.kubectl("describe", "node", cluster.node).stdout
        assert described.count(f"  {RESOURCE}:") == 2
        create(cluster, tmp_path, "has", 1)
        cluster.kubectl("wait", "--for=condition=Ready", "pod/has", "--timeout=20s")
        said = eventually(
            lambda: "null" in (words := cluster.kubectl("logs", "has").stdout.split()) and words,
            within_s=10,
            what="its devices",
        )
        assert said[0] == "dev-0" and "dev-0" in said[1:] and "dev-1" not in said
        described = cluster.kubectl("describe", "node", cluster.node).stdout
        assert f"{RESOURCE} 1 1" in " ".join(described.split())

        ids, pid = cluster.container_ids("has"), cluster.pid("nodeagent")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: cluster.pid("nodeagent") != pid, within_s=30, what="a new agent")
        eventually(
            lambda: cluster.log("nodeagent").count(f"offers 2 devices of {RESOURCE}") >= 2,
            within_s=30,
            what="the plugin registers again",
        )
        assert cluster.container_ids("has") == ids

        create(cluster, tmp_path, "more", 2)
        eventually(
            lambda: cluster.pod("more")["status"].get("reason") == "UnexpectedAdmissionError",
            within_s=20,
            what="only one device is left",
        )
        assert "Requested: 2, Available: 1" in cluster.pod("more")["status"]["message"]
    eventually(lambda: amounts(cluster) == ("2", "0"), within_s=20, what="the plugin is gone")
    assert cluster.container_ids("has") == ids


def test_what_others_write_into_the_node_stays(cluster: LocalCluster) -> None:
    patch = json.dumps({"status": {"capacity": {"example.com/dongle": "4"}}})
    cluster.kubectl(
        "patch", "node", cluster.node, "--subresource=status", "--type=merge", f"--patch={patch}"
    )

    def dongles() -> list[str | None]:
        status = cluster.get(f"/api/v1/nodes/{cluster.node}")["status"]
        return [status[field].get("example.com/dongle") for field in ("capacity", "allocatable")]

    eventually(lambda: dongles() == ["4", "4"], within_s=20, what="the agent takes them over")
