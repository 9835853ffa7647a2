"""Pods resized while they run, on a real containerd: by kubectl, and at random, many times."""

from __future__ import annotations

import glob
import json
import os
import random
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import LocalCluster, eventually
from tests.e2e.test_pods import apply, busybox

pytestmark = pytest.mark.seconds(10)

CONTAINERS = ("a", "b")
MI = 1 << 20
Sizes = dict[str, tuple[int, int, int]]  # container → request and limit of cpu in m, memory in Mi


def resources(request: int, limit: int, memory: int) -> dict[str, Any]:
    return {
        "requests": {"cpu": f"{request}m", "memory": "16Mi"},
        "limits": {"cpu": f"{limit}m", "memory": f"{memory}Mi"},
    }


def run_pod(cluster: LocalCluster, tmp_path: Path, name: str, sizes: Sizes) -> dict[str, Any]:
    listed = [
        {**busybox("sleep 100000"), "name": each, "resources": resources(*size)}
        for each, size in sizes.items()
    ]
    spec = {"nodeName": cluster.node, "terminationGracePeriodSeconds": 0, "containers": listed}
    apply(cluster, tmp_path, {"metadata": {"name": name}, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=40s")
    return cluster.pod(name)


def read(uid: str, below: str, file: str, unified: str) -> str:
    """A file of a pod's cgroup, or of one below it: that of v1, or of v2."""
    for name in (file, unified):
        for pattern in ("*/orchpods/{}/pod{}/{}/{}", "orchpods/{}/pod{}/{}/{}"):
            found = glob.glob("/sys/fs/cgroup/" + pattern.format("burstable", uid, below, name))
            if found:
                return Path(found[0]).read_text().strip()
    return ""


def in_force(uid: str, ids: dict[str, str]) -> Sizes:
    """What the kernel does: of each container, and under "" of the pod."""
    found = {}
    for name, below in {**ids, "": "."}.items():
        shares = int(read(uid, below, "cpu.shares", "cpu.weight"))
        quota = read(uid, below, "cpu.cfs_quota_us", "cpu.max").split()[0]
        memory = read(uid, below, "memory.limit_in_bytes", "memory.max")
        found[name] = (shares, int(quota) // 100, int(memory) // MI)
    return found


def expected(sizes: Sizes) -> Sizes:
    """In the kernel's units; this machine's cpu controller is of v1, or weighs as v2 does."""
    v2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()

    def shares(milli: int) -> int:
        found = max(2, milli * 1024 // 1000)
        return 1 + (found - 2) * 9999 // 262142 if v2 else found

    whole = tuple(sum(size[part] for size in sizes.values()) for part in range(3))
    return {
        name: (shares(request), limit, memory)
        for name, (request, limit, memory) in {**sizes, "": whole}.items()
    }


@pytest.fixture
def proxy(cluster: LocalCluster) -> Iterator[str]:
    """The address of a `kubectl proxy`, for requests that need no process each."""
    kubeconfig = f"--kubeconfig={cluster.info['kubeconfig']}"
    process = subprocess.Popen(
        ["kubectl", kubeconfig, "proxy", "--port=0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate()


def resize(address: str, name: str, sizes: Sizes) -> None:
    listed = [{"name": each, "resources": resources(*size)} for each, size in sizes.items()]
    request = urllib.request.Request(
        f"http://{address}/api/v1/namespaces/default/pods/{name}/resize",
        json.dumps({"spec": {"containers": listed}}).encode(),
        {"Content-Type": "application/strategic-merge-patch+json"},
        method="PATCH",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def at_random(chance: random.Random) -> Sizes:
    sizes = {}
    for name in CONTAINERS:
        request = chance.randint(10, 200)
        sizes[name] = (request, chance.randint(request, 800), chance.randint(24, 96))
    return sizes


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(40, marks=pytest.mark.alone),
        pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.slow]),
    ],
)
def test_random_resizes_restart_nothing_and_reach_the_kernel_within_a_second(
    cluster: LocalCluster, tmp_path: Path, proxy: str, rounds: int
) -> None:
    name = f"random-{rounds}"
    first = run_pod(cluster, tmp_path, name, dict.fromkeys(CONTAINERS, (100, 200, 32)))
    uid = first["metadata"]["uid"]
    ids = {n: i.removeprefix("containerd://") for n, i in cluster.container_ids(name).items()}
    assert in_force(uid, ids) == expected(dict.fromkeys(CONTAINERS, (100, 200, 32)))
    chance, took_s = random.Random(rounds), []
    for _ in range(rounds):
        sizes = at_random(chance)
        resize(proxy, name, sizes)
        began_s, wanted = time.monotonic(), expected(sizes)
        eventually(
            lambda wanted=wanted: in_force(uid, ids) == wanted,
            within_s=15,
            what=f"{wanted} is in force",
            poll_s=0.01,
        )
        took_s.append(time.monotonic() - began_s)
    shown = f"{rounds} resizes: median {statistics.median(took_s):.3f} s, max {max(took_s):.3f} s"
    print(shown)
    assert statistics.median(took_s) < 0.5, shown
    late = sum(1 for each in took_s if each > 1)
    assert late <= rounds // 100, shown  # the machine may be busy with other things

    def settled() -> bool:
        status = cluster.pod(name)["status"]
        kinds = {c["type"] for c in status["conditions"]}
        return status["observedGeneration"] == rounds + 1 and "PodResizeInProgress" not in kinds

    eventually(settled, within_s=20, what="the status tells of the last one")
    pod = cluster.pod(name)
    for status in pod["status"]["containerStatuses"]:
        size = sizes[status["name"]]
        assert status["restartCount"] == 0
        assert status["containerID"].endswith(ids[status["name"]])
        assert status["resources"] == resources(*size)
        assert status["allocatedResources"] == resources(*size)["requests"]
    cluster.kubectl("delete", "pod", name, "--timeout=30s")


def test_kubectl_resizes_a_pod_by_patch_and_by_edit(cluster: LocalCluster, tmp_path: Path) -> None:
    pod = run_pod(cluster, tmp_path, "edited", {"a": (100, 200, 32), "b": (100, 200, 32)})
    uid = pod["metadata"]["uid"]
    ids = {n: i.removeprefix("containerd://") for n, i in cluster.container_ids("edited").items()}
    patch = {"spec": {"containers": [{"name": "a", "resources": resources(300, 400, 48)}]}}
    cluster.kubectl("patch", "pod", "edited", "--subresource=resize", "-p", json.dumps(patch))
    wanted = expected({"a": (300, 400, 48), "b": (100, 200, 32)})
    eventually(lambda: in_force(uid, ids) == wanted, within_s=10, what="the patch is in force")
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nexec sed -i 's/cpu: 400m/cpu: 500m/' \"$1\"\n")
    editor.chmod(0o755)
    os.environ["KUBE_EDITOR"] = str(editor)
    try:
        cluster.kubectl("edit", "pod", "edited", "--subresource=resize")
    finally:
        del os.environ["KUBE_EDITOR"]
    wanted = expected({"a": (300, 500, 48), "b": (100, 200, 32)})
    eventually(lambda: in_force(uid, ids) == wanted, within_s=10, what="the edit is in force")
    whole = {"limits": {"memory": "1000Ti"}, "requests": {"memory": "999Ti"}}
    too_large = {"spec": {"containers": [{"name": "a", "resources": whole}]}}
    refused = cluster.kubectl(
        "patch", "pod", "edited", "--subresource=resize", "-p",
        json.dumps(too_large), check=False,
    )  # fmt: skip
    assert "node didn't have enough allocatable resources: memory" in refused.stderr
    reasons = [
        event["reason"]
        for event in cluster.get("/api/v1/namespaces/default/events")["items"]
        if event["involvedObject"]["name"] == "edited"
    ]
    assert {"ResizeStarted", "ResizeCompleted"} <= {*reasons}
    assert "Killing" not in reasons
    cluster.kubectl("delete", "pod", "edited", "--timeout=30s")


def test_a_limit_below_what_a_container_uses_is_refused_until_it_is_raised(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    pod = run_pod(cluster, tmp_path, "full", {"a": (100, 200, 64)})
    uid = pod["metadata"]["uid"]

    def patched(memory: str) -> None:
        sized = {"requests": {"memory": memory}, "limits": {"memory": memory}}
        patch = {"spec": {"containers": [{"name": "a", "resources": sized}]}}
        cluster.kubectl("patch", "pod", "full", "--subresource=resize", "-p", json.dumps(patch))

    patched("10Ki")

    def error() -> str:
        shown = {c["type"]: c for c in cluster.pod("full")["status"]["conditions"]}
        found = shown.get("PodResizeInProgress", {})
        return str(found.get("message", "")) if found.get("reason") == "Error" else ""

    assert "memory limit (10240) below current usage" in str(
        eventually(error, within_s=10, what="the limit is refused")
    )
    assert read(uid, ".", "memory.limit_in_bytes", "memory.max") == str(64 * MI)
    patched("96Mi")
    ids = {n: i.removeprefix("containerd://") for n, i in cluster.container_ids("full").items()}
    eventually(lambda: in_force(uid, ids)["a"][2] == 96, within_s=10, what="it is raised")
    assert cluster.pod("full")["status"]["containerStatuses"][0]["restartCount"] == 0
    cluster.kubectl("delete", "pod", "full", "--timeout=30s")
