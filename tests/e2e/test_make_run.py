"""`make run` on a fresh directory: provisions, becomes ready, and leaves nothing behind."""

from __future__ import annotations

import glob
import json
import os
import re
import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.e2e.harness import ROOT, RUNTIME_BASE, LocalCluster, eventually, runtime_tool

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="provisioning a container runtime takes root"),
    pytest.mark.timeout(300),
]


def of(directory: Path) -> dict[str, list[str]]:
    """Processes, mounts and cgroups on this machine that belong to a run directory."""
    name = str(directory)
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if name in command:
                processes.append(f"{entry.name} {command}")
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    return {"processes": processes, "mounts": mounts}


def cgroups_of(container_ids: set[str]) -> list[Path]:
    """Other tests' cgroups vanish meanwhile, which `Path.glob` does not bear."""
    found = glob.glob("/sys/fs/cgroup/*/orchpods/**/pod*/*", recursive=True)
    return [path for path in map(Path, found) if path.name in container_ids]


def demo_containers(cluster: LocalCluster) -> set[str]:
    """Ids of the demo pod's containers, once all of them run."""
    statuses = cluster.pod(f"demo-{cluster.node}")["status"].get("containerStatuses", [])
    ids = {s["containerID"].removeprefix("containerd://") for s in statuses if s["ready"]}
    return ids if len(ids) == 3 else set()


def test_make_run_becomes_ready_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    (run_dir / "runtime").mkdir(parents=True)
    # the base filesystem takes a minute to make: the session's own is used again
    runtime_tool("build", "--base", str(RUNTIME_BASE))
    (run_dir / "runtime" / "base").symlink_to(RUNTIME_BASE)
    output = tmp_path / "output"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            ["make", "run"],
            cwd=ROOT,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            env={
                **{k: v for k, v in os.environ.items() if k != "CONTAINER_RUNTIME_ENDPOINT"},
                "RUN_DIR": str(run_dir),
                "APISERVER_PORT": "0",
                "NODEAGENT_PORT": "0",
                "HEALTHZ_PORT": "0",
            },
        )
    try:
        eventually(
            lambda: re.search(r"^ready", output.read_text(), re.M) or process.poll() is not None,
            within_s=120,
            what="make run prints ready",
        )
        assert process.poll() is None, output.read_text()
        ready = re.search(r"^ready after ([\d.]+) s", output.read_text(), re.M)
        assert ready and float(ready[1]) < 60, "an idle machine needs less than 10 s"

        cluster = json.loads((run_dir / "cluster.json").read_text())
        assert set(cluster) >= {
            "apiserver", "nodeagent", "nodeagentHealthz", "node", "runtime",
            "kubeconfig", "caFile", "clientCert", "clientKey", "pids",
        }  # fmt: skip
        assert cluster["runtime"].startswith("unix:///")
        demo = (run_dir / "manifests" / "demo.yaml").read_text()  # the pod is there to be seen
        named = re.search(r"^  image +(\S+)", output.read_text(), re.M)
        assert named and f"image: {named[1]}\n" in demo
        configuration = yaml.safe_load((run_dir / "nodeagent.conf").read_text())
        for_pods = f"{configuration['podAPIServer']}/readyz"
        trust = ssl.create_default_context(cafile=cluster["caFile"])
        with urllib.request.urlopen(for_pods, context=trust, timeout=20) as answer:
            assert answer.read() == b"ok"
        ids = eventually(
            lambda: demo_containers(LocalCluster(run_dir, process, cluster)),
            within_s=20,
            what="the demo pod's three containers run",
        )
        assert cgroups_of(ids)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
        process.wait(90)
    assert "stopping" in output.read_text()
    eventually(lambda: cgroups_of(ids) == [], within_s=20, what="no cgroup is left")
    nothing: dict[str, list[str]] = {"processes": [], "mounts": []}
    eventually(lambda: of(tmp_path) == nothing, within_s=20, what=f"nothing left: {of(tmp_path)}")
    assert not (run_dir / "cluster.json").exists()
    assert not [p for p in Path("/sys/class/net").iterdir() if _bridge_of(run_dir) == p.name]


def _bridge_of(run_dir: Path) -> str:
    description = run_dir / "runtime" / "instance.json"
    if not description.exists():
        return ""
    return str(json.loads(description.read_text()).get("bridge", ""))
