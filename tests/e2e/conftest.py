"""Fixtures of the end-to-end tests: one provisioned runtime, one cluster per module, a demo pod."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import LocalCluster, eventually, local_cluster

DEMO = Path(__file__).resolve().parents[2] / "orch" / "up" / "demo.yaml"


@pytest.fixture(scope="session")
def runtime_endpoint(real_runtime: RealRuntime) -> str:
    return real_runtime.endpoint


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, real_runtime: RealRuntime
) -> Iterator[LocalCluster]:
    """A running cluster without any pod."""
    run_dir = tmp_path_factory.mktemp("cluster") / "run"
    (run_dir / "manifests").mkdir(parents=True)
    address = f"--host-address={real_runtime.host_address}"
    with local_cluster(run_dir, address, runtime=real_runtime.endpoint) as running:
        yield running


@pytest.fixture(scope="module")
def demo(cluster: LocalCluster) -> str:
    """The name of the demo pod, a static pod that never rests, once all of it runs."""
    (cluster.run_dir / "manifests" / "demo.yaml").write_text(DEMO.read_text())
    name = f"demo-{cluster.node}"

    def running() -> bool:
        ready = [s["ready"] for s in cluster.pod(name)["status"].get("containerStatuses", [])]
        return len(ready) == 3 and all(ready)

    eventually(running, within_s=30, what="the demo pod is ready")
    return name
