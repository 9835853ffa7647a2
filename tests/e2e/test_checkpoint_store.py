"""The store of a running agent: bounded, encrypted, looked after, and whole after a kill."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyrage
import pytest

from nodeagent import freezer
from tests import preloaded
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tests.e2e.test_checkpoint import post
from tests.e2e.test_first_five_minutes import container_id, read_cpu_ns

pytestmark = pytest.mark.seconds(15)

KEY = pyrage.x25519.Identity.generate()
POD = """
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/busybox:1
    # With memory that takes a while to dump: a test has to meet it frozen.
    command: [sh, -c, "large=$(yes | head -c 40000000); while true; do i=$((i+1)); done"]
"""
CONFIG = {
    "apiVersion": "nodeagent.config.orch.io/v1beta1",
    "kind": "NodeAgentConfiguration",
    "checkpoint": {
        "maxPerContainer": 2,
        "encryption": {"recipients": [str(KEY.to_public())]},
    },
}


@pytest.fixture(scope="module")
def bounded(
    tmp_path_factory: pytest.TempPathFactory, runtime_endpoint: str
) -> Iterator[LocalCluster]:
    """A cluster that keeps two encrypted archives of a container."""
    run_dir = tmp_path_factory.mktemp("bounded") / "run"
    for name, file, text in (
        ("manifests", "busy.yaml", POD),
        ("nodeagent.conf.d", "90-checkpoint.conf", json.dumps(CONFIG)),
    ):
        (run_dir / name).mkdir(parents=True)
        (run_dir / name / file).write_text(text)
    with local_cluster(run_dir, runtime=runtime_endpoint) as cluster:
        name = f"busy-{cluster.node}"
        eventually(lambda: cluster.container_ids(name).get("app"), within_s=30, what="it runs")
        yield cluster


def store(cluster: LocalCluster) -> Path:
    return cluster.run_dir / "nodeagent" / "checkpoints"


def archives(cluster: LocalCluster) -> list[str]:
    return sorted(name for name in os.listdir(store(cluster)) if name.endswith(".age"))


def command(cluster: LocalCluster, *words: str) -> Any:
    """`nodeagent checkpoint … -o json` on the node."""
    root = f"--root-dir={cluster.run_dir / 'nodeagent'}"
    done = preloaded.run("nodeagent.main", "checkpoint", *words, "-o", "json", root)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def created(cluster: LocalCluster) -> str:
    """An archive made by `nodeagent checkpoint create` on the node."""
    port = cluster.info["nodeagent"].rpartition(":")[2]
    credentials = f"--kubeconfig={cluster.info['kubeconfig']}"
    words = ("create", f"default/busy-{cluster.node}", f"--port={port}", credentials)
    return Path(command(cluster, *words)["items"][0]).name


def test_archives_are_encrypted_bounded_pinned_and_verified(bounded: LocalCluster) -> None:
    path = f"/checkpoint/default/busy-{bounded.node}/app"
    first = Path(json.loads(post(bounded, path))["items"][0]).name
    command(bounded, "pin", first)
    made = [Path(json.loads(post(bounded, path))["items"][0]).name for _ in range(2)]
    made.append(created(bounded))

    left = sorted([first, made[-1]])
    eventually(lambda: archives(bounded) == left, within_s=20, what="older ones are gone")
    assert [row["valid"] for row in command(bounded, "verify")] == [True, True]
    record = command(bounded, "show", first)
    assert (record["container"], record["encryption"], record["pinned"]) == ("app", "age", True)
    assert record["runtime"].startswith("containerd ")
    plain = pyrage.decrypt((store(bounded) / first).read_bytes(), [KEY])
    assert b"checkpoint/inventory.img" in plain
    listed = json.loads(bounded.kubectl("get", "--raw", bounded.proxy("/checkpoint")).stdout)
    assert [item["name"] for item in listed["items"]] == archives(bounded)

    def told() -> bool:
        events = bounded.get("/api/v1/namespaces/default/events")["items"]
        return {"Checkpointed", "CheckpointRemoved"} <= {event["reason"] for event in events}

    eventually(told, within_s=20, what="events of what was made and removed")


def test_a_killed_agent_leaves_no_container_frozen_and_no_rest(bounded: LocalCluster) -> None:
    name = f"busy-{bounded.node}"
    before, pid = archives(bounded), bounded.pid("nodeagent")
    busy = container_id(bounded.pod(name), "app")
    going = threading.Thread(
        target=post, args=(bounded, f"/checkpoint/default/{name}/app"), kwargs={"check": False}
    )
    going.start()
    eventually(
        lambda: any(entry.endswith(".pending") for entry in os.listdir(store(bounded))),
        within_s=20, what="the checkpoint is under way", poll_s=0.005,
    )  # fmt: skip
    eventually(
        lambda: freezer.is_frozen(freezer.CGROUP_ROOT, busy) or not going.is_alive(),
        within_s=20, what="the runtime dumps the container", poll_s=0.002,
    )  # fmt: skip
    os.kill(pid, signal.SIGKILL)
    going.join()

    eventually(lambda: bounded.pid("nodeagent") != pid, within_s=30, what="the agent is back")
    eventually(
        lambda: not [entry for entry in os.listdir(store(bounded)) if entry.startswith(".")],
        within_s=30, what="nothing half done is left",
    )  # fmt: skip
    assert archives(bounded) == before
    told = f"(default/{name}/app): no archive was created"
    eventually(lambda: told in bounded.log("nodeagent"), within_s=20, what=told)
    used = read_cpu_ns(busy)
    eventually(lambda: read_cpu_ns(busy) > used, within_s=10, what="the container runs on")
    assert [row["valid"] for row in command(bounded, "verify")] == [True] * len(before)
