"""A control plane under hollow nodes: lateness of renewals, false and missed deaths, recovery.

Real parts: API server, controller, the agents' loops, all on this machine. `BENCH_NODES` (5000) and
`BENCH_NODES_SECONDS` (1800) make it smaller for a quick look.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tools.bench import processes
from tools.bench.table import Table

NODES = int(os.environ.get("BENCH_NODES") or 5000)
STEADY_S = float(os.environ.get("BENCH_NODES_SECONDS") or 1800)
SILENCED = max(1, NODES // 100)
_RAMP_S = NODES / 100
_GIVE_UP_S = 90.0


class Control:
    """The hollow nodes' control, over HTTP."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._address}{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def post(self, path: str) -> bytes:
        request = urllib.request.Request(f"{self._address}{path}", method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def with_status(self, status: str) -> set[str]:
        return {name for name, shown in self.get("/nodes").items() if shown == status}


def main() -> int:
    """How many limits are missed."""
    table = Table()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        local_cluster(Path(name) / "run", runtime=None) as cluster,
        _hollow(cluster) as (process, control),
    ):
        _measure(cluster, process, control, table)
    print(f"\n{table.markdown()}")
    return table.missed


@contextmanager
def _hollow(cluster: LocalCluster) -> Iterator[tuple[subprocess.Popen[str], Control]]:
    process = subprocess.Popen(
        [
            sys.executable, "-c", "import sys; from nodeagent.main import main; sys.exit(main())",
            "hollow", "--kubeconfig", str(cluster.info["kubeconfig"]), "--count", str(NODES),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process, Control(process.stdout.readline().split()[-1])
    finally:
        process.terminate()
        process.wait(30)


def _measure(
    cluster: LocalCluster, process: subprocess.Popen[str], control: Control, table: Table
) -> None:
    eventually(
        lambda: control.get("/figures")["shown"].get("True") == NODES,
        within_s=3 * _RAMP_S + 60,
        what=f"{NODES} hollow nodes are Ready",
        poll_s=1.0,
    )
    time.sleep(15)  # the first renewals after registering
    pids = {
        "API server": cluster.pid("apiserver"),
        "controller": cluster.pid("controller-manager"),
        f"{NODES} hollow nodes": process.pid,
    }
    control.post("/reset")
    used, began_s = {name: processes.cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
    false_deaths = _watch_steady(control)
    elapsed_s = time.monotonic() - began_s
    figures = control.get("/figures")
    unknown_s, others = _silence(control)
    back_s = _heal(control)
    table.row("false Unknown in the steady time", len(false_deaths), at_most=0)
    table.row("lateness of renewals, s (p99)", figures["late_p99_s"], at_most=1)
    table.note("lateness of renewals, s (p50, max)",
               f"{figures['late_p50_s']:.3f} {figures['late_max_s']:.3f}")  # fmt: skip
    table.row(f"of {SILENCED} silenced, Unknown", len(unknown_s), at_least=SILENCED)
    if unknown_s:
        table.row("the first of them after its silence began, s", min(unknown_s), at_least=40)
        table.row("the last of them, s", max(unknown_s), at_most=60)
    table.row("others Unknown meanwhile", len(others), at_most=0)
    table.row("all Ready again after healing, s", back_s, at_most=15)
    for name, pid in pids.items():
        percent = 100 * (processes.cpu_s(pid) - used[name]) / elapsed_s
        resident = processes.resident_mib(pid)
        table.note(f"{name}: % of a core over all, MiB", f"{percent:.0f} {resident:.0f}")


def _watch_steady(control: Control) -> set[str]:
    """Nodes that were ever shown as Unknown while none was silent."""
    false_deaths: set[str] = set()
    end_s = time.monotonic() + STEADY_S
    while time.monotonic() < end_s:
        time.sleep(min(5.0, STEADY_S))
        false_deaths |= control.with_status("Unknown")
    return false_deaths


def _silence(control: Control) -> tuple[list[float], set[str]]:
    """When each silenced node was shown as Unknown, and which others were."""
    silenced = set(json.loads(control.post(f"/faults?kind=silent&count={SILENCED}")))
    began_s = time.monotonic()
    seen: dict[str, float] = {}
    others: set[str] = set()
    while time.monotonic() - began_s < _GIVE_UP_S and len(seen) < len(silenced):
        time.sleep(0.5)
        for name in control.with_status("Unknown"):
            if name in silenced:
                seen.setdefault(name, time.monotonic() - began_s)
            else:
                others.add(name)
    return list(seen.values()), others


def _heal(control: Control) -> float:
    control.post("/heal")
    began_s = time.monotonic()
    eventually(
        lambda: control.get("/figures")["shown"].get("True") == NODES,
        within_s=120,
        what="every node is Ready again",
        poll_s=0.2,
    )
    return time.monotonic() - began_s


if __name__ == "__main__":
    main()
