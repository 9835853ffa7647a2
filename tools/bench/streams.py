"""`exec` beside the runtime's own, and 1 GiB copied both ways: real containerd, API server, agent.

The same client runs `true` in one container by turns: at the runtime's streaming server, as `crictl
exec` does, and through API server and agent, each time over a new TLS connection: each as soon as
the other has ended, and then each after a rest, as the runtime takes milliseconds less for what
begins while it still has the last one in hand. So do the commands, `crictl` (of cri-tools) if it is
on the path.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import aiohttp

from nodeagent.runtime.cri import CriRuntime
from nodeagent.runtime.endpoint import StreamOptions
from tests.conftest_runtime import provisioned
from tests.e2e.harness import LocalCluster, local_cluster
from tools.bench import processes
from tools.bench.table import Table

ROUNDS = int(os.environ.get("BENCH_STREAMS_ROUNDS") or 100)
COPIED_MIB = int(os.environ.get("BENCH_STREAMS_MIB") or 1024)
LIMIT = 1.25  # times the runtime's own
REST_S = 0.1
GROWN_MIB = 24
PROTOCOL = "v4.channel.k8s.io"


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    table = Table()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        run_dir = directory / "run"
        (run_dir / "manifests").mkdir(parents=True)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs' code is compiled
        with (
            provisioned(directory / "rt") as runtime,
            local_cluster(run_dir, runtime=runtime.endpoint) as cluster,
        ):
            container_id = _start_pod(cluster, directory)
            asyncio.run(_compare(cluster, runtime.endpoint, container_id, table))
            _compare_processes(cluster, runtime.endpoint, container_id, table)
            _copy(cluster, directory, table)
    print(f"\n{table.markdown()}")
    return table.missed


def _start_pod(cluster: LocalCluster, directory: Path) -> str:
    """The runtime's id of its container."""
    container = {"name": "c", "image": "localhost/busybox:1", "command": ["sleep", "100000"],
                 "volumeMounts": [{"name": "data", "mountPath": "/data"}]}  # fmt: skip
    spec = {"nodeName": cluster.node, "terminationGracePeriodSeconds": 1,
            "containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]}  # fmt: skip
    record = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    (directory / "pod.json").write_text(json.dumps(record))
    cluster.kubectl("create", "-f", str(directory / "pod.json"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
    return cluster.container_ids("p")["c"].rpartition("/")[2]


async def _compare(cluster: LocalCluster, endpoint: str, container_id: str, table: Table) -> None:
    runtime = CriRuntime(endpoint)
    tls = ssl.create_default_context(cafile=cluster.info["caFile"])
    tls.load_cert_chain(cluster.info["clientCert"], cluster.info["clientKey"])
    pods = f"{cluster.info['apiserver']}/api/v1/namespaces/default/pods"

    async def at_the_runtime() -> None:
        streams = StreamOptions(stdout=True, stderr=True)
        at = await runtime.open_exec(container_id, ("true",), streams)
        await _session(f"http://{at.host}:{at.port}{at.target}", None)

    async def through_the_api() -> None:
        await _session(f"{pods}/p/exec?command=true&stdout=1&stderr=1", tls)

    for when, rest_s in (("one after the other", 0.0), (f"each after {REST_S:g} s", REST_S)):
        own_s, api_s = await _by_turns((at_the_runtime, through_the_api), rest_s)
        what = f"exec of `true`, {when}"
        table.row(f"{what}: at the runtime's streaming server, median", own_s * 1000, unit=" ms")
        table.row(f"{what}: through API server and agent, median", api_s * 1000, unit=" ms")
        table.row(f"{what}: the second against the first", api_s / own_s, at_most=LIMIT, unit=" x")
    await runtime.close()


async def _by_turns(runs: Sequence[Callable[[], Awaitable[None]]], rest_s: float) -> list[float]:
    """The median of what each takes, in seconds."""
    seen: list[list[float]] = [[] for _ in runs]
    for number in range(ROUNDS + 5):
        for run, taken in zip(runs, seen, strict=True):
            await asyncio.sleep(rest_s)
            began_s = time.perf_counter()
            await run()
            if number >= 5:
                taken.append(time.perf_counter() - began_s)
    return [statistics.median(taken) for taken in seen]


async def _session(url: str, tls: ssl.SSLContext | None) -> None:
    """One exec over a connection of its own, to the Status of its end."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=[PROTOCOL], ssl=tls or True) as socket,
    ):
        async for message in socket:
            if message.data[:1] == b"\x03" and b"Success" in message.data:
                return
    raise AssertionError("the command did not succeed")


def _compare_processes(
    cluster: LocalCluster, endpoint: str, container_id: str, table: Table
) -> None:
    """Commands as a person gives them, each from its start to its end, by turns."""
    kubectl = shutil.which("kubectl") or "kubectl"
    orchctl = str(Path(sys.executable).with_name("orchctl"))
    asked = [f"--kubeconfig={cluster.info['kubeconfig']}", "exec", "p", "--", "true"]
    commands = {
        "kubectl exec": [kubectl, *asked],
        "kubectl version --client": [kubectl, "version", "--client"],  # its start, nobody asked
        "orchctl exec": [orchctl, *asked],
    }
    if crictl := shutil.which("crictl"):
        commands["crictl exec"] = [crictl, "-r", endpoint, "exec", container_id, "true"]
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS // 2 + 2):
        for name, command in commands.items():
            began_s = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            if number >= 2:
                taken[name].append(time.perf_counter() - began_s)
    seen_s = {name: statistics.median(each) for name, each in taken.items()}
    for name, each_s in seen_s.items():
        table.row(f"`{name}`, the whole process, median", each_s * 1000, unit=" ms")
    if "crictl exec" in seen_s:
        own_s = seen_s["crictl exec"]
        ratio = seen_s["kubectl exec"] / own_s
        table.row("kubectl's process against crictl's", ratio, at_most=LIMIT, unit=" x")
        table.row("orchctl's against crictl's", seen_s["orchctl exec"] / own_s, unit=" x")


def _copy(cluster: LocalCluster, directory: Path, table: Table) -> None:
    sent, back = directory / "sent", directory / "back"
    with sent.open("wb") as file:
        for _ in range(COPIED_MIB):
            file.write(os.urandom(2**20))
    pids = {name: cluster.pid(name) for name in ("apiserver", "nodeagent")}
    before = {name: processes.resident_mib(pid) for name, pid in pids.items()}
    kubectl = [
        shutil.which("kubectl") or "kubectl",
        f"--kubeconfig={cluster.info['kubeconfig']}",
        "cp",
    ]
    for what, source, target in (
        ("into the container", str(sent), "p:/data/copied"),
        ("out of it", "p:/data/copied", str(back)),
    ):
        began_s = time.perf_counter()
        subprocess.run([*kubectl, source, target], check=True, capture_output=True, timeout=3600)
        rate = COPIED_MIB / (time.perf_counter() - began_s)
        table.row(f"`kubectl cp` of {COPIED_MIB} MiB {what}", rate, unit=" MiB/s")
    same = subprocess.run(["cmp", str(sent), str(back)], check=False).returncode == 0
    table.row("differing copies", float(not same), at_most=0)
    for name, pid in pids.items():
        grown = processes.peak_mib(pid) - before[name]
        table.row(f"peak memory of the {name} meanwhile, above before", grown, at_most=GROWN_MIB,
                  unit=" MiB")  # fmt: skip
