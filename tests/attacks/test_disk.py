"""Pods that try to use more of the node's disk than their bounds, on a real node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tests.e2e.test_checkpoint import post

pytestmark = [pytest.mark.alone, pytest.mark.real]

MIB = 1 << 20
LOG_BOUND = 4 * MIB
WRITERS = """
apiVersion: v1
kind: Pod
metadata: {name: writers}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: sparse
    image: localhost/busybox:1
    command: [sh, -c, 'dd if=/dev/zero of=/large bs=1 count=1 seek=4294967296; exec sleep 1000']
  - name: message
    image: localhost/busybox:1
    command:
    - sh
    - -c
    - >-
      while :; do dd if=/dev/zero bs=1M count=8 2>/dev/null; echo . >> /wrote/count; sleep 0.2;
      done >> /dev/termination-log
    volumeMounts: [{name: shared, mountPath: /wrote}]
  - name: log
    image: localhost/busybox:1
    command:
    - sh
    - -c
    - >-
      line=$(head -c 1000 /dev/zero | tr '\\0' x); until [ -e /flood/now ]; do sleep 0.2; done;
      for i in $(seq 120); do yes $line | head -c 2000000; sleep 0.1; done; exec sleep 1000
    volumeMounts: [{name: shared, mountPath: /flood}]
  volumes:
  - {name: shared, emptyDir: {}}
"""
DEEP = """
apiVersion: v1
kind: Pod
metadata: {name: deep}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: app
    image: localhost/busybox:1
    command:
    - sh
    - -c
    - 'cd /data; for i in $(seq 1400); do mkdir d; cd d; done; exec sleep 1000'
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, emptyDir: {sizeLimit: 100Mi}}
"""
CONFIG = {
    "apiVersion": "nodeagent.config.orch.io/v1beta1",
    "kind": "NodeAgentConfiguration",
    "checkpoint": {"maxTotal": "1Gi"},
    "containerLogMaxSize": "4Mi",
    "containerLogMaxFiles": 2,
}


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, real_runtime: RealRuntime
) -> Iterator[LocalCluster]:
    run_dir = tmp_path_factory.mktemp("disk") / "run"
    for name, file, text in (
        ("manifests", "writers.yaml", WRITERS),
        ("manifests", "deep.yaml", DEEP),
        ("nodeagent.conf.d", "90-bounds.conf", json.dumps(CONFIG)),
    ):
        (run_dir / name).mkdir(parents=True, exist_ok=True)
        (run_dir / name / file).write_text(text)
    with local_cluster(run_dir, runtime=real_runtime.endpoint) as cluster:
        writers = f"writers-{cluster.node}"
        eventually(
            lambda: len([i for i in cluster.container_ids(writers).values() if i]) == 3,
            within_s=60, what="the containers run",
        )  # fmt: skip
        yield cluster


def pods_of(node: LocalCluster) -> Path:
    return node.run_dir / "nodeagent" / "pods"


def shared_volume(node: LocalCluster) -> Path:
    [volume] = pods_of(node).glob("*/volumes/empty-dir/shared")
    return volume


def largest(directory: Path, pattern: str, seconds: float) -> int:
    """The most bytes on disk that matching files had, looked at for a while."""
    most, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        most = max([most, *(path.stat().st_blocks * 512 for path in directory.glob(pattern))])
        time.sleep(0.05)
    return most


def test_a_termination_message_does_not_grow(node: LocalCluster) -> None:
    rounds = shared_volume(node) / "count"
    eventually(rounds.exists, within_s=20, what="the container writes")
    before = rounds.stat().st_size
    most = largest(pods_of(node), "*/containers/message/0.message", 10)
    written = (rounds.stat().st_size - before) // 2 * 8 * MIB
    assert most > 0
    assert written > 2 * most, f"{written // MIB} MiB written, at most {most // MIB} on disk"


def test_a_flood_of_logs_stays_near_its_bound(node: LocalCluster) -> None:
    (shared_volume(node) / "now").touch()
    uid = shared_volume(node).parents[2].name
    most = largest(node.run_dir / "logs" / "pods", f"*_{uid}/log/*", 12)
    assert most > LOG_BOUND, "the flood did not reach the bound"
    # Up to 20 MB a second: 50 times in the reference's interval of ten seconds.
    assert most < 20 * LOG_BOUND, f"{most / LOG_BOUND:.1f} times the bound"


def test_a_sparse_file_needs_room_before_its_checkpoint(node: LocalCluster) -> None:
    began_s = time.monotonic()
    text = post(node, f"/checkpoint/default/writers-{node.node}/sparse", check=False)
    took_s = time.monotonic() - began_s
    assert "checkpoint.maxTotal is 1073741824" in text, text
    assert took_s < 15, f"refused only after {took_s:.1f} s"


def test_a_pod_too_deep_to_be_measured_exceeds_its_limit_and_can_be_removed(
    node: LocalCluster,
) -> None:
    name = f"deep-{node.node}"
    [volume] = pods_of(node).glob("*/volumes/empty-dir/data")

    def evicted() -> bool:
        status = node.pod(name)["status"]
        return status["phase"] == "Failed" and status["reason"] == "Evicted"

    eventually(evicted, within_s=100, what="the pod is evicted")
    message = node.pod(name)["status"]["message"]
    assert "cannot be measured: it is deeper than 128 levels" in message
    (node.run_dir / "manifests" / "deep.yaml").unlink()
    eventually(lambda: not volume.parents[2].exists(), within_s=60, what="its directory is removed")
