"""Pods that try to use more of the node's disk than their bounds, on a real node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tests.e2e.test_checkpoint import post

pytestmark = [pytest.mark.real, pytest.mark.seconds(25)]

MIB = 1 << 20
LOG_BYTES, LOG_FILES = 4 * MIB, 2
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
      until [ -e /wrote/enough ]; do dd if=/dev/zero bs=1M count=8 2>/dev/null;
      echo . >> /wrote/count; sleep 0.2; done >> /dev/termination-log; exec sleep 1000
    volumeMounts: [{name: shared, mountPath: /wrote}]
  - name: log
    image: localhost/busybox:1
    command:
    - sh
    - -c
    - >-
      line=$(head -c 1000 /dev/zero | tr '\\0' x); until [ -e /flood/now ]; do sleep 0.2; done;
      for i in $(seq 80); do yes $line | head -c 2000000; echo . >> /flood/written; sleep 0.1; done;
      touch /flood/over; exec sleep 1000
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
    "containerLogMaxSize": f"{LOG_BYTES}",
    "containerLogMaxFiles": LOG_FILES,
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


def bytes_of(path: Path) -> int:
    """On disk; 0 when it has just been removed."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def largest(directory: Path, pattern: str, until: Callable[[int], bool]) -> int:
    """The most bytes on disk that matching files had, until this and that suffices."""
    most = 0

    def look() -> bool:
        nonlocal most
        most = max([most, *map(bytes_of, directory.glob(pattern))])
        return until(most)

    eventually(look, within_s=90, what="enough was seen on disk", poll_s=0.05)
    return most


def test_a_termination_message_does_not_grow(node: LocalCluster) -> None:
    rounds = shared_volume(node) / "count"
    eventually(rounds.exists, within_s=20, what="the container writes")
    before = rounds.stat().st_size

    def written() -> int:
        return (rounds.stat().st_size - before) // 2 * 8 * MIB

    def enough(most: int) -> bool:
        return most > 0 and written() > max(2 * most, 100 * MIB)

    most = largest(pods_of(node), "*/containers/message/0.message", enough)
    (shared_volume(node) / "enough").touch()
    assert written() > 2 * most, f"{written() // MIB} MiB written, at most {most // MIB} on disk"


@pytest.mark.alone  # how soon the agent sees it is the machine's
def test_a_flood_of_logs_stays_near_its_bound(node: LocalCluster) -> None:
    """Near: what the flood writes in two seconds, twice what passes until it is seen. Within a
    look of its end there is no more than the bound and the quarter that a file may have beyond it.
    """
    volume, bound = shared_volume(node), LOG_BYTES * LOG_FILES
    uid, seen = volume.parents[2].name, []
    directory = node.run_dir / "logs" / "pods"

    def on_disk() -> int:
        return sum(map(bytes_of, directory.glob(f"*_{uid}/log/*")))

    def is_over() -> bool:
        seen.append(on_disk())
        return (volume / "over").exists()

    (volume / "now").touch()
    begun_s = time.monotonic()
    eventually(is_over, within_s=90, what="the flood is over", poll_s=0.05)
    bytes_a_second = (
        (volume / "written").stat().st_size // 2 * 2_000_000 / (time.monotonic() - begun_s)
    )
    most = max(seen)
    figures = f"{most / bound:.1f} times the bound at {bytes_a_second / MIB:.1f} MiB a second"
    assert most > LOG_BYTES, f"the flood did not reach the bound: {figures}"
    assert most < bound + 2 * bytes_a_second, figures
    eventually(lambda: on_disk() <= bound * 5 / 4, within_s=10, what=f"the rest is cut: {figures}")


def test_a_sparse_file_needs_room_before_its_checkpoint(node: LocalCluster) -> None:
    path = f"/checkpoint/default/writers-{node.node}/sparse"
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(post, node, path, check=False)
        most = largest(node.run_dir / "nodeagent" / "checkpoints", "**/*", lambda _: asked.done())
    assert "checkpoint.maxTotal is 1073741824" in asked.result(), asked.result()
    assert most < 16 * MIB, f"refused only when {most // MIB} MiB were written"


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
