"""A real agent over 330 and 1,000 containers' cgroups: pages over mutual TLS, loop delay, memory.

The agent is a process of its own, without API server and runtime; the client has a persistent
connection and sends ten requests a second, so that every tenth waits for a new sample.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orch.component.process import clock
from orch.up.layout import issue_certificates
from tests.e2e.harness import eventually
from tools.bench import cgroup_tree, peers, processes
from tools.bench.client import Client, percentile
from tools.bench.table import Table

SIZES = (30, 330, 1000)
PATHS = ("/metrics/containerstats", "/stats/summary")
REQUESTS = 300
EVERY_S = 0.1
_IDLE_S = 8.0


@dataclass(frozen=True, slots=True)
class Served:
    """Seconds; milliseconds of loop delay by percentile, idle and scraped; MiB after all of it."""

    walls: list[float]
    idle: dict[str, float]
    busy: dict[str, float]
    resident_mib: float


def add_rows(table: Table) -> None:
    served = {size: _serve(size) for size in SIZES}
    small, middle, large = (served[size] for size in SIZES)
    for size in SIZES[1:]:
        p50, p99 = (percentile(served[size].walls, rank) * 1e3 for rank in (500, 990))
        limit = 20.0 if size == 330 else 3 * percentile(middle.walls, 990) * 1e3
        table.note(f"scrape and summary over TLS, {size} containers, p50", f"{p50:.1f} ms")
        what = f"scrape and summary over TLS, 10 a second, {size} containers, p99"
        table.row(what, p99, at_most=round(limit, 1), unit=" ms")
    table.note(
        "event loop, 330 containers, idle, p99.9",
        f"{middle.idle['p999']:.1f} ms (max {middle.idle['max']:.1f})",
    )
    table.row(
        "event loop, 330 containers, sampled and scraped, p99.9",
        middle.busy["p999"],
        at_most=10,
        unit=" ms",
    )
    table.row("resident, 110 pods (330 containers)", middle.resident_mib, at_most=90, unit=" MiB")
    more = (large.resident_mib - small.resident_mib) / (SIZES[-1] - SIZES[0])
    table.row("resident, per further container", more, at_most=0.1, unit=" MiB")


def _serve(containers: int) -> Served:
    with cgroup_tree.pods(containers) as (_, targets), _agent(targets, containers) as agent:
        client = Client(agent.info)
        for path in PATHS:
            client.get(path)
        agent.delays()
        time.sleep(_IDLE_S)
        idle = agent.delays()
        walls = client.latencies(PATHS, requests=REQUESTS, every_s=EVERY_S)
        busy = agent.delays()
        client.close()
        return Served(walls, idle, busy, processes.resident_mib(agent.process.pid))


@dataclass(frozen=True, slots=True)
class _Agent:
    process: subprocess.Popen[bytes]
    info: dict[str, Any]
    file: Path

    def delays(self) -> dict[str, float]:
        """Percentiles of the loop's delay since the last call, milliseconds."""
        self.file.unlink(missing_ok=True)
        os.kill(self.process.pid, signal.SIGUSR1)
        eventually(self.file.exists, within_s=30, what="the agent tells its loop's delays")
        figures: dict[str, float] = json.loads(self.file.read_text())
        return figures


@contextmanager
def _agent(targets: list[Any], containers: int) -> Iterator[_Agent]:
    parent = targets[0].cgroup_parent.rpartition("/")[0]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        pairs = issue_certificates(directory / "pki", "bench", now=clock.utc_now())
        port = peers.free_port()
        info = {
            "nodeagent": f"https://127.0.0.1:{port}",
            "caFile": pairs.ca_file,
            "monitoringCert": pairs.monitoring.cert_file,
            "monitoringKey": pairs.monitoring.key_file,
        }
        config = directory / "config.yaml"
        config.write_text(
            "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
            f"failCgroupV1: false\npodLogsDir: {directory}/logs\n"
        )
        command = [
            sys.executable, "-m", "tools.bench.measured_agent",
            parent, str(containers), str(directory / "delays.json"),
            f"--config={config}",
            f"--root-dir={directory}/root", f"--lock-file={directory}/lock",
            "--hostname-override=bench", "--address=127.0.0.1", f"--port={port}",
            "--healthz-port=0", f"--client-ca-file={pairs.ca_file}",
            f"--tls-cert-file={pairs.nodeagent.cert_file}",
            f"--tls-private-key-file={pairs.nodeagent.key_file}",
            "--container-runtime-endpoint=",
        ]  # fmt: skip
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(command, stderr=log)
        try:
            eventually(lambda: _answers(port), within_s=30, what=f"it serves ({directory}/log)")
            delays = directory / "delays.json"
            eventually(delays.exists, within_s=30, what="its loops run")
            yield _Agent(process, info, delays)
        finally:
            process.terminate()
            process.wait(30)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False
