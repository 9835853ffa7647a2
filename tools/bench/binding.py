"""1,000 pods that wait for a node, 100 hollow nodes: how long until the last one has its own.

Real parts, each a process: API server, controller, hollow nodes. The controller stands still while
the pods are made, so that all of them are waiting when it goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.harness import LocalCluster, local_cluster
from tools.bench.heartbeats import hollow_nodes
from tools.bench.processes import cpu_s
from tools.bench.table import Table

NODES, PODS, WITHIN_S = 100, 1000, 10.0
AT_ONCE = 8
_LOOK_S = 0.1
_NODES = "/api/v1/nodes"
_PODS = "/api/v1/namespaces/default/pods"


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    table = Table()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        local_cluster(Path(folder) / "run", runtime=None) as cluster,
        hollow_nodes(cluster, NODES),
    ):
        asyncio.run(_measure(cluster, table))
    print(f"\n{table.markdown()}")
    return table.missed


async def _measure(cluster: LocalCluster, table: Table) -> None:
    tls = ssl.create_default_context(cafile=cluster.info["caFile"])
    tls.load_cert_chain(cluster.info["clientCert"], cluster.info["clientKey"])
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(cluster.info["apiserver"], connector=connector) as api:
        await _until(lambda: _are_ready(api))
        controller = cluster.pid("controller-manager")
        os.kill(controller, signal.SIGSTOP)
        try:
            await asyncio.gather(*(_make(api, first) for first in range(AT_ONCE)))
        finally:
            os.kill(controller, signal.SIGCONT)
        pids = {"controller": controller, "API server": cluster.pid("apiserver")}
        began_s, began_cpu_s = time.monotonic(), {name: cpu_s(pids[name]) for name in pids}
        await _until(lambda: _are_bound(api))
        taken_s = time.monotonic() - began_s
        bound = Counter(pod["spec"]["nodeName"] for pod in await _listed(api, _PODS))
    table.row(f"{PODS} pods on {NODES} nodes: the last bound after", taken_s, at_most=WITHIN_S,
              unit=" s")  # fmt: skip
    for name, pid in pids.items():
        table.row(f"CPU of the {name} meanwhile", cpu_s(pid) - began_cpu_s[name], unit=" s")
    table.row("pods on the fullest node", float(max(bound.values())), at_most=PODS / NODES)
    table.row("processes that wanted a core, mean of a minute", os.getloadavg()[0])


async def _make(api: aiohttp.ClientSession, first: int) -> None:
    resources = {"requests": {"cpu": "100m"}}
    spec = {"containers": [{"name": "c", "image": "busybox:1", "resources": resources}]}
    for number in range(first, PODS, AT_ONCE):
        record = {"metadata": {"name": f"p{number:04}"}, "spec": spec}
        async with api.post(_PODS, json=record) as answer:
            answer.raise_for_status()


async def _listed(api: aiohttp.ClientSession, path: str) -> list[Any]:
    async with api.get(path) as answer:
        answer.raise_for_status()
        return list((await answer.json())["items"])


async def _are_ready(api: aiohttp.ClientSession) -> bool:
    conditions = (node["status"].get("conditions", ()) for node in await _listed(api, _NODES))
    ready = (any((c["type"], c["status"]) == ("Ready", "True") for c in of) for of in conditions)
    return sum(ready) >= NODES


async def _are_bound(api: aiohttp.ClientSession) -> bool:
    return not await _listed(api, f"{_PODS}?fieldSelector=spec.nodeName%3D&limit=1")


async def _until(done: Callable[[], Awaitable[bool]]) -> None:
    while not await done():  # noqa: ASYNC110 - of other processes
        await asyncio.sleep(_LOOK_S)
