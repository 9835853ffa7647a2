"""A checkpoint through the API server's proxy, with the real runtime and real CRIU."""

from __future__ import annotations

import asyncio
import re
import stat
import tarfile
from pathlib import Path

import grpc
import pytest

from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tests.e2e.test_first_five_minutes import container_id, read_cpu_ns
from tests.fakes.cri_server import CriServer
from tests.fakes.runtime import FakeRuntime


def post(cluster: LocalCluster, path: str, *, check: bool = True) -> str:
    """POST with an empty body through the proxy; the answer's text or kubectl's error."""
    done = cluster.kubectl("create", "--raw", cluster.proxy(path), "-f", "/dev/null", check=check)
    return done.stdout if check else done.stdout + done.stderr


def test_a_checkpoint_is_one_private_archive_and_the_container_runs_on(
    cluster: LocalCluster, demo: str
) -> None:
    before = cluster.pod(demo)
    answer = post(cluster, f"/checkpoint/default/{demo}/cpu")
    match = re.fullmatch(r'\{"items":\["([^"]+)"\]\}\s*', answer)
    assert match, answer
    archive = Path(match[1])
    assert archive.parent == cluster.run_dir / "nodeagent" / "checkpoints"
    assert re.fullmatch(
        rf"checkpoint-{demo}_default-cpu-"
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)\.tar",
        archive.name,
    )
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert stat.S_IMODE(archive.parent.stat().st_mode) == 0o700
    with tarfile.open(archive) as tar:
        members = {name.removeprefix("./") for name in tar.getnames()}
    assert {"checkpoint/inventory.img", "config.dump", "spec.dump"} <= members

    after = cluster.pod(demo)
    busy = container_id(after, "cpu")
    assert busy == container_id(before, "cpu")
    used = read_cpu_ns(busy)
    eventually(lambda: read_cpu_ns(busy) > used, within_s=10, what="the container runs on")


UNKNOWN = [
    ("/checkpoint/default/absent/cpu", "pod does not exist"),
    ("/checkpoint/absent/{pod}/cpu", "pod does not exist"),
    ("/checkpoint/default/{pod}/absent", "container absent does not exist"),
    ("/checkpoint/default/{pod}/%2fetc", "NotFound"),
]


@pytest.mark.parametrize(("path", "message"), UNKNOWN)
def test_what_does_not_exist_is_404(
    cluster: LocalCluster, demo: str, path: str, message: str
) -> None:
    answer = post(cluster, path.format(pod=demo), check=False)
    assert message in answer or "could not find the requested resource" in answer, answer


async def test_a_runtime_without_checkpoints_is_500_with_its_own_text(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    server = CriServer(runtime, tmp_path / "cri.sock")
    server.refuse(
        "CheckpointContainer",
        grpc.StatusCode.UNIMPLEMENTED,
        "unknown method CheckpointContainer for service runtime.v1.RuntimeService",
    )
    await server.start()
    try:
        answer = await asyncio.to_thread(checkpoint_on, server.endpoint, tmp_path / "run")
    finally:
        await server.stop()
    assert "checkpointing of default/" in answer
    assert "code = Unimplemented desc = unknown method CheckpointContainer" in answer


def checkpoint_on(endpoint: str, run_dir: Path) -> str:
    """The error of a checkpoint of a running pod on a cluster with that runtime."""
    (run_dir / "manifests").mkdir(parents=True)
    (run_dir / "manifests" / "one.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\n"
        "spec: {containers: [{name: c, image: 'localhost/busybox:1'}]}\n"
    )
    with local_cluster(run_dir, runtime=endpoint) as cluster:
        name = f"one-{cluster.node}"
        eventually(lambda: cluster.container_ids(name).get("c"), within_s=20, what="the pod runs")
        return post(cluster, f"/checkpoint/default/{name}/c", check=False)
