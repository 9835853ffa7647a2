"""Fixtures of the end-to-end tests: one provisioned runtime, one cluster per module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import LocalCluster, local_cluster

DEMO = Path(__file__).resolve().parents[2] / "orch" / "up" / "demo.yaml"


@pytest.fixture(scope="session")
def runtime_endpoint(real_runtime: RealRuntime) -> str:
    return real_runtime.endpoint


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, real_runtime: RealRuntime
) -> Iterator[LocalCluster]:
    """A running cluster with the demo pod as its static pod."""
    run_dir = tmp_path_factory.mktemp("cluster") / "run"
    (run_dir / "manifests").mkdir(parents=True)
    (run_dir / "manifests" / "demo.yaml").write_text(DEMO.read_text())
    address = f"--host-address={real_runtime.host_address}"
    with local_cluster(run_dir, address, runtime=real_runtime.endpoint) as running:
        yield running
