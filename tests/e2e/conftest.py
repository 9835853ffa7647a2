"""Fixtures of the end-to-end tests: one provisioned runtime, one cluster per module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import RUNTIME_BASE, LocalCluster, local_cluster, runtime_tool

DEMO = Path(__file__).resolve().parents[2] / "orch" / "up" / "demo.yaml"


@pytest.fixture(scope="session")
def runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A private containerd of this test session; down at its end."""
    if os.geteuid() != 0:
        pytest.skip("provisioning a container runtime takes root")
    directory = tmp_path_factory.mktemp("rt")
    shared = ("--share", str(tmp_path_factory.getbasetemp()))
    runtime_tool("up", "--dir", str(directory), "--base", str(RUNTIME_BASE), *shared)
    yield directory
    runtime_tool("down", "--dir", str(directory))


@pytest.fixture(scope="session")
def runtime_endpoint(runtime_dir: Path) -> str:
    done = runtime_tool("up", "--dir", str(runtime_dir), "--base", str(RUNTIME_BASE))
    return done.stdout.strip()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, runtime_endpoint: str
) -> Iterator[LocalCluster]:
    """A running cluster with the demo pod as its static pod."""
    run_dir = tmp_path_factory.mktemp("cluster") / "run"
    (run_dir / "manifests").mkdir(parents=True)
    (run_dir / "manifests" / "demo.yaml").write_text(DEMO.read_text())
    with local_cluster(run_dir, runtime=runtime_endpoint) as running:
        yield running
