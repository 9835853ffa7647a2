"""Pods that come and go on a real containerd leave no process, cgroup, mount, directory or
descriptor behind; agents that end in the middle of it are followed by ones that finish it.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.volumes import kernel_mounts
from nodeagent.runtime.base import ContainerSpec, SandboxSpec
from nodeagent.runtime.cri import CriRuntime
from tests.conftest_runtime import RealRuntime
from tests.fakes.realpods import Agent, manifest, ready
from tests.fakes.retained import retained

pytestmark = [pytest.mark.real, pytest.mark.seconds(40)]

AT_ONCE = 10
SHORT_LIVED = 30
LATER_S = 0.02
_FEW = 3  # descriptors that may be new once: a connection made again, a timer
MOUNTS = [
    {"name": "memory", "mountPath": "/memory"},
    {"name": "disk", "mountPath": "/part", "subPath": "a/b"},
]
VOLUMES = [
    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    {"name": "disk", "emptyDir": {}},
]
LIMITS = {"limits": {"cpu": "100m", "memory": "16Mi"}}


def churned(name: str) -> dict[str, Any]:
    container = {"name": "app", "volumeMounts": MOUNTS, "resources": LIMITS}
    return manifest(name, container, volumes=VOLUMES)


def processes_of(runtime: RealRuntime) -> list[str]:
    """What runs for the pods of a private containerd: shims, by their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "containerd-shim" in line and str(runtime.directory) in line:
            found.append(f"{entry.name} {line}")
    return found


def descriptors() -> Counter[str]:
    """What this process holds open, by kind: numbers of sockets and pipes differ."""
    kinds: Counter[str] = Counter()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        kinds[target.partition(":[")[0]] += 1
    return kinds


def mounts(runtime: RealRuntime) -> int:
    """How many a private containerd has made; other tests' runtimes mount, too."""
    return len(kernel_mounts.mounts_below(str(runtime.directory)))


async def settle(done: Callable[[], bool], *, within_s: float = 90) -> None:
    async with asyncio.timeout(within_s):
        while not done():
            await asyncio.sleep(0.2)


async def one_round(agent: Agent, number: int) -> set[str]:
    """Uids and ids of what ran."""
    names = [f"r{number}-{n}" for n in range(AT_ONCE)]
    paths = [agent.put(churned(name)) for name in names]
    for name in names:
        await agent.until(lambda name=name: agent.status(name).phase == "Running", within_s=120)
    views = agent.registry.views().values()
    used = {*(view.uid for view in views), *(c.container.id for v in views for c in v.containers)}
    for path in paths:
        path.unlink()
    await agent.gone(within_s=120)
    return used


async def churn(tmp_path: Path, runtime: RealRuntime, rounds: int) -> None:
    before = processes_of(runtime)
    agent = Agent(tmp_path, runtime.endpoint)
    agent.start()
    used = await one_round(agent, 0)
    assert len(used) >= 2 * AT_ONCE
    open_before, mounts_before = descriptors(), mounts(runtime)
    for number in range(1, rounds):
        used |= await one_round(agent, number)
    await settle(lambda: (descriptors() - open_before).total() <= _FEW)
    await settle(lambda: len(processes_of(runtime)) <= len(before))
    await settle(lambda: mounts(runtime) <= mounts_before)
    await settle(lambda: not retained(agent.workers, used))
    await agent.close()
    assert agent.cgroups() == []


async def test_ten_pods_leave_nothing_behind(tmp_path: Path, real_runtime: RealRuntime) -> None:
    await churn(tmp_path, real_runtime, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_thousand_pods_leave_nothing_behind(
    tmp_path: Path, real_runtime: RealRuntime
) -> None:
    await churn(tmp_path, real_runtime, 1000 // AT_ONCE)


class HastyRuntime(CriRuntime):
    """As a pod's container starts, its manifest goes, each a little later than the last."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.manifests: dict[str, Path] = {}  # by name of the pod
        self._pods: dict[str, str] = {}  # by id of the container

    async def create_container(
        self, sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec
    ) -> str:
        container_id = await super().create_container(sandbox_id, spec, sandbox)
        self._pods[container_id] = sandbox.name
        return container_id

    async def start_container(self, container_id: str) -> None:
        delay_s = len(self.manifests) % AT_ONCE * LATER_S
        path = self.manifests.pop(self._pods[container_id])
        asyncio.get_running_loop().call_later(delay_s, path.unlink)
        await super().start_container(container_id)


@pytest.mark.parametrize(
    "pods", [SHORT_LIVED, pytest.param(300, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
async def test_pods_deleted_while_they_start_leave_no_process(
    tmp_path: Path, real_runtime: RealRuntime, pods: int
) -> None:
    before = processes_of(real_runtime)
    runtime = HastyRuntime(real_runtime.endpoint)
    agent = Agent(tmp_path, real_runtime.endpoint, runtime)
    agent.start()
    for number in range(pods):
        name = f"short{number}"
        runtime.manifests[f"{name}-{agent.node}"] = agent.put(manifest(name, {"name": "app"}))
        if number % AT_ONCE == AT_ONCE - 1:
            await agent.until(lambda: not [*agent.manifests.iterdir()])
            await agent.gone(within_s=120)
    await settle(lambda: len(processes_of(real_runtime)) <= len(before), within_s=10)
    await agent.close()


@pytest.mark.parametrize(
    "ends", [1, pytest.param(12, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
async def test_pods_that_are_started_once_outlive_agents_that_end_meanwhile(
    tmp_path: Path, real_runtime: RealRuntime, ends: int
) -> None:
    """Each end comes a little later in the starts of ten pods."""
    before = processes_of(real_runtime)
    names = [f"once{number}" for number in range(AT_ONCE)]
    for end in range(ends):
        agent = Agent(tmp_path, real_runtime.endpoint)
        paths = [
            agent.put(manifest(name, {"name": "app"}, restartPolicy="Never")) for name in names
        ]
        agent.start()
        await agent.until(lambda agent=agent, end=end: _created(agent) > end % AT_ONCE)
        await agent.stop()
        await agent.runtime.close()
        heir = Agent(tmp_path, real_runtime.endpoint)
        heir.start()
        for name in names:
            await heir.runs(name)
            assert ready(heir.status(name)) and heir.restarts(name) == {"app": 0}
        for path in paths:
            path.unlink()
        await heir.gone(within_s=120)
        await heir.close()
    await settle(lambda: len(processes_of(real_runtime)) <= len(before), within_s=30)


def _created(agent: Agent) -> int:
    """How many containers the agent has made."""
    return sum(len(view.containers) for view in agent.registry.views().values())


class DyingRuntime(CriRuntime):
    """One call hangs, before it was made or after its answer came; then the agent is ended."""

    def __init__(self, endpoint: str, deadly: str, *, done: bool) -> None:
        super().__init__(endpoint)
        self.died = asyncio.Event()
        original = getattr(self, deadly)

        async def hang(*arguments: Any, **named: Any) -> Any:
            result = await original(*arguments, **named) if done else None
            if not self.died.is_set():
                self.died.set()
                await asyncio.Event().wait()
            return result or await original(*arguments, **named)

        setattr(self, deadly, hang)


@pytest.mark.parametrize(
    ("deadly", "done"),
    [("run_sandbox", True), ("create_container", True), ("start_container", False)],
)
async def test_a_start_that_an_agents_end_broke_off_is_finished_by_the_next(
    tmp_path: Path, real_runtime: RealRuntime, deadly: str, done: bool
) -> None:
    dying = DyingRuntime(real_runtime.endpoint, deadly, done=done)
    agent = Agent(tmp_path, real_runtime.endpoint, dying)
    agent.put(churned("web"))
    agent.start()
    await asyncio.wait_for(dying.died.wait(), 60)
    await agent.stop()
    await dying.close()
    heir = Agent(tmp_path, real_runtime.endpoint)
    heir.start()
    await heir.runs("web")
    assert ready(heir.status("web"))
    rows = await heir.runtime.list_containers()
    mine = [row for row in rows if row.labels.get("orch.io/node.name") == heir.node]
    assert len(mine) == 1, "nothing was made twice"
    (tmp_path / "manifests" / "web.json").unlink()
    await heir.gone()
    await heir.close()


@pytest.mark.parametrize("deadly", ["stop_container", "remove_sandbox"])
async def test_a_removal_that_an_agents_end_broke_off_is_finished_by_the_next(
    tmp_path: Path, real_runtime: RealRuntime, deadly: str
) -> None:
    dying = DyingRuntime(real_runtime.endpoint, deadly, done=True)
    agent = Agent(tmp_path, real_runtime.endpoint, dying)
    path = agent.put(churned("web"))
    agent.start()
    await agent.runs("web")
    path.unlink()
    await asyncio.wait_for(dying.died.wait(), 60)
    await agent.stop()
    await dying.close()
    heir = Agent(tmp_path, real_runtime.endpoint)
    heir.start()
    await heir.gone()
    await heir.close()
