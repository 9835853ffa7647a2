"""The closer look, on trees of both versions: services, refaults, devices, what is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.pressure.closer import MAX_SERVICES, CloserReader, disk_counters
from nodeagent.pressure.evidence import Stopped, Subject
from nodeagent.stats.cgroup.layout import detect_layout
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.host import machine
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import Sample
from tests.fakes import hosts

WEB = Subject("shop", "web-0", "web")
STAT = b"%d (the (odd) name) %s 1 1\n"


class Host:
    """A private copy of a host's trees, its latest sample, and who looks closer at it."""

    def __init__(self, layout: str, tmp_path: Path) -> None:
        self.root = hosts.copy(layout, tmp_path)
        self.cgroup = self.root / "cgroup"
        self.sources = hosts.sources(self.root)
        found = detect_layout(str(self.cgroup))
        readers = CgroupReaders(found, fd_budget=0)
        self.reader = CloserReader(self.sources, readers, pods_cgroup="/orchpods")
        self.memory = self.cgroup if layout == "v2" else self.cgroup / "memory"

    async def sample(self) -> Sample:
        sampler = Sampler(targets=lambda: [hosts.POD], sources=self.sources)
        taken = await sampler.sample()
        await sampler.close()
        return taken

    def process(self, pid: int, state: bytes, cgroup: str) -> None:
        directory = self.root / "proc" / str(pid)
        directory.mkdir(exist_ok=True)
        (directory / "stat").write_bytes(STAT % (pid, state))
        (directory / "cgroup").write_text(f"0::{cgroup}\n")


@pytest.fixture(params=hosts.LAYOUTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(request.param, tmp_path)


def add_service(host: Host, path: str) -> None:
    for root in {file.hierarchy for file in detect_layout(str(host.cgroup)).files} | {
        str(host.memory)
    }:
        directory = Path(f"{root}{path}")
        directory.mkdir(parents=True)
        for file in Path(f"{root}{hosts.POD_CGROUP}").glob("*.*"):
            if file.is_file():
                (directory / file.name).write_bytes(file.read_bytes())


async def test_services_are_measured_and_pods_are_not_taken_for_them(host: Host) -> None:
    add_service(host, "/system.slice/containerd.service")
    add_service(host, "/lonely")
    look = host.reader.read(await host.sample())
    assert look.services.keys() == {"/system.slice/containerd.service", "/lonely"}
    cpu = look.services["/lonely"].cpu
    assert cpu is not None
    assert cpu.usage_nsec > 0


async def test_services_are_bounded(tmp_path: Path) -> None:
    host = Host("v2", tmp_path)
    for number in range(MAX_SERVICES + 20):
        directory = host.cgroup / "system.slice" / f"s{number}.service"
        directory.mkdir(parents=True)
        (directory / "cpu.stat").write_text("usage_usec 1\nuser_usec 1\nsystem_usec 0\n")
    look = host.reader.read(await host.sample())
    assert len(look.services) == MAX_SERVICES


async def test_refaults_of_suspects_are_read(host: Host) -> None:
    container = Path(f"{host.memory}{hosts.CONTAINER_CGROUP}", "memory.stat")
    prefix = "" if host.memory == host.cgroup else "total_"
    lines = [line for line in container.read_text().splitlines() if "refault" not in line]
    lines += [f"{prefix}workingset_refault_anon 7", f"{prefix}workingset_refault_file 11", ""]
    container.write_text("\n".join(lines))
    (reclaim,) = host.reader.read(await host.sample()).reclaims.values()
    assert (reclaim.file_refaults, reclaim.anon_refaults) == (11, 7)


async def test_a_stopped_first_process_is_found(host: Host) -> None:
    procs = Path(f"{host.memory}{hosts.CONTAINER_CGROUP}", "cgroup.procs")
    procs.write_text("50\n51\n")
    host.process(50, b"T", hosts.CONTAINER_CGROUP)
    host.process(51, b"S", hosts.CONTAINER_CGROUP)
    sample = await host.sample()
    found = host.reader.stopped(sample, sample)
    assert Stopped(WEB, "the (odd) name", 50) in found


async def test_a_stopped_job_of_a_shell_is_not_accused(host: Host) -> None:
    procs = Path(f"{host.memory}{hosts.CONTAINER_CGROUP}", "cgroup.procs")
    procs.write_text("50\n51\n")
    host.process(50, b"S", hosts.CONTAINER_CGROUP)
    host.process(51, b"T", hosts.CONTAINER_CGROUP)
    sample = await host.sample()
    assert host.reader.stopped(sample, sample) == []


@pytest.mark.parametrize(
    ("layout", "file", "text"),
    [
        ("v2", "{}/cgroup.events", "populated 1\nfrozen 1\n"),
        ("v1", "/freezer{}/freezer.state", "FROZEN\n"),
        ("hybrid", "/freezer{}/freezer.state", "FROZEN\n"),
    ],
)
async def test_a_frozen_container_is_found(
    tmp_path: Path, layout: str, file: str, text: str
) -> None:
    host = Host(layout, tmp_path)
    path = Path(f"{host.cgroup}{file.format(hosts.CONTAINER_CGROUP)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    sample = await host.sample()
    assert host.reader.stopped(sample, sample) == [Stopped(WEB, "")]


def test_diskstats_of_any_form_are_read() -> None:
    line = b" 259 0 nvme0n1 10 0 80 30 5 0 40 20 0 50 50 0 0 0 0 0 0\n"
    found = disk_counters(line + b"7 0 loop0\nnonsense\n 8 x sda 1 1 1 1 1 1 1 1 1\n")
    assert found == {(259, 0): ("nvme0n1", 15, 50)}


async def test_thousands_of_stopped_processes_are_looked_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = range(50, 90)
    procs = Path(f"{host.memory}{hosts.CONTAINER_CGROUP}", "cgroup.procs")
    procs.write_text("\n".join(map(str, pids)))
    for pid in pids:
        host.process(pid, b"S" if pid == 50 else b"T", hosts.CONTAINER_CGROUP)
    sample = await host.sample()
    read: list[str] = []
    actual = machine.read_bytes

    def noting(directory: str, name: str) -> bytes:
        read.append(f"{directory}/{name}")
        return actual(directory, name)

    monkeypatch.setattr(machine, "read_bytes", noting)
    assert host.reader.stopped(sample, sample) == []
    assert sum(path.endswith("cgroup.procs") for path in read) == 1
    assert sum(path.endswith("/stat") for path in read) <= 2 * len(pids)
