"""Readers over captured trees of the three layouts, over failing reads, and over this machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nodeagent.psi import Pressure
from nodeagent.stats.cgroup import layout
from nodeagent.stats.cgroup import readers as cgroup_readers
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.samples import CgroupSample, CpuSample, DeviceIo, ProcessSample
from tests.fakes import hosts
from tests.fakes.hosts import CONTAINER_CGROUP, LAYOUTS, POD_CGROUP, Clock


class Pread:
    """os.pread that fails where it is told to: file name → errno."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}
        self.calls = 0
        self.names: list[str] = []

    def __call__(self, fd: int, size: int, offset: int) -> bytes:
        self.calls += 1
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name.removesuffix(" (deleted)")
        self.names.append(name)
        if name in self.failing:
            raise OSError(self.failing[name], os.strerror(self.failing[name]))
        return os.pread(fd, size, offset)


def readers_of(root: Path, **more: object) -> CgroupReaders:
    host = layout.detect_layout(str(root / "cgroup"))
    return CgroupReaders(host, wall_ns=Clock(), **more)  # type: ignore[arg-type]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def read_container(name: str) -> CgroupSample:
    readers = readers_of(hosts.TREES / name)
    sample = readers.read(CONTAINER_CGROUP)
    readers.close()
    assert sample is not None
    assert not readers.context.errors
    return sample


def test_a_v2_container_has_every_number_of_its_files() -> None:
    sample = read_container("v2")
    assert sample.cpu == CpuSample(
        123456789_000, 90_000_000_000, 33456789_000, 600, 250, 9_000_000_000
    )
    memory = sample.memory
    assert memory is not None
    assert memory.usage_bytes == 34603008
    assert memory.working_set_bytes == 34603008 - 4194304
    assert (memory.rss_bytes, memory.cache_bytes) == (20971520, 12582912)
    assert (memory.swap_bytes, memory.peak_bytes) == (1048576, 41943040)
    assert (memory.oom_kills, memory.limit_failures) == (2, 7)
    assert (memory.page_faults, memory.major_page_faults) == (5000, 12)
    assert sample.processes == ProcessSample(threads=9, processes=3)
    assert sample.io == (
        DeviceIo(8, 0, 90430464, 299008000, 8950, 1252),
        DeviceIo(8, 16, 4096, 0, 1, 0),
    )
    pressures = (sample.cpu_pressure, sample.memory_pressure, sample.io_pressure)
    totals = [pressure.some.total_usec for pressure in pressures if pressure]
    assert totals == [1000123, 2000123, 3000123]
    limits = sample.limits
    assert (limits.memory_bytes, limits.swap_bytes, limits.threads) == (268435456, 134217728, 512)
    assert (limits.cpu_quota_usec, limits.cpu_period_usec, limits.cpu_shares) == (
        50000,
        100000,
        500,
    )


def test_a_v1_container_has_the_same_numbers_from_other_files_but_no_pressure() -> None:
    sample = read_container("v1")
    assert sample.cpu == CpuSample(
        123456789012, 90_000_000_000, 33_450_000_000, 600, 250, 9_000_000_000
    )
    memory = sample.memory
    assert memory is not None
    assert memory.working_set_bytes == 34603008 - 4194304
    assert (memory.rss_bytes, memory.cache_bytes, memory.swap_bytes) == (
        20971520,
        12582912,
        1048576,
    )
    assert (memory.limit_failures, memory.peak_bytes, memory.oom_kills) == (7, 41943040, 2)
    assert sample.io == (DeviceIo(8, 0, 1000, 2000, 10, 20),)
    assert sample.cpu_pressure is sample.memory_pressure is sample.io_pressure is None
    assert sample.limits.swap_bytes == 402653184 - 268435456


def test_a_hybrid_container_takes_pressure_from_the_v2_tree() -> None:
    sample = read_container("hybrid")
    assert sample.cpu is not None and sample.cpu.usage_nsec == 357456836
    assert sample.cpu.periods is None, "there is no quota"
    assert sample.memory is not None and sample.memory.usage_bytes == 25698304
    assert sample.processes == ProcessSample(threads=2, processes=2)
    assert isinstance(sample.io_pressure, Pressure)
    assert sample.io_pressure.some.total_usec == 51905


@pytest.mark.parametrize("name", LAYOUTS)
def test_opening_by_path_yields_the_same_sample_as_open_descriptors(name: str) -> None:
    kept, named = readers_of(hosts.TREES / name), readers_of(hosts.TREES / name, fd_budget=3)
    before = open_descriptors()
    assert named.read(CONTAINER_CGROUP) == named.read(CONTAINER_CGROUP)
    assert open_descriptors() == before, "nothing is kept beyond the budget"
    assert kept.read(CONTAINER_CGROUP) == named.read(CONTAINER_CGROUP)
    kept.close()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_cgroup_that_does_not_exist_is_none_and_no_error(name: str) -> None:
    readers = readers_of(hosts.TREES / name)
    before = open_descriptors()
    assert readers.read("/orchpods/podgone") is None
    assert (len(readers), readers.context.errors, open_descriptors()) == (0, {}, before)
    assert readers.context.psi == {}, "nothing was learnt about pressure"


@pytest.mark.parametrize("error", [errno.ENODEV, errno.ENOENT])
@pytest.mark.parametrize("budget", [4096, 0])
def test_a_cgroup_that_vanishes_between_two_reads_is_none(
    tmp_path: Path, error: int, budget: int
) -> None:
    root = hosts.copy("v2", tmp_path)
    pread = Pread()
    readers = readers_of(root, pread=pread, fd_budget=budget)
    before = open_descriptors()
    assert readers.read(CONTAINER_CGROUP)
    pread.failing = {"memory.current": error}  # what a kept descriptor gives after rmdir
    for file in (root / "cgroup" / CONTAINER_CGROUP[1:]).iterdir():
        file.unlink()
    assert readers.read(CONTAINER_CGROUP) is None
    assert (len(readers), open_descriptors(), readers.context.fds_left) == (0, before, budget)
    assert not readers.context.errors


def test_a_cgroup_recreated_under_its_name_is_read_in_the_same_pass(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    directory = root / "cgroup" / CONTAINER_CGROUP[1:]
    readers = readers_of(root)
    readers.read(CONTAINER_CGROUP)
    fresh = directory / "memory.current.new"
    fresh.write_text("4096\n")
    fresh.rename(directory / "memory.current")
    old_pread, gone = readers.context.pread, [True]

    def pread(fd: int, size: int, offset: int) -> bytes:
        if gone:
            gone.clear()
            raise OSError(errno.ENODEV, "No such device")
        return old_pread(fd, size, offset)

    readers.context.pread = pread
    sample = readers.read(CONTAINER_CGROUP)
    assert sample and sample.memory and sample.memory.usage_bytes == 4096
    readers.close()


def test_pressure_switched_off_for_one_cgroup_takes_only_its_pressure(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    pread = Pread()
    readers = readers_of(root, pread=pread)
    assert readers.read(CONTAINER_CGROUP)
    for file in (root / "cgroup" / CONTAINER_CGROUP[1:]).glob("*.pressure"):
        file.unlink()  # cgroup.pressure=0: opens fail with ENOENT, kept descriptors with ENODEV
    pread.failing = {f"{name}.pressure": errno.ENODEV for name in ("cpu", "memory", "io")}
    sample = readers.read(CONTAINER_CGROUP)
    assert sample and sample.cpu and sample.memory
    assert sample.cpu_pressure is sample.io_pressure is None
    readers.close()


def test_a_kernel_booted_without_psi_counts_as_disabled_not_as_an_error() -> None:
    pread = Pread()
    pread.failing = {f"{name}.pressure": errno.EOPNOTSUPP for name in ("cpu", "memory", "io")}
    readers = readers_of(hosts.TREES / "v2", pread=pread)
    sample = readers.read(CONTAINER_CGROUP)
    assert sample and sample.cpu and sample.cpu_pressure is None
    assert readers.context.psi == dict.fromkeys(("cpu", "memory", "io"), "disabled")
    assert not readers.context.errors
    readers.close()


def test_the_readers_cope_with_fewer_descriptors_than_the_budget(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    readers = readers_of(hosts.TREES / "v2")
    readers.read(POD_CGROUP)
    before = open_descriptors()
    real_open, left = os.open, [5]

    def scarce(*arguments: object, **more: object) -> int:
        if left[0] == 0:
            left[0] = 1000
            raise OSError(errno.EMFILE, "Too many open files")
        left[0] -= 1
        return real_open(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", scarce)
    sample = readers.read(CONTAINER_CGROUP)
    assert sample and sample.cpu and sample.memory
    assert open_descriptors() == before
    assert "raise the limit of open files" in caplog.text
    monkeypatch.undo()
    readers.close()


def test_an_unreadable_file_loses_only_its_own_numbers_and_is_counted() -> None:
    pread = Pread()
    readers = readers_of(hosts.TREES / "v2", pread=pread)
    readers.read(CONTAINER_CGROUP)
    pread.failing = {"memory.stat": errno.EIO}
    sample = readers.read(CONTAINER_CGROUP)
    assert sample and sample.cpu and sample.memory
    assert sample.memory.usage_bytes == 34603008
    assert sample.memory.working_set_bytes is None, "without inactive_file it is not known"
    assert readers.context.errors == {"memory.stat": 1}
    pread.failing = {}
    again = readers.read(CONTAINER_CGROUP)
    assert again and again.memory and again.memory.working_set_bytes == 34603008 - 4194304
    readers.close()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("memory.current", "a lot\n"),
        ("memory.current", ""),
        ("memory.current", "-4096\n"),
        ("cpu.stat", "usage_usec\n"),
        ("cpu.pressure", "some avg10=\n"),
        ("memory.stat", "\x00\x00"),
        ("pids.current", "18446744073709551616\n"),
    ],
)
def test_absurd_content_is_counted_and_absent(tmp_path: Path, file: str, content: str) -> None:
    root = hosts.copy("v2", tmp_path)
    (root / "cgroup" / CONTAINER_CGROUP[1:] / file).write_text(content)
    readers = readers_of(root)
    assert readers.read(CONTAINER_CGROUP)
    assert readers.context.errors == {file: 1}
    readers.close()


def test_descriptors_of_cgroups_no_longer_wanted_are_closed() -> None:
    readers = readers_of(hosts.TREES / "v2")
    before = open_descriptors()
    for _ in range(50):
        for path in ("", POD_CGROUP, CONTAINER_CGROUP):
            readers.read(path)
        readers.retain([POD_CGROUP])
    assert len(readers) == 1
    readers.close()
    assert (open_descriptors(), readers.context.fds_left) == (
        before,
        cgroup_readers.DEFAULT_FD_BUDGET,
    )


def test_a_cgroup_read_by_path_gets_descriptors_as_soon_as_they_are_free() -> None:
    readers = readers_of(hosts.TREES / "v2", fd_budget=12)
    before = open_descriptors()
    readers.read(POD_CGROUP)
    kept = open_descriptors()
    readers.read(CONTAINER_CGROUP)
    assert open_descriptors() == kept
    readers.retain([CONTAINER_CGROUP])
    readers.read(CONTAINER_CGROUP)
    assert open_descriptors() == kept
    readers.close()
    assert open_descriptors() == before


def test_this_machine_s_own_root_cgroup_can_be_read() -> None:
    host = layout.detect_layout("/sys/fs/cgroup")
    if host.version == "none":
        pytest.skip("this machine has no cgroups")
    readers = CgroupReaders(host)
    sample = readers.read("/")
    readers.close()
    assert sample and sample.cpu and sample.cpu.usage_nsec > 0
    assert not readers.context.errors
