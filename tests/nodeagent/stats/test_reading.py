"""One pod, from the kernel files of a captured host and from directories of the test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.stats.reading import HostReader
from nodeagent.stats.runtime import RuntimeDisks
from nodeagent.stats.samples import FsSample, PodSample, PodTarget, VolumeTarget, directories_of
from nodeagent.stats.sources import Background
from tests.fakes import hosts
from tests.fakes.hosts import CONTAINER, CONTAINER_CGROUP, POD, SANDBOX_CGROUP


class Host:
    """A private copy of a cgroup v2 host, and what is measured on it."""

    def __init__(self, root: Path) -> None:
        self.root = hosts.copy("v2", root)
        self.disks = RuntimeDisks()
        sources = hosts.sources(self.root, runtime_disks=lambda: self.disks)
        self.background = Background(sources)
        self.reader = HostReader(sources, self.background)

    def read(self, *targets: PodTarget) -> tuple[PodSample, ...]:
        return self.reader.read(targets).pods

    def namespace(self, pid: int, same_as: int | None = None) -> None:
        """Give a process a network namespace, its own or that of another."""
        own = self.root / "proc" / str(pid) / "ns" / "net"
        own.parent.mkdir(parents=True, exist_ok=True)
        if same_as is None:
            own.touch()
        else:
            own.hardlink_to(self.root / "proc" / str(same_as) / "ns" / "net")


@pytest.fixture
def host(tmp_path: Path):  # type: ignore[no-untyped-def]
    host = Host(tmp_path)
    yield host
    host.reader.close()


def test_pod_sandbox_and_containers_are_read_from_their_own_cgroups(host: Host) -> None:
    usages_usec = {POD.cgroup_parent: 7, CONTAINER_CGROUP: 5, SANDBOX_CGROUP: 2}
    for cgroup, usage_usec in usages_usec.items():
        directory = host.root / "cgroup" / cgroup[1:]
        directory.mkdir(exist_ok=True)
        (directory / "cpu.stat").write_text(f"usage_usec {usage_usec}\n")
    [sample] = host.read(POD)
    [container] = sample.containers
    read = [one.cpu.usage_nsec for one in (sample.cgroup, container.cgroup, sample.sandbox)
            if one and one.cpu]  # fmt: skip
    assert read == [7000, 5000, 2000]
    assert sample.path.endswith(POD.cgroup_parent)
    assert container.path.endswith(CONTAINER_CGROUP)
    assert sample.sandbox_path.endswith(SANDBOX_CGROUP)


def test_cgroups_that_are_gone_are_none(host: Host) -> None:
    gone = replace(POD, cgroup_parent="/orchpods/podgone", sandbox_pid=404)
    [sample] = host.read(gone)
    assert (sample.cgroup, sample.sandbox, sample.network) == (None, None, None)
    assert [container.cgroup for container in sample.containers] == [None]


def test_the_network_is_that_of_the_sandbox(host: Host) -> None:
    host.namespace(1)
    host.namespace(4242)
    [sample] = host.read(POD)
    assert sample.network and sample.network.interfaces


@pytest.mark.parametrize("why", ["the pod says so", "the namespace is the machine's", "no sandbox"])
def test_a_pod_on_the_machines_network_has_no_counters_of_its_own(host: Host, why: str) -> None:
    target = POD
    host.namespace(1)
    if why == "the pod says so":
        target = replace(POD, host_network=True)
    elif why == "no sandbox":
        target = replace(POD, sandbox_pid=None)
    else:
        host.namespace(4242, same_as=1)
    [sample] = host.read(target)
    assert sample.network is None


def test_the_network_namespace_is_checked_once_per_sandbox(host: Host) -> None:
    host.namespace(1)
    host.namespace(4242, same_as=1)
    assert host.read(POD)[0].network is None
    (host.root / "proc/4242/ns/net").unlink()
    host.namespace(4242)
    assert host.read(POD)[0].network is None  # as was found before
    host.read()  # the pod is gone, and what was known of it
    assert host.read(POD)[0].network is not None


def test_volumes_show_their_file_system_and_ephemeral_ones_what_they_use(
    host: Host, tmp_path: Path
) -> None:
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    for directory in (own, foreign):
        directory.mkdir()
        (directory / "file").write_bytes(b"x" * 100_000)
    volumes = (
        VolumeTarget("scratch", str(own), "emptyDir"),
        VolumeTarget("host", str(foreign), "hostPath"),
        VolumeTarget("gone", str(tmp_path / "gone"), "emptyDir"),
    )
    target = replace(POD, volumes=volumes)
    [before] = host.read(target)
    assert [volume.target.name for volume in before.volumes] == ["scratch", "host"]
    assert [volume.fs.used_bytes for volume in before.volumes] == [None, None]  # not walked yet
    assert all(volume.fs.capacity_bytes for volume in before.volumes)

    host.background.directories.refresh(directories_of([target]))
    scratch, foreign_volume = host.read(target)[0].volumes
    assert scratch.fs.used_bytes and scratch.fs.used_bytes >= 100_000
    assert scratch.fs.inodes_used == 2
    assert foreign_volume.fs.used_bytes is None  # a hostPath is the host's


def test_logs_and_layers_are_part_of_the_file_systems_they_lie_on(
    host: Host, tmp_path: Path
) -> None:
    logs = tmp_path / "logs" / "web"
    logs.mkdir(parents=True)
    (logs / "0.log").write_bytes(b"x" * 5000)
    container = replace(CONTAINER, log_dir=str(logs))
    target = replace(POD, containers=(container,), log_dir=str(logs.parent))
    host.disks = RuntimeDisks(
        writable_layers={CONTAINER.id: FsSample(7, used_bytes=4096, inodes_used=3)}
    )
    host.background.directories.refresh(directories_of([target]))
    [sample] = host.read(target)
    [shown] = sample.containers
    assert shown.logs and shown.logs.used_bytes and shown.logs.used_bytes >= 5000
    assert shown.logs.capacity_bytes
    assert shown.rootfs and (shown.rootfs.used_bytes, shown.rootfs.inodes_used) == (4096, 3)
    assert sample.logs and sample.logs.used_bytes is not None
    assert sample.logs.used_bytes < shown.logs.used_bytes  # without its containers' own
