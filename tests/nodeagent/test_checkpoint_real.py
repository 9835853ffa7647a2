"""Checkpoints with containerd, runc and CRIU: the archive, and that the container goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import stat
import tarfile
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nodeagent.archives.archive_index import ArchiveIndex
from nodeagent.archives.bounds import Bounds
from nodeagent.archives.pruner import Pruner
from nodeagent.archives.store import CheckpointStore
from nodeagent.checkpoint import CheckpointLimits, CheckpointService
from nodeagent.freezer import ContainerThawer
from nodeagent.runtime import base
from nodeagent.runtime.cri import CriRuntime
from orch.wire.errors import ApiError
from tests.conftest_runtime import RealRuntime, provisioned, remove_pod_cgroups
from tests.fakes.checkpoints import Pods
from tests.fakes.realpods import Agent, manifest

pytestmark = pytest.mark.seconds(40)

# Without other programs: CRIU cannot seize a shell that is just starting one (it waits in vfork).
COUNTING = "i=0; while true; do i=$((i+1)); echo $i > /count; done"
COUNTER = base.ContainerSpec("app", 0, "localhost/busybox:1", command=("sh", "-c", COUNTING))


@dataclass
class RealNode:
    """One pod with the container `app`, which counts in a file, in a real containerd."""

    runtime: CriRuntime
    pods: Pods
    root: Path

    def service(self, *, timeout_s: float = 60, patience_s: float = 12) -> CheckpointService:
        return CheckpointService(
            self.pods,
            self.runtime,
            CheckpointStore(str(self.root)),
            Pruner(ArchiveIndex(str(self.root)), Bounds(), self.pods),
            thawer=ContainerThawer(self.runtime, patience_s=patience_s),
            limits=CheckpointLimits(timeout_s),
        )

    async def counts_on(self) -> bool:
        """Whether commands run in the container within seconds, and its process goes on.

        When a deadline ends a checkpoint, the runtime may still pause the container for an instant.
        """
        seen: set[bytes] = set()
        for _ in range(500):
            with contextlib.suppress(base.RuntimeCallError):
                done = await self.runtime.exec_sync(
                    self.pods.running["app"], ("cat", "/count"), timeout_s=30
                )
                seen |= {done.stdout} - {b""} if done.exit_code == 0 else set()
            if len(seen) > 1:
                return True
            await asyncio.sleep(0.02)
        return False


@contextlib.asynccontextmanager
async def a_real_node(
    endpoint: str, root: Path, spec: base.ContainerSpec = COUNTER
) -> AsyncIterator[RealNode]:
    uid = str(uuid.uuid4())
    runtime, pods = CriRuntime(endpoint), Pods()
    sandbox = base.SandboxSpec(
        "web", "shop", uid, cgroup_parent=f"/orchpods/pod{uid}", host_network=True
    )
    sandbox_id = await runtime.run_sandbox(sandbox)
    try:
        pods.running["app"] = await runtime.create_container(sandbox_id, spec, sandbox)
        await runtime.start_container(pods.running["app"])
        yield RealNode(runtime, pods, root)
    finally:
        await runtime.stop_sandbox(sandbox_id)
        await runtime.remove_sandbox(sandbox_id)
        await runtime.close()
        remove_pod_cgroups(sandbox.cgroup_parent)


@pytest.fixture
async def real_node(real_runtime: RealRuntime, tmp_path: Path) -> AsyncIterator[RealNode]:
    async with a_real_node(real_runtime.endpoint, tmp_path) as node:
        yield node


@pytest.mark.real
async def test_criu_writes_an_archive_and_the_container_counts_on(real_node: RealNode) -> None:
    path = Path(await real_node.service().checkpoint("shop", "web", "app"))

    assert re.fullmatch(r"checkpoint-web_shop-app-[0-9T:-]{19}(Z|[+-][0-9:]{5})\.tar", path.name)
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        names = {name.removeprefix("./") for name in archive.getnames()}
    assert {"checkpoint/inventory.img", "config.dump", "spec.dump"} <= names
    assert any(re.fullmatch(r"checkpoint/pages-\d+\.img", name) for name in names)
    assert await real_node.counts_on()


AT_WORK = "exec 5>/part/file; cd /part; " + COUNTING
MOUNTED = [  # a sub-path of a directory, of a file, in memory, and within another mount
    [{"name": "disk", "mountPath": "/part", "subPath": "a/b"}],
    [
        {"name": "disk", "mountPath": "/part"},
        {"name": "disk", "mountPath": "/part/inner", "subPath": "c"},
        {"name": "facts", "mountPath": "/name", "subPath": "name"},
    ],
    [
        {"name": "memory", "mountPath": "/part", "subPath": "a"},
        {"name": "memory", "mountPath": "/whole", "mountPropagation": "HostToContainer"},
    ],
]
FACTS = [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]
VOLUMES = [
    {"name": "disk", "emptyDir": {}},
    {"name": "memory", "emptyDir": {"medium": "Memory"}},
    {"name": "facts", "downwardAPI": {"items": FACTS}},
]


@pytest.mark.real
@pytest.mark.parametrize("mounted", MOUNTED)
async def test_a_container_at_work_in_a_sub_path_is_checkpointed(
    real_runtime: RealRuntime, tmp_path: Path, mounted: list[dict[str, str]]
) -> None:
    agent = Agent(tmp_path, real_runtime.endpoint)
    agent.start()
    try:
        command = ["sh", "-c", AT_WORK]
        container = {"name": "app", "command": command, "volumeMounts": mounted}
        agent.put(manifest("web", container, volumes=VOLUMES))
        await agent.runs("web")
        node = RealNode(agent.runtime, Pods(), tmp_path / "agent")
        node.pods.running["app"] = agent.ids("web")["app"].partition("://")[2]
        assert await node.counts_on()
        for _ in range(2):
            assert Path(await node.service().checkpoint("shop", "web", "app")).exists()
            assert await node.counts_on()
    finally:
        await agent.close()


GHOST = "dd if=/dev/zero of=/big bs=1M count=3; exec 3</big; rm /big; " + COUNTING


@pytest.mark.real
async def test_why_criu_gives_up_is_in_the_answer(
    real_runtime: RealRuntime, tmp_path: Path
) -> None:
    holding = replace(COUNTER, command=("sh", "-c", GHOST))  # a deleted file, too large for CRIU
    async with a_real_node(real_runtime.endpoint, tmp_path, holding) as node:
        assert await node.counts_on()
        with pytest.raises(ApiError) as caught:
            await node.service().checkpoint("shop", "web", "app")
        assert re.search(r"criu.dump\.log.*; CRIU: .*ghost file", caught.value.message)
        assert await node.counts_on()


@pytest.mark.real
async def test_a_container_at_its_cpu_limit_is_checkpointed_every_time(
    real_node: RealNode,
) -> None:
    limit = base.LinuxResources(cpu_quota_usec=5_000, cpu_period_usec=100_000)
    await real_node.runtime.update_resources(real_node.pods.running["app"], limit)

    paths = [await real_node.service().checkpoint("shop", "web", "app") for _ in range(6)]

    assert len(set(paths)) == 6


@pytest.mark.real
@pytest.mark.parametrize("timeout_s", [0.03, 0.06, 0.09, 0.12])
async def test_a_container_counts_on_when_its_checkpoint_takes_too_long(
    real_node: RealNode, timeout_s: float
) -> None:
    try:
        await real_node.service(timeout_s=timeout_s).checkpoint("shop", "web", "app")
    except ApiError as error:  # unless it was fast enough
        # The runtime knows the deadline and may report it first, as an error of its own.
        assert re.search("deadline ?exceeded", error.message, re.IGNORECASE)
        assert os.listdir(real_node.root / "checkpoints") == []
    assert await real_node.counts_on()
    path = await real_node.service().checkpoint("shop", "web", "app")
    assert Path(path).exists()
    assert await real_node.counts_on()


@pytest.mark.real
@pytest.mark.parametrize("delay_s", [0.03, 0.08])
async def test_a_container_counts_on_when_the_runtime_is_killed_during_its_checkpoint(
    tmp_path: Path, delay_s: float
) -> None:
    root = tmp_path / "agent"
    with provisioned(tmp_path / "rt") as real:
        pid = json.loads(real.control("status"))["pids"]["containerd"]
        async with a_real_node(real.endpoint, root) as node:
            detail = await node.runtime.container_detail(node.pods.running["app"])
            count = Path(f"/proc/{detail.pid}/root/count")
            under_way = asyncio.ensure_future(node.service().checkpoint("shop", "web", "app"))
            await asyncio.sleep(delay_s)
            os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(real.control, "start")
            try:
                await under_way
            except ApiError as error:
                assert "code = Unavailable" in error.message  # otherwise it was fast enough
                assert os.listdir(root / "checkpoints") == []
            await asyncio.to_thread(wait_for_change, count)


def wait_for_change(path: Path) -> None:
    seen, deadline = set[str](), time.monotonic() + 30
    while len(seen - {""}) < 2:  # empty while it is written
        assert time.monotonic() < deadline, f"{path} stays {seen}"
        seen.add(path.read_text())
        time.sleep(0.02)
