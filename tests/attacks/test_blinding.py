"""One tenant's labels and annotations, with which an agent can no longer read its runtime."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.runtime.base import ContainerSpec, RuntimeCallError, SandboxSpec
from nodeagent.runtime.cri import CriRuntime
from tests.attacks.tenants import Tenant, pod
from tests.conftest_runtime import RealRuntime, remove_pod_cgroups
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tools.runtime_lib.images import BUSYBOX

pytestmark = [pytest.mark.real, pytest.mark.seconds(20)]

MIB = 2**20


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, real_runtime: RealRuntime
) -> Iterator[LocalCluster]:
    run_dir = tmp_path_factory.mktemp("blinding") / "run"
    (run_dir / "manifests").mkdir(parents=True)
    with local_cluster(run_dir, runtime=real_runtime.endpoint) as running:
        yield running


@pytest.fixture
def tenant(cluster: LocalCluster) -> Tenant:
    return Tenant(cluster)


def blinding(name: str) -> dict[str, Any]:
    """A pod with 2.6 MB of labels."""
    labels = {f"k{number:05}": "x" * 58 for number in range(40_000)}
    return pod(name, metadata={"labels": labels})


def sizes(endpoint: str, node: str) -> list[int]:
    """What the runtime holds of each of the node's pods in labels and annotations, in bytes."""

    async def read() -> list[int]:
        runtime = CriRuntime(endpoint)
        try:
            rows = await runtime.list_sandboxes()
        finally:
            await runtime.close()
        own = [row for row in rows if row.labels.get("orch.io/node.name") == node]
        return [len(json.dumps([dict(row.labels), dict(row.annotations)])) for row in own]

    return asyncio.run(read())


def test_labels_of_one_tenant_do_not_blind_a_node(
    cluster: LocalCluster, tenant: Tenant, real_runtime: RealRuntime
) -> None:
    names = [f"blinding-{number}" for number in range(8)]
    taken = [name for name in names if not tenant.post(blinding(name))]
    static = [f"static-{number}" for number in range(8 - len(taken))]
    for name in static:
        (cluster.run_dir / "manifests" / f"{name}.json").write_text(json.dumps(blinding(name)))
    wanted = {*taken, *(f"{name}-{cluster.node}" for name in static)}

    def running() -> bool:
        pods = cluster.get(cluster.proxy("/runningpods/"))
        return wanted <= {item["metadata"]["name"] for item in pods["items"]}

    eventually(running, within_s=120, what=f"the node lists {wanted}")
    held = sizes(real_runtime.endpoint, cluster.node)
    assert max(held) < 32 * 1024, f"the runtime holds {held} bytes of labels and annotations"
    assert cluster.ready_condition()["status"] == "True"
    for name in static:
        (cluster.run_dir / "manifests" / f"{name}.json").unlink()
    tenant.delete(*names)


async def old_pods(runtime: CriRuntime, node: str, directory: Path, *, count: int) -> list[str]:
    """Pods as an agent made them that passed on whatever it was given; their cgroups' parents."""
    parents = []
    for number in range(count):
        uid = str(uuid.uuid4())
        own = {
            "orch.io/node.name": node,
            "orch.io/pod.uid": uid,
            "orch.io/pod.name": f"old-{number}",
        }
        parents.append(f"/orchpods/pod{uid}")
        spec = SandboxSpec(
            name=f"old-{number}", namespace="default", uid=uid, cgroup_parent=parents[-1],
            log_directory=str(directory), labels=own,
            annotations={"note": "x" * (6 * MIB), "orch.io/pod.terminationGracePeriod": "0"},
        )  # fmt: skip
        sandbox_id = await runtime.run_sandbox(spec)
        sleeper = ContainerSpec("c", 0, BUSYBOX, command=("sleep", "1000"), labels=own)
        await runtime.start_container(await runtime.create_container(sandbox_id, sleeper, spec))
    return parents


def test_pods_of_an_older_agent_do_not_blind_it_either(
    cluster: LocalCluster, tenant: Tenant, real_runtime: RealRuntime, tmp_path: Path
) -> None:
    async def make() -> list[str]:
        runtime = CriRuntime(real_runtime.endpoint)
        try:
            return await old_pods(runtime, cluster.node, tmp_path, count=3)
        finally:
            await runtime.close()

    agent = cluster.pid("nodeagent")
    os.kill(agent, signal.SIGSTOP)  # else it would remove them one by one
    try:
        parents = asyncio.run(make())
    finally:
        os.kill(agent, signal.SIGCONT)
    assert not tenant.post(pod("after", "echo fine"))
    assert tenant.ended("after") == "fine\n"
    log = cluster.log("nodeagent")
    assert "its sandboxes are listed one by one" in log, "the list was not too large"
    assert "look for pods with large labels" in log
    held = asyncio.run(held_until_gone(real_runtime.endpoint, within_s=120))
    assert held == [], f"the agent does not see, and so does not remove, {held}"
    assert cluster.ready_condition()["status"] == "True"
    tenant.delete("after")
    for parent in parents:
        remove_pod_cgroups(parent)


async def held_until_gone(endpoint: str, *, within_s: float) -> list[str]:
    """The old pods that the runtime still has containers of after this time."""
    runtime, loop, held = CriRuntime(endpoint), asyncio.get_running_loop(), ["not listed"]
    until_s = loop.time() + within_s
    try:
        while held and loop.time() < until_s:
            await asyncio.sleep(1)
            with contextlib.suppress(RuntimeCallError):  # it is busy
                rows = await runtime.list_containers()
                names = (row.labels.get("orch.io/pod.name", "") for row in rows)
                held = [name for name in names if name.startswith("old-")]
    finally:
        await runtime.close()
    return held
