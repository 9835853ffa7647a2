"""The whole agent with the demo pod and nothing else to do: start, resident memory, CPU.

Real parts: a provisioned containerd, the API server, the controller. `BENCH_IDLE_SECONDS` shortens
the five minutes for a quick look.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.conftest_runtime import provisioned
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tools.bench import processes
from tools.bench.table import Table

IDLE_S = float(os.environ.get("BENCH_IDLE_SECONDS") or 300)
STARTS = 5
DEMO = Path(__file__).resolve().parents[2] / "orch" / "up" / "demo.yaml"


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    table = Table()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        share = directory / "run" / "nodeagent"
        with provisioned(directory / "rt", share=share) as runtime:
            _measure(directory / "run", runtime.endpoint, table)
    print(f"\n{table.markdown()}")
    return table.missed


def _measure(run_dir: Path, endpoint: str, table: Table) -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed agent has its code compiled
    (run_dir / "manifests").mkdir(parents=True)
    (run_dir / "manifests" / "demo.yaml").write_text(DEMO.read_text())
    with local_cluster(run_dir, runtime=endpoint) as cluster:
        eventually(
            lambda: (
                len([i for i in cluster.container_ids(f"demo-{cluster.node}").values() if i]) == 3
            ),
            within_s=30,
            what="the demo pod runs",
        )
        time.sleep(10)  # start-up work is not idling
        agent = cluster.pid("nodeagent")
        percent = processes.cpu_percent(agent, IDLE_S)
        peak = processes.peak_mib(agent)
        starts = _start_times(cluster)
    table.row(f"CPU over {IDLE_S:.0f} s, % of one core", percent, at_most=0.5)
    table.row("resident memory (peak), MiB", peak, at_most=80)
    table.row("start to the first answered request, s (median of 5)", statistics.median(starts),
              at_most=0.7)  # fmt: skip
    table.note("the slowest of them, s", f"{max(starts):.2f}")


def _start_times(cluster: LocalCluster) -> list[float]:
    """Seconds from exec to the first answered request, on the running cluster's own settings."""
    os.kill(cluster.process.pid, signal.SIGSTOP)  # orch-up would start its own again
    pid = cluster.pid("nodeagent")
    command = psutil.Process(pid).cmdline()
    os.kill(pid, signal.SIGKILL)
    seen: list[float] = []
    for _ in range(STARTS + 1):  # the first one compiles
        began = time.monotonic()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        _wait_serving(cluster.info, process)
        seen.append(time.monotonic() - began)
        process.kill()
        process.wait()
    os.kill(cluster.process.pid, signal.SIGCONT)
    eventually(lambda: cluster.pid("nodeagent") != pid, within_s=20, what="orch-up's own agent")
    eventually(
        lambda: cluster.kubectl("get", "--raw", cluster.proxy("/healthz"), check=False).stdout,
        within_s=20,
        what="it answers",
    )
    return seen[1:]


def _wait_serving(info: dict[str, Any], process: subprocess.Popen[bytes]) -> None:
    context = ssl.create_default_context(cafile=info["caFile"])
    context.load_cert_chain(info["clientCert"], info["clientKey"])
    target = urlsplit(info["nodeagent"])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with (
                socket.create_connection((target.hostname, target.port), timeout=5) as plain,
                context.wrap_socket(plain, server_hostname=target.hostname) as tls,
            ):
                tls.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                if tls.recv(64).startswith(b"HTTP/1.1 200"):
                    return
        except OSError:
            time.sleep(0.005)
    raise RuntimeError("the agent did not serve")
