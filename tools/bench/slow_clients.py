"""Ten thousand clients that never finish a header, and a thousand over TLS: the effect on others.

A local cluster without a runtime; each connection to the plain or the secure port sends half a
request and is reopened when it is closed. Meanwhile a well-behaved client requests /healthz, the
agent's memory is read and its Lease watched. All of it on loopback, for `BENCH_SLOW_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import resource
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.harness import LocalCluster, local_cluster
from tools.bench import processes
from tools.bench.client import percentile
from tools.bench.table import Table

SECONDS = float(os.environ.get("BENCH_SLOW_SECONDS") or 60)
ALONE_S = 15.0
PLAIN, TLS = 10_000, 1_000
_DIALLED_WITHIN_S = 20.0  # all of them
_REDIAL_S = 30.0  # after which a client that was cut comes again, about
_PROBE_PAUSE_S = 0.05
_LEASE_LIMIT_S = 40.0  # its duration: later than that the node is called dead


@dataclass
class Seen:
    """The results of the honest clients."""

    alone_ms: list[float] = field(default_factory=list)  # before the slow clients come
    probes_ms: list[float] = field(default_factory=list)
    failed: int = 0
    resident_mib: float = 0.0
    renewals: list[str] = field(default_factory=list)
    opened: int = 0


def raise_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    table = Table()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        local_cluster(Path(name) / "run", runtime=None) as cluster,
    ):
        seen = asyncio.run(_measure(cluster))
    probes = sorted(seen.probes_ms)
    table.row("/healthz p99, ms", percentile(probes, 990), at_most=50)
    table.row("agent's resident memory (peak), MiB", seen.resident_mib, at_most=300)
    table.row("probes without an answer", seen.failed, at_most=0)
    table.row("longest time between two renewals of the Lease, s", _longest(seen), at_most=15)
    table.note("/healthz p99 before they came, ms", f"{percentile(seen.alone_ms, 990):.1f}")
    table.note("/healthz p50, ms", f"{percentile(probes, 500):.1f}")
    table.note("probes", str(len(probes)))
    table.note("connections that were opened", str(seen.opened))
    print(f"\n{table.markdown()}")
    return table.missed


async def _measure(cluster: LocalCluster) -> Seen:
    """Run the slow clients in a process of their own: the honest client must not wait for them."""
    seen = Seen()
    healthz = urlsplit(cluster.info["nodeagentHealthz"]).port or 0
    secure = urlsplit(cluster.info["nodeagent"]).port or 0
    await _probed(healthz, seen, ALONE_S)
    seen.alone_ms, seen.probes_ms, seen.failed = seen.probes_ms, [], 0
    command = [sys.executable, "-m", "tools.bench.slow_clients", str(healthz), str(secure)]
    attackers = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    tasks = [
        asyncio.ensure_future(_probe(healthz, seen)),
        asyncio.ensure_future(_watch(cluster, seen)),
    ]
    await asyncio.sleep(SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    attackers.terminate()
    opened, _ = await attackers.communicate()
    seen.opened = int(opened or 0)
    return seen


async def _probed(port: int, seen: Seen, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _probe(port, seen)


class Attack:
    """Both kinds of slow clients, which dial during the first ten seconds."""

    def __init__(self) -> None:
        self.opened = 0

    async def run(self, healthz: int, secure: int) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        clients = [(healthz, None, n / PLAIN) for n in range(PLAIN)]
        clients += [(secure, context, n / TLS) for n in range(TLS)]
        tasks = [
            asyncio.ensure_future(self._slow(port, tls, share * _DIALLED_WITHIN_S))
            for port, tls, share in clients
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _slow(self, port: int, context: ssl.SSLContext | None, delay_s: float) -> None:
        """Send half a request, and dial again some time after the connection was cut."""
        await asyncio.sleep(delay_s)
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                self.opened += 1
                try:
                    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
                    await reader.read()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(_REDIAL_S * (0.5 + random.random()))


async def _probe(port: int, seen: Seen) -> None:
    """An honest client with a new connection per request."""
    while True:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
                writer.close()
        except OSError:
            answer = b""
        if answer.startswith(b"HTTP/1.1 200"):
            seen.probes_ms.append((time.monotonic() - began_s) * 1e3)
        else:
            seen.failed += 1
        await asyncio.sleep(_PROBE_PAUSE_S)


async def _watch(cluster: LocalCluster, seen: Seen) -> None:
    agent = cluster.pid("nodeagent")
    path = f"/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases/{cluster.node}"
    while True:
        seen.resident_mib = processes.peak_mib(agent)
        shown = await asyncio.to_thread(cluster.kubectl, "get", "--raw", path)
        renewed: str = _renewed(json.loads(shown.stdout))
        if not seen.renewals or seen.renewals[-1] != renewed:
            seen.renewals.append(renewed)
        await asyncio.sleep(1)


def _renewed(lease: Any) -> str:
    return str(lease["spec"]["renewTime"])


def _longest(seen: Seen) -> float:
    from orch.wire import times

    moments = [times.parse_time(text) for text in seen.renewals]
    gaps = [(b - a).total_seconds() for a, b in itertools.pairwise(moments)]
    return max(gaps, default=_LEASE_LIMIT_S)


if __name__ == "__main__":
    raise_open_files()
    attack = Attack()
    asyncio.run(attack.run(int(sys.argv[1]), int(sys.argv[2])))
    print(attack.opened)
