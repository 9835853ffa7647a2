"""Containers begun since the slow loops came by are measured soon, and nothing else with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.runtime.base import ContainerUsage, FilesystemUsage
from nodeagent.stats.runtime import RuntimeDiskLoop
from nodeagent.stats.sampler import NewDisks, Sampler
from nodeagent.stats.samples import PodSample, PodTarget, VolumeTarget
from nodeagent.stats.sources import Sources
from orch.component.process.loops import cancel, spawn
from tests.fakes import hosts
from tests.fakes.hosts import CONTAINER, CONTAINER_CGROUP, POD, Clock


class Runtime:
    """It knows the layers of the containers in `measured`; `asked` is what it was asked for."""

    def __init__(self) -> None:
        self.measured: set[str] = set()
        self.asked: list[str] = []

    async def image_filesystems(self) -> list[FilesystemUsage]:
        return []

    async def container_usage(self, container_id: str = "") -> list[ContainerUsage]:
        self.asked.append(container_id)
        return [_usage(each) for each in self.measured if container_id in ("", each)]


def _usage(container_id: str) -> ContainerUsage:
    return ContainerUsage(
        container_id,
        "web",
        {},
        cpu_usage_core_ns=None,
        cpu_timestamp_ns=77,
        memory_working_set_bytes=None,
        memory_usage_bytes=None,
        writable_layer_used_bytes=4096,
        writable_layer_inodes_used=2,
    )


class Node:
    """A host with pods that come when a test says so."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.targets: list[PodTarget] = []
        self.runtime = Runtime()
        self.disks = RuntimeDiskLoop(self.runtime)  # type: ignore[arg-type]
        root = hosts.copy("v2", directory)
        sources = hosts.sources(root, wall_ns=self.clock, runtime_disks=lambda: self.disks.latest)
        self.sampler = Sampler(targets=lambda: self.targets, sources=sources)
        self.new_disks = NewDisks(self.sampler, self.disks)

    def add(self, name: str) -> None:
        """A pod with a container that logged a line and a volume with a file."""
        home = self.directory / name
        (home / "logs" / "web").mkdir(parents=True)
        (home / "scratch").mkdir()
        for file in (home / "logs" / "web" / "0.log", home / "scratch" / "file"):
            file.write_bytes(b"x" * 5000)
        log_dir = str(home / "logs" / "web")
        container = replace(CONTAINER, id=name, log_dir=log_dir, cgroup=CONTAINER_CGROUP)
        volume = VolumeTarget("scratch", str(home / "scratch"), "emptyDir")
        pod = replace(POD, name=name, uid=name, log_dir=str(home / "logs"))
        self.targets.append(replace(pod, containers=(container,), volumes=(volume,)))

    async def interval(self) -> None:
        """The sampling loop's step, and what follows from it, ten seconds later."""
        self.clock.advance(10)
        await self.sampler.step()
        if self.new_disks.is_due():
            await self.new_disks.step()

    async def shown(self) -> list[PodSample]:
        return list((await self.sampler.sample()).pods)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    yield node
    await node.sampler.close()


async def test_a_new_pod_s_disks_and_open_files_are_measured_within_an_interval(
    node: Node,
) -> None:
    node.runtime.measured = {"first"}
    node.add("first")
    await node.interval()
    [pod] = await node.shown()
    [container], [volume] = pod.containers, pod.volumes
    assert container.logs and container.logs.used_bytes and container.logs.used_bytes >= 5000
    assert container.rootfs and container.rootfs.used_bytes == 4096
    assert container.use is not None
    assert pod.logs and pod.logs.inodes_used == 0
    assert volume.fs.used_bytes and volume.fs.inodes_used == 2


async def test_what_was_measured_before_is_not_measured_again(node: Node) -> None:
    node.runtime.measured = {"first", "second"}
    node.add("first")
    await node.interval()
    then_ns = node.clock.now_ns
    node.add("second")
    await node.interval()
    pods = await node.shown()
    containers = [pod.containers[0] for pod in pods]
    for found in (
        [one.logs and one.logs.time_ns for one in containers],
        [one.use and one.use.time_ns for one in containers],
        [pod.logs and pod.logs.time_ns for pod in pods],
    ):
        assert found == [then_ns, node.clock.now_ns]
    assert node.runtime.asked == ["first", "second"]


async def test_nothing_is_measured_while_nothing_new_begins(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not node.new_disks.is_due(), "before the first reading"
    node.runtime.measured = {"first"}
    node.add("first")
    await node.interval()
    await node.sampler.step()
    assert not node.new_disks.is_due()
    monkeypatch.setattr(node.sampler.background.directories, "refresh_new", None)
    await node.new_disks.step()
    assert node.runtime.asked == ["first"]


async def test_a_layer_that_the_runtime_has_not_measured_is_queried_three_times(node: Node) -> None:
    node.add("first")
    node.add("second")
    await node.interval()
    node.runtime.measured = {"second"}
    for _ in range(3):
        await node.interval()
    assert node.runtime.asked == ["first", "second", "first", "second", "first"]
    assert [pod.containers[0].rootfs is not None for pod in await node.shown()] == [False, True]
    node.add("third")
    await node.interval()
    assert node.runtime.asked[5:] == ["third"]


async def test_without_a_runtime_directories_are_still_walked(node: Node) -> None:
    node.new_disks = NewDisks(node.sampler, None)
    node.add("first")
    await node.interval()
    assert (await node.shown())[0].containers[0].logs is not None
    assert not node.new_disks.is_due()


@pytest.mark.looptime
async def test_a_look_that_finds_something_is_followed_by_a_measurement_at_once() -> None:
    loop = asyncio.get_running_loop()
    measured_s: list[float] = []

    class Looked(NewDisks):
        def is_due(self) -> bool:
            return loop.time() - began_s == 20

        async def step(self) -> None:
            measured_s.append(loop.time() - began_s)

    new_disks = Looked(Sampler(targets=tuple, sources=Sources()), None)
    began_s = loop.time()
    running = spawn(new_disks.run(), name="new disks")
    for _ in range(4):
        await asyncio.sleep(10)
        new_disks.look()
    await asyncio.sleep(5)
    await cancel(running)
    assert measured_s == [0, 20]
