"""A checkpoint of a container with much memory, through the whole agent: the agent's overhead.

Real parts: containerd, CRIU, the API server's proxy. Durations are the agent's own metrics: of the
whole checkpoint, and of the runtime's call in it. `BENCH_CHECKPOINT_MIB` is the container's memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.conftest_runtime import provisioned
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tools.bench import processes

MEMORY_MIB = int(os.environ.get("BENCH_CHECKPOINT_MIB") or 512)
ROUNDS = 5
_LIMIT_PERCENT = 5
SOURCE = Path(__file__).with_name("counter.c")
_METRICS = {
    "runtime": "nodeagent_runtime_operations_duration_seconds_sum"
    '{operation_type="checkpoint_container"}',
    "agent": "nodeagent_checkpoint_duration_seconds_sum",
}


_HEADINGS = (
    "overhead", "runtime", "agent", "agent CPU", "counter stood", "RSS before", "after", "peak",
)  # fmt: skip


class NoCompiler(Exception):
    """There is no C compiler."""


def main() -> int:
    """Print the table for plain and encrypted archives; 1 for a missed limit."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        compile_counter(directory / "bin")
        with provisioned(directory / "rt", share=directory) as runtime:
            load = os.getloadavg()[0]
            print(_row("", *_HEADINGS))
            overhead = _measure(directory, "plain", runtime.endpoint)
            _measure(directory, "encrypted", runtime.endpoint)
    print(f"limit: overhead < {_LIMIT_PERCENT} % of the runtime's call, {MEMORY_MIB} MiB touched, "
          f"mean of {ROUNDS}; times in s, memory in MiB; load {load:.0f} at the start")  # fmt: skip
    return int(overhead >= _LIMIT_PERCENT)


def compile_counter(directory: Path) -> Path:
    """The counter as a static program in `directory`. NoCompiler when there is no gcc."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise NoCompiler("no C compiler: install gcc to make a container with much memory")
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / "counter"
    subprocess.run([compiler, "-O2", "-static", "-o", target, SOURCE], check=True)
    return target


def pod(name: str, programs: Path, memory_mib: int) -> str:
    """The manifest of a pod whose container `app` counts."""
    container = {
        "name": "app",
        "image": "localhost/busybox:1",
        "command": ["/bench/counter", str(memory_mib)],
        "volumeMounts": [{"name": "bench", "mountPath": "/bench", "readOnly": True}],
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "containers": [container],
                "volumes": [{"name": "bench", "hostPath": {"path": str(programs)}}],
                "terminationGracePeriodSeconds": 1,
            },
        }
    )


def _measure(directory: Path, kind: str, endpoint: str) -> float:
    """Print one row; the overhead in percent of the runtime's call."""
    run_dir = directory / kind
    (run_dir / "manifests").mkdir(parents=True)
    (run_dir / "manifests" / "big.yaml").write_text(pod("big", directory / "bin", MEMORY_MIB))
    (run_dir / "nodeagent.conf.d").mkdir()
    (run_dir / "nodeagent.conf.d" / "90.conf").write_text(json.dumps(_config(kind)))
    with local_cluster(run_dir, runtime=endpoint) as cluster:
        name = f"big-{cluster.node}"
        eventually(lambda: cluster.container_ids(name).get("app"), within_s=60, what="it runs")
        count = count_file(cluster.container_ids(name)["app"].rpartition("/")[2])
        agent = cluster.pid("nodeagent")
        _longest_stop(count, _checkpoint(cluster, name))  # the first loads what is loaded late
        before, resident, cpu_s = (
            _seconds(cluster),
            processes.resident_mib(agent),
            processes.cpu_s(agent),
        )
        stood = [_longest_stop(count, _checkpoint(cluster, name)) for _ in range(ROUNDS)]
        after = _seconds(cluster)
        took = {key: (after[key] - before[key]) / ROUNDS for key in _METRICS}
        cpu_s = (processes.cpu_s(agent) - cpu_s) / ROUNDS
        overhead = 100 * (took["agent"] - took["runtime"]) / took["runtime"]
        times = (took["runtime"], took["agent"], cpu_s, max(stood))
        memory = (resident, processes.resident_mib(agent), processes.peak_mib(agent))
        cells = [*(f"{time_s:.2f}" for time_s in times), *(f"{mib:.1f}" for mib in memory)]
        print(_row(kind, f"{overhead:.1f}%", *cells), flush=True)
    return overhead


def _row(kind: str, *cells: str) -> str:
    return f"{kind:10}" + "".join(f"{cell:>14}" for cell in cells)


def _config(kind: str) -> dict[str, object]:
    policy: dict[str, object] = {"maxPerContainer": 2}
    if kind == "encrypted":
        import pyrage

        policy["encryption"] = {"recipients": [str(pyrage.x25519.Identity.generate().to_public())]}
    return {
        "apiVersion": "nodeagent.config.orch.io/v1beta1",
        "kind": "NodeAgentConfiguration",
        "checkpoint": policy,
    }


def count_file(container_id: str) -> Path:
    """The file of a running container's counter, as a path on this host."""

    def find() -> Path | None:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                mine = container_id in (process / "cgroup").read_text()
                if mine and (process / "root/count").exists():
                    return process / "root/count"
            except OSError:
                continue
        return None

    found: Path = eventually(find, within_s=60, what="the counter counts")
    return found


def _checkpoint(cluster: LocalCluster, name: str) -> subprocess.Popen[str]:
    path = cluster.proxy(f"/checkpoint/default/{name}/app")
    kubeconfig = f"--kubeconfig={cluster.info['kubeconfig']}"
    command = ["kubectl", kubeconfig, "create", "--raw", path, "-f", "/dev/null"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _longest_stop(count: Path, checkpoint: subprocess.Popen[str]) -> float:
    """How long the counter stood still during a checkpoint; it must continue afterwards."""
    last, since_s, longest_s = "", time.monotonic(), 0.0
    ended_s: float | None = None
    while ended_s is None or time.monotonic() < ended_s + 0.2:
        seen = count.read_text()
        if seen != last:
            longest_s = max(longest_s, time.monotonic() - since_s)
            last, since_s = seen, time.monotonic()
        if ended_s is None and checkpoint.poll() is not None:
            ended_s = time.monotonic()
        time.sleep(0.005)
    answer, _ = checkpoint.communicate()
    if checkpoint.returncode != 0 or '"items"' not in answer:
        raise RuntimeError(f"no checkpoint was made: {answer}")
    if time.monotonic() - since_s > 0.2:
        raise RuntimeError("the container does not count on after its checkpoint")
    return longest_s


def _seconds(cluster: LocalCluster) -> dict[str, float]:
    text = cluster.kubectl("get", "--raw", cluster.proxy("/metrics")).stdout
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {key: float(lines[name]) for key, name in _METRICS.items()}
