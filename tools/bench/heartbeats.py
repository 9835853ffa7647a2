"""A control plane under hollow nodes: lateness of renewals, false and missed failures, recovery.

Real parts: API server, controller, the agents' loops, all on this machine. The whole measurement:

    python -m tools.bench.heartbeats --nodes 5000 --minutes 30 [--etcd] [--plot docs/heartbeats.svg]

Without `--plot` the picture is written to `build`. `BENCH_NODES` and `BENCH_NODES_SECONDS` make it
smaller, for a quick look.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tests.orch.server.storage.etcdserver import running_etcd
from tools.bench import heartbeats_plot, processes
from tools.bench.heartbeats_plot import Course
from tools.bench.table import Table

_GIVE_UP_S = 90.0
_STORES = ("SQLite", "etcd")


@dataclass(frozen=True, slots=True)
class Scale:
    """The extent: nodes, seconds without faults, the store, and the plot's file."""

    nodes: int
    steady_s: float
    etcd: bool
    plot: Path

    @property
    def silenced(self) -> int:
        return max(1, self.nodes // 100)

    @property
    def ramp_s(self) -> float:
        return self.nodes / 100


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


def main(arguments: Sequence[str] = ()) -> int:
    """Run the benchmark; the number of missed limits."""
    scale = scale_of(arguments)
    table = Table()
    with _control_plane(scale) as cluster, hollow_nodes(cluster, scale.nodes) as (process, control):
        course = _measure(scale, cluster, process, control, table)
    print(f"\n{table.markdown()}")
    title = f"{scale.nodes} nodes, {scale.steady_s / 60:g} minutes, {_STORES[scale.etcd]}"
    scale.plot.parent.mkdir(parents=True, exist_ok=True)
    heartbeats_plot.draw(course, title, scale.plot)
    print(f"drawn: {scale.plot}")
    return table.missed


def scale_of(arguments: Sequence[str]) -> Scale:
    """The flags, else the environment, else the whole measurement."""
    flags = argparse.ArgumentParser(prog="python -m tools.bench.heartbeats", allow_abbrev=False)
    nodes = int(os.environ.get("BENCH_NODES") or 5000)
    minutes = float(os.environ.get("BENCH_NODES_SECONDS") or 1800) / 60
    flags.add_argument("--nodes", type=int, default=nodes, help="hollow nodes")
    flags.add_argument("--minutes", type=float, default=minutes, help="without a fault")
    flags.add_argument("--etcd", action="store_true", help="keep everything in an etcd, not SQLite")
    flags.add_argument("--plot", type=Path, help="draw the course of it into this file")
    given = flags.parse_args(arguments)
    if given.nodes < 1 or given.minutes <= 0:
        flags.error("--nodes and --minutes must be positive")
    if given.etcd and not shutil.which("etcd"):
        flags.error("--etcd needs the program etcd (Debian package etcd-server)")
    plot = given.plot or Path("build", f"heartbeats-{_STORES[given.etcd].lower()}.svg")
    return Scale(given.nodes, 60 * given.minutes, given.etcd, plot)


@contextmanager
def _control_plane(scale: Scale) -> Iterator[LocalCluster]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        flags: list[str] = []
        if scale.etcd:
            etcd = stack.enter_context(running_etcd(on_disk=True))
            flags.append(f"--etcd-servers={etcd.url}")
        yield stack.enter_context(local_cluster(Path(folder) / "run", *flags, runtime=None))


@contextmanager
def hollow_nodes(
    cluster: LocalCluster, nodes: int
) -> Iterator[tuple[subprocess.Popen[str], Control]]:
    """Hollow nodes as one process, and their control."""
    process = subprocess.Popen(
        [
            sys.executable, "-c", "import sys; from nodeagent.main import main; sys.exit(main())",
            "hollow", "--kubeconfig", str(cluster.info["kubeconfig"]), "--count", str(nodes),
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
    scale: Scale,
    cluster: LocalCluster,
    process: subprocess.Popen[str],
    control: Control,
    table: Table,
) -> Course:
    nodes = scale.nodes
    eventually(
        lambda: control.get("/figures")["shown"].get("True") == nodes,
        within_s=3 * scale.ramp_s + 60,
        what=f"{nodes} hollow nodes are Ready",
        poll_s=1.0,
    )
    time.sleep(15)  # the first renewals after registering
    pids = {
        "API server": cluster.pid("apiserver"),
        "controller": cluster.pid("controller-manager"),
        f"{nodes} hollow nodes": process.pid,
    }
    control.post("/reset")
    used, began_s = {name: processes.cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
    course = Course()
    false_deaths = _watch_steady(control, scale.steady_s, course)
    elapsed_s = time.monotonic() - began_s
    figures = control.get("/figures")
    unknown_s, others = _silence(control, scale.silenced)
    back_s = _heal(control, nodes)
    course.found_s += sorted(unknown_s)
    table.row("false Unknown in the steady time", len(false_deaths), at_most=0)
    table.row("lateness of renewals, s (p99)", figures["late_p99_s"], at_most=1)
    table.note("lateness of renewals, s (p50, max)",
               f"{figures['late_p50_s']:.3f} {figures['late_max_s']:.3f}")  # fmt: skip
    table.row(f"of {scale.silenced} silenced, Unknown", len(unknown_s), at_least=scale.silenced)
    if unknown_s:
        table.row("the first of them after its silence began, s", min(unknown_s), at_least=40)
        table.row("the last of them, s", max(unknown_s), at_most=60)
    table.row("others Unknown meanwhile", len(others), at_most=0)
    table.row("all Ready again after healing, s", back_s, at_most=15)
    for name, pid in pids.items():
        percent = 100 * (processes.cpu_s(pid) - used[name]) / elapsed_s
        resident = processes.resident_mib(pid)
        table.note(f"{name}: % of a core over all, MiB", f"{percent:.0f} {resident:.0f}")
    return course


def _watch_steady(control: Control, steady_s: float, course: Course) -> set[str]:
    """Nodes that were shown as Unknown although none was silent."""
    false_deaths: set[str] = set()
    began_s = time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < steady_s:
        time.sleep(min(5.0, steady_s - elapsed_s))
        false_deaths |= control.with_status("Unknown")
        figures = control.get("/figures")
        if figures["late_p99_s"] is not None:
            course.add(time.monotonic() - began_s, figures)
    return false_deaths


def _silence(control: Control, count: int) -> tuple[list[float], set[str]]:
    """When each silenced node was shown as Unknown, and which other nodes were."""
    silenced = set(json.loads(control.post(f"/faults?kind=silent&count={count}")))
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


def _heal(control: Control, nodes: int) -> float:
    control.post("/heal")
    began_s = time.monotonic()
    eventually(
        lambda: control.get("/figures")["shown"].get("True") == nodes,
        within_s=120,
        what="every node is Ready again",
        poll_s=0.2,
    )
    return time.monotonic() - began_s


if __name__ == "__main__":
    sys.exit(int(main(sys.argv[1:]) > 0))
