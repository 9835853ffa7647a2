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

from tests.e2e.harness import RUNTIME_BASE, LocalCluster, eventually, local_cluster, runtime_tool

IDLE_S = float(os.environ.get("BENCH_IDLE_SECONDS") or 300)
STARTS = 5
DEMO = Path(__file__).resolve().parents[2] / "orch" / "up" / "demo.yaml"


def main() -> None:
    """Print the table of issue-level limits beside what was seen."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        runtime = directory / "rt"
        shared = ("--share", str(directory / "run" / "nodeagent"))
        up = runtime_tool("up", "--dir", str(runtime), "--base", str(RUNTIME_BASE), *shared)
        try:
            _measure(directory / "run", up.stdout.strip())
        finally:
            runtime_tool("down", "--dir", str(runtime))


def _measure(run_dir: Path, endpoint: str) -> None:
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
        used, began = _cpu_s(agent), time.monotonic()
        time.sleep(IDLE_S)
        percent = 100 * (_cpu_s(agent) - used) / (time.monotonic() - began)
        resident = _status_kib(agent, "VmRSS") / 1024
        peak = _status_kib(agent, "VmHWM") / 1024
        starts = _start_times(cluster)
    print(f"{'what':44} {'limit':>10} {'seen':>10}")
    print(f"{f'CPU over {IDLE_S:.0f} s, % of one core':44} {'< 0.5':>10} {percent:10.3f}")
    print(f"{'resident memory, MiB (peak)':44} {'<= 80':>10} {resident:10.1f} ({peak:.1f})")
    median = statistics.median(starts)
    print(f"{'start to serving, s (median of 5, worst)':44} {'<= 0.7':>10} {median:10.2f} "
          f"({max(starts):.2f})")  # fmt: skip


def _start_times(cluster: LocalCluster) -> list[float]:
    """Seconds from exec to the first answered request, on the running cluster's own settings."""
    os.kill(cluster.process.pid, signal.SIGSTOP)  # orch-up would start its own again
    pid = cluster.pid("nodeagent")
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
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


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status_kib(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise KeyError(key)
