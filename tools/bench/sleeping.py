"""The whole agent with 101 sleeping pods on a real containerd: its CPU at rest.

The set-up is that of the reference agent's figures: two containers per pod, its own and the
sandbox. CPU is that of the agent's process. `BENCH_SLEEPING_SECONDS` (120) is the duration.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest_runtime import provisioned
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tools.bench import processes
from tools.bench.client import Client, percentile
from tools.bench.table import Table

PODS = int(os.environ.get("BENCH_SLEEPING_PODS") or 101)
MEASURED_S = float(os.environ.get("BENCH_SLEEPING_SECONDS") or 120)
SETTLING_S = 20.0  # start-up work, and the first walk of the directories
SCRAPES = 40
_EVERY_S = 1.1
_START_WITHIN_S = 600.0


def add_rows(table: Table) -> None:
    """Measure an agent with 101 pods."""
    with sleeping_pods(PODS) as cluster:
        agent = cluster.pid("nodeagent")
        time.sleep(SETTLING_S)
        percent = processes.cpu_percent(agent, MEASURED_S)
        table.row(f"whole agent, {PODS} sleeping pods: CPU, % of a core", percent, at_most=0.6)
        resident = processes.resident_mib(agent)
        table.row(f"whole agent, {PODS} sleeping pods: resident MiB", resident, at_most=90)
        client = Client(cluster.info)
        walls = client.latencies(["/metrics/resource"], requests=SCRAPES, every_s=_EVERY_S)
        client.close()
        table.row(
            f"/metrics/resource, {PODS} pods: p50 ms",
            percentile(walls, 500) * 1e3,
            at_most=5,
        )


@contextmanager
def sleeping_pods(count: int) -> Iterator[LocalCluster]:
    """A cluster whose node runs that many pods of one sleeping container each."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed agent has its code compiled
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        run_dir = Path(name, "run")
        _write_manifests(run_dir / "manifests", count)
        with (
            provisioned(Path(name, "rt"), share=run_dir / "nodeagent") as runtime,
            local_cluster(run_dir, runtime=runtime.endpoint) as cluster,
        ):
            eventually(
                lambda: _running(cluster) == count,
                within_s=_START_WITHIN_S,
                what=f"{count} pods run",
                poll_s=2.0,
            )
            yield cluster


def _write_manifests(directory: Path, count: int) -> None:
    directory.mkdir(parents=True)
    for number in range(count):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"sleeping-{number}"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "sleep",
                        "image": "localhost/busybox:1",
                        "command": ["sleep", "100000"],
                    }
                ],
            },
        }
        (directory / f"{number:03d}.json").write_text(json.dumps(pod))


def _running(cluster: LocalCluster) -> int:
    pods = cluster.get("/api/v1/namespaces/default/pods")["items"]
    return sum(pod.get("status", {}).get("phase") == "Running" for pod in pods)
