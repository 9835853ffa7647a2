"""The files that a reader reads and skips in each pass, over captured trees that change."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pytest

from nodeagent.stats.cgroup import layout
from nodeagent.stats.cgroup import readers as cgroup_readers
from nodeagent.stats.cgroup.readers import CgroupReaders
from tests.fakes import hosts
from tests.fakes.hosts import CONTAINER_CGROUP, Clock
from tests.nodeagent.stats.cgroup.test_readers import Pread, readers_of


def test_an_unsupported_file_is_not_read_in_every_pass() -> None:
    pread = Pread()
    pread.failing = {"cpu.pressure": errno.EOPNOTSUPP}
    clock = Clock()
    host = layout.detect_layout(str(hosts.TREES / "v2/cgroup"))
    readers = CgroupReaders(host, wall_ns=clock, pread=pread)
    readers.read(CONTAINER_CGROUP)
    calls = pread.calls
    readers.read(CONTAINER_CGROUP)
    assert pread.calls - calls == len(host.files) - 1
    clock.advance(61)
    pread.failing = {}
    sample = readers.read(CONTAINER_CGROUP)
    assert sample and sample.cpu_pressure, "it is tried again a minute later"
    readers.close()


@pytest.mark.parametrize("budget", [4096, 0])
def test_a_slow_file_keeps_its_last_value_and_is_skipped(
    budget: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pread = Pread()
    readers = readers_of(hosts.TREES / "v2", pread=pread, fd_budget=budget)
    before = readers.context.fds_left
    now = [0]
    monkeypatch.setattr(cgroup_readers.time, "perf_counter_ns", lambda: now[0])

    def slow(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        now[0] += 11_000_000 if b"inactive_file" in data else 1000
        return data

    readers.context.pread = slow
    first = readers.read(CONTAINER_CGROUP)
    assert readers.context.slow == {"memory.stat": 1}
    assert f"{CONTAINER_CGROUP}/memory.stat took 11 ms" in caplog.text
    begun = now[0]
    second = readers.read(CONTAINER_CGROUP)
    assert now[0] - begun < 10_000_000
    assert first and second and second.memory == first.memory
    readers.close()
    assert readers.context.fds_left == before


def test_lists_longer_than_a_page_are_read_to_their_end(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    procs = root / "cgroup" / CONTAINER_CGROUP[1:] / "cgroup.procs"
    procs.write_text("".join(f"{pid}\n" for pid in range(10_000, 30_000)))
    readers = readers_of(root)
    sample = readers.read(CONTAINER_CGROUP)
    assert sample and sample.processes and sample.processes.processes == 20_000
    readers.close()


def test_unchanged_text_is_not_parsed_again() -> None:
    readers = readers_of(hosts.TREES / "v2")
    first, second = readers.read(CONTAINER_CGROUP), readers.read(CONTAINER_CGROUP)
    assert first and second and second.memory is first.memory
    readers.close()


CALM = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
STALLS = {"memory.pressure", "io.pressure"}
V1_IDLE = {"cpuacct.stat", "blkio.throttle.io_service_bytes_recursive",
              "blkio.throttle.io_serviced_recursive", "memory.oom_control"}  # fmt: skip
CPU_TIME = {"v2": "cpu.stat", "v1": "cpuacct.usage", "hybrid": "cpuacct.usage"}


def read_in_passes(
    root: Path, passes: int, between: object = None, *, every_s: float = 1
) -> list[set[str]]:
    """The names of the files that each pass read."""
    pread, clock = Pread(), Clock()
    host = layout.detect_layout(str(root / "cgroup"))
    readers = CgroupReaders(host, wall_ns=clock, pread=pread)
    names = []
    for number in range(passes):
        pread.names.clear()
        assert readers.read(CONTAINER_CGROUP)
        names.append(set(pread.names))
        clock.advance(every_s)
        if callable(between):
            between(number)
    readers.close()
    return names


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no file counts as slow: that would be read some times more."""
    monkeypatch.setattr(cgroup_readers, "SLOW_NS", 3600 * 10**9)


def of_container(root: Path, name: str) -> Path:
    """The file of that name, in whichever hierarchy it is."""
    return next(one for one in root.rglob(name) if str(one.parent).endswith(CONTAINER_CGROUP))


@pytest.mark.parametrize(
    ("name", "idle"),
    [
        ("v2", {"memory.events"} | STALLS),
        ("v1", V1_IDLE),
        ("hybrid", V1_IDLE | STALLS),
    ],
)
@pytest.mark.parametrize(
    ("every_s", "others"), [(1, {"cgroup.procs"}), (10, {"cgroup.procs", "memory.stat"})]
)
@pytest.mark.usefixtures("unhurried")
def test_files_that_only_tasks_change_are_not_read_while_none_runs(
    tmp_path: Path, name: str, idle: set[str], every_s: float, others: set[str]
) -> None:
    root = hosts.copy(name, tmp_path)
    for path in root.rglob("*.pressure"):
        path.write_text(CALM)
    cpu = of_container(root, CPU_TIME[name])

    def run_after_the_fourth(number: int) -> None:
        if number == 3:
            cpu.write_text(cpu.read_text().replace("456", "457"))

    first, second, third, fourth, fifth = read_in_passes(
        root, 5, run_after_the_fourth, every_s=every_s
    )
    assert first == second == fifth, "all, when it ran or may have"
    assert first - third == first - fourth == idle | others


@pytest.mark.parametrize(
    ("sign", "text", "name"),
    [("memory.current", "5000000\n", "memory.stat"), ("pids.current", "77\n", "cgroup.procs")],
)
@pytest.mark.usefixtures("unhurried")
def test_files_changed_from_outside_are_read_when_a_cheaper_file_changes_and_once_a_minute(
    tmp_path: Path, sign: str, text: str, name: str
) -> None:
    root = hosts.copy("v2", tmp_path)

    def change_after_the_third(number: int) -> None:
        if number == 2:
            of_container(root, sign).write_text(text)

    names = read_in_passes(root, 60, change_after_the_third, every_s=5)
    is_read = [name in read for read in names]
    assert is_read[:6] == [True, True, False, True, True, False]
    longest = max(len(list(run)) for read, run in itertools.groupby(is_read[6:]) if not read)
    assert 2 < longest * 5 <= 60


@pytest.mark.usefixtures("unhurried")
def test_pressure_is_read_until_its_averages_are_zero(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    io = of_container(root, "io.pressure")
    io.write_text(CALM.replace("avg300=0.00", "avg300=0.01"))

    def decay_after_the_third(number: int) -> None:
        if number == 2:
            io.write_text(CALM)

    names = read_in_passes(root, 6, decay_after_the_third)
    assert ["io.pressure" in read for read in names] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("failing", ["", "cpu.stat"])
def test_changes_from_outside_are_seen_while_nothing_runs(tmp_path: Path, failing: str) -> None:
    root = hosts.copy("v2", tmp_path)
    pread = Pread()
    readers = readers_of(root, pread=pread)
    readers.read(CONTAINER_CGROUP)
    if failing:  # nobody knows whether anything runs
        pread.failing = {failing: errno.EIO}
        of_container(root, "io.pressure").write_text(CALM)
    of_container(root, "memory.current").write_text("5000000\n")
    of_container(root, "cpu.pressure").write_text(CALM)
    for _ in range(4):
        sample = readers.read(CONTAINER_CGROUP)
    assert sample and sample.memory and sample.memory.usage_bytes == 5_000_000
    assert sample.cpu_pressure and sample.cpu_pressure.some.total_usec == 7
    if failing:
        of_container(root, "io.pressure").write_text(CALM.replace("=7", "=8"))
        sample = readers.read(CONTAINER_CGROUP)
        assert sample and sample.io_pressure and sample.io_pressure.some.total_usec == 8
    readers.close()


@pytest.mark.usefixtures("unhurried")
def test_memory_settles_between_readings_a_second_apart(tmp_path: Path) -> None:
    names = read_in_passes(hosts.copy("v2", tmp_path), 9)
    is_read = ["memory.stat" in read for read in names]
    assert is_read == [True] * 6 + [False] * 3, "the kernel gathers it every two seconds"


@pytest.mark.parametrize(("cgroup", "turns"), [("busy", 2), ("idle", 4), ("unreadable", 1)])
def test_limits_are_read_again_each_minute_and_while_nothing_runs_every_five(
    tmp_path: Path, cgroup: str, turns: int
) -> None:
    root = hosts.copy("v2", tmp_path)
    directory = root / "cgroup" / CONTAINER_CGROUP[1:]
    clock = Clock()
    pread = Pread()
    host = layout.detect_layout(str(root / "cgroup"))
    readers = CgroupReaders(host, wall_ns=clock, pread=pread)
    if cgroup == "unreadable":  # nobody knows whether anything runs
        pread.failing = {"cpu.stat": errno.EIO}
    readers.read(CONTAINER_CGROUP)
    clock.advance(61)
    readers.read(CONTAINER_CGROUP)
    (directory / "memory.max").write_text("1073741824\n")
    seen = 1
    for seen in range(1, 10):
        if cgroup == "busy":
            (directory / "cpu.stat").write_text(f"usage_usec {123456789 + seen}\n")
        clock.advance(61)
        sample = readers.read(CONTAINER_CGROUP)
        if sample and sample.limits.memory_bytes == 2**30:
            break
    readers.close()
    assert seen == turns
