"""Resizes of a running pod, real containerd and API server: how long until the kernel has them.

One resize after the other, each to sizes of its own, from the API's response until the cgroups of
the container and of its pod have them; then as many at once as the API takes in ten seconds.
`BENCH_RESIZES` changes how many come one after the other.
"""

from __future__ import annotations

import asyncio
import glob
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from orch.client.kubeconfig import load_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.wire.records.pods import Pod
from tests.conftest_runtime import provisioned
from tests.e2e.harness import LocalCluster, local_cluster
from tools.bench import processes

SINGLY = int(os.environ.get("BENCH_RESIZES") or 300)
STORM_S = 10.0
_LIMITS = ("memory.limit_in_bytes", "memory.max")
_MI = 1 << 20


def main() -> None:
    """Print the results."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        run_dir = Path(name, "run")
        (run_dir / "manifests").mkdir(parents=True)
        with (
            provisioned(Path(name, "rt"), share=run_dir / "nodeagent") as runtime,
            local_cluster(run_dir, runtime=runtime.endpoint) as cluster,
        ):
            asyncio.run(Bench(cluster).run())


class Bench:
    """A pod of one container that is resized."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._node = cluster.node
        self._agent = cluster.pid("nodeagent")
        self._transport = Transport(load_kubeconfig(cluster.info["kubeconfig"]))
        self._client = ApiClient(self._transport)
        self._chance = random.Random(1)
        self._files: list[Path] = []

    async def run(self) -> None:
        await self._start()
        await self._singly()
        await self._storm()
        pod = await self._client.get(Pod, "resized", "default")
        [status] = pod.status.containerStatuses or []
        _row("restarts", str(status.restartCount))
        await self._transport.close()

    async def _start(self) -> None:
        container = {
            "name": "app", "image": "localhost/busybox:1", "command": ["sh", "-c", "sleep 100000"],
            "resources": _resources(100, 32),
        }  # fmt: skip
        spec = {"nodeName": self._node, "terminationGracePeriodSeconds": 0}
        meta = {"name": "resized", "namespace": "default"}
        wanted = {"metadata": meta, "spec": {**spec, "containers": [container]}}
        made = await self._client.create(Pod.from_wire(wanted))
        began = time.monotonic()
        while True:
            if (await self._client.get(Pod, "resized", "default")).status.phase == "Running":
                break
            if time.monotonic() - began > 60:
                raise SystemExit("the pod did not run within a minute")
            await asyncio.sleep(0.1)
        pattern = f"/sys/fs/cgroup/**/pod{made.metadata.uid}/**/"
        found = (glob.glob(pattern + file, recursive=True) for file in _LIMITS)
        self._files = [path for paths in found for path in map(Path, paths)]

    async def _resize(self, memory_mib: int) -> None:
        sized = [
            {"name": "app", "resources": _resources(self._chance.randint(10, 800), memory_mib)}
        ]
        patch: dict[str, Any] = {"spec": {"containers": sized}}
        await self._client.patch(
            Pod, "resized", patch, namespace="default", subresource="resize", kind="strategic"
        )

    async def _until_in_force(self, memory_mib: int) -> float:
        """The sandbox of the pod has no limit of its own."""
        began, wanted = time.monotonic(), str(memory_mib * _MI)
        while sum(path.read_text().strip() == wanted for path in self._files) < 2:
            if time.monotonic() - began > 60:
                raise SystemExit(f"{memory_mib} MiB were not in force within a minute")
            await asyncio.sleep(0.002)
        return time.monotonic() - began

    async def _singly(self) -> None:
        took, used = [], processes.cpu_s(self._agent)
        for number in range(SINGLY):
            memory_mib = 32 + 1 + number % 60
            await self._resize(memory_mib)
            took.append(await self._until_in_force(memory_mib))
        cpu_ms = (processes.cpu_s(self._agent) - used) / SINGLY * 1000
        took.sort()
        _row(f"{SINGLY} one after the other: in force, median s", f"{statistics.median(took):.3f}")
        _row("  the 99th percentile, s", f"{took[len(took) * 99 // 100]:.3f}")
        _row("  worst, s", f"{took[-1]:.3f}")
        _row("  agent CPU of each, ms", f"{cpu_ms:.1f}")

    async def _storm(self) -> None:
        used, number, until_s = processes.cpu_s(self._agent), 0, time.monotonic() + STORM_S
        while time.monotonic() < until_s:
            number += 1
            memory_mib = 32 + 1 + number % 60
            await self._resize(memory_mib)
        left_s = await self._until_in_force(memory_mib)
        percent = 100 * (processes.cpu_s(self._agent) - used) / (STORM_S + left_s)
        _row("as fast as the API takes them, for 10 s: a second", f"{number / STORM_S:.0f}")
        _row("  the last in force after s", f"{left_s:.3f}")
        _row("  agent CPU meanwhile, % of one core", f"{percent:.0f}")


def _resources(cpu_milli: int, memory_mib: int) -> dict[str, Any]:
    return {
        "requests": {"cpu": f"{cpu_milli}m", "memory": "16Mi"},
        "limits": {"cpu": "1", "memory": f"{memory_mib}Mi"},
    }


def _row(what: str, seen: str) -> None:
    print(f"{what:58} {seen:>12}", flush=True)
