"""110 pods on a node, real containerd and API server: the agent's CPU and added latency.

First pods one after the other: from the API's response to Running, compared with the runtime's own
calls. Then the rest of a full node at once, the full node at rest, and its removal. `BENCH_PODS`
makes the node smaller for a quick look, `BENCH_PODS_REST_SECONDS` its rest shorter.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import tempfile
import time
from pathlib import Path

from orch.client.kubeconfig import load_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.wire.records.pods import Pod
from tests.conftest_runtime import provisioned
from tests.e2e.harness import LocalCluster, local_cluster
from tools.bench import processes

FULL = int(os.environ.get("BENCH_PODS") or 110)
SINGLY = min(15, FULL // 2)
REST_S = float(os.environ.get("BENCH_PODS_REST_SECONDS") or 60)
DEADLINE_S = 600.0
CALLS = ("run_podsandbox", "create_container", "start_container")
_SUM = re.compile(
    r'nodeagent_runtime_operations_duration_seconds_sum{operation_type="(\w+)"} (\S+)'
)


def main() -> None:
    """Print the results."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        run_dir = Path(name, "run")
        (run_dir / "manifests").mkdir(parents=True)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed agent has its code compiled
        with (
            provisioned(Path(name, "rt"), share=run_dir / "nodeagent") as runtime,
            local_cluster(run_dir, runtime=runtime.endpoint) as cluster,
        ):
            asyncio.run(Bench(cluster).run())


class Bench:
    """A node that is filled with pods and emptied."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._agent = cluster.pid("nodeagent")
        self._transport = Transport(load_kubeconfig(cluster.info["kubeconfig"]))
        self._client = ApiClient(self._transport)

    async def run(self) -> None:
        print(f"{'what':58} {'seen':>12}")
        await self._until_running(await self._create("warm-0"), 1)  # loads what is loaded late
        await self._singly()
        await self._at_once()
        await self._at_rest()
        await self._removal()
        await self._transport.close()

    async def _singly(self) -> None:
        wholes, runtimes = [], []
        for number in range(SINGLY):
            before = self._runtime_s()
            began = time.monotonic()
            await self._create(f"single-{number}")
            await self._until_running(f"single-{number}", 1)
            wholes.append(time.monotonic() - began)
            await asyncio.sleep(0.2)  # its status is the last thing that costs the agent
            runtimes.append(self._runtime_s() - before)
        beyond = [whole - inside for whole, inside in zip(wholes, runtimes, strict=True)]
        _row(f"one after the other ({SINGLY}): to Running, median s", _median(wholes))
        _row("  of that in the runtime's own calls, median s", _median(runtimes))
        _row("  beyond the runtime's own, median s", _median(beyond))
        _row("  beyond the runtime's own, worst s", f"{max(beyond):.3f}")

    async def _at_once(self) -> None:
        number = FULL - SINGLY - 1
        used, began = processes.cpu_s(self._agent), time.monotonic()
        await asyncio.gather(*(self._create(f"batch-{n}") for n in range(number)))
        await self._until_running("batch-", number)
        took_s = time.monotonic() - began
        _row(f"{number} more at once, a full node of {FULL}: all Running after s", f"{took_s:.1f}")
        cpu_s = processes.cpu_s(self._agent) - used
        _row("  agent CPU-seconds per started pod", f"{cpu_s / number:.3f}")

    async def _at_rest(self) -> None:
        await asyncio.sleep(5)
        used, began = processes.cpu_s(self._agent), time.monotonic()
        await asyncio.sleep(REST_S)
        percent = 100 * (processes.cpu_s(self._agent) - used) / (time.monotonic() - began)
        _row(f"{FULL} pods at rest over {REST_S:.0f} s: agent CPU, % of one core", f"{percent:.2f}")
        _row("  resident memory, MiB", f"{processes.resident_mib(self._agent):.1f}")

    async def _removal(self) -> None:
        used, began = processes.cpu_s(self._agent), time.monotonic()
        listed = await self._client.list(Pod, "default")
        for pod in listed.items:
            await self._client.delete(Pod, pod.metadata.name, "default")
        while (await self._client.list(Pod, "default")).items:
            _check(began, "pods are still there")
            await asyncio.sleep(0.2)
        _row(f"{len(listed.items)} pods deleted at once, s", f"{time.monotonic() - began:.1f}")
        cpu_s = processes.cpu_s(self._agent) - used
        _row("  agent CPU-seconds per removed pod", f"{cpu_s / len(listed.items):.3f}")

    async def _create(self, name: str) -> str:
        container = {
            "name": "app",
            "image": "localhost/busybox:1",
            "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"],
        }
        spec = {
            "nodeName": self._cluster.node,
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
        }
        meta = {"name": name, "namespace": "default"}
        await self._client.create(Pod.from_wire({"metadata": meta, "spec": spec}))
        return name

    async def _until_running(self, prefix: str, number: int) -> None:
        began = time.monotonic()
        while True:
            if number == 1:
                listed = [await self._client.get(Pod, prefix, "default")]
            else:
                listed = list((await self._client.list(Pod, "default")).items)
            running = [p for p in listed if p.status.phase == "Running" and _is(p, prefix)]
            if len(running) >= number:
                return
            failed = [p for p in listed if p.status.phase == "Failed"]
            if failed:
                shown = f"{failed[0].status.reason} {failed[0].status.message}"
                raise RuntimeError(f"pod {failed[0].metadata.name} failed: {shown}")
            _check(began, f"{len(running)} of {number} pods run")
            await asyncio.sleep(0.02 if number == 1 else 0.25)

    def _runtime_s(self) -> float:
        """The time spent so far in calls that start pods."""
        page = self._cluster.kubectl("get", "--raw", self._cluster.proxy("/metrics")).stdout
        return sum(float(value) for call, value in _SUM.findall(page) if call in CALLS)


def _is(pod: Pod, prefix: str) -> bool:
    return pod.metadata.name.startswith(prefix)


def _check(began: float, what: str) -> None:
    if time.monotonic() - began > DEADLINE_S:
        raise RuntimeError(f"after {DEADLINE_S:.0f} s: {what}")


def _median(values: list[float]) -> str:
    return f"{statistics.median(values):.3f}"


def _row(what: str, seen: str) -> None:
    print(f"{what:58} {seen:>12}", flush=True)
