"""Which cgroups of a pod are not read because the pod's own shows that nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.stats.cgroup import layout, readers
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.samples import CgroupSample
from tests.fakes import hosts
from tests.fakes.hosts import CONTAINER_CGROUP, LAYOUTS, POD_CGROUP, Clock
from tests.nodeagent.stats.cgroup.test_readers import Pread

CALM = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
INTERVAL_S = 10


class Machine:
    """A private copy of a host whose pod has every file that its container has."""

    def __init__(self, name: str, root: Path) -> None:
        self.root = hosts.copy(name, root)
        hierarchy = self.root / "cgroup" / "memory"
        if hierarchy.is_dir():
            (hierarchy / "memory.use_hierarchy").write_text("1\n")
        for path in self.root.rglob(f"*{CONTAINER_CGROUP}/*"):
            (path.parent.parent / path.name).write_bytes(path.read_bytes())
        for path in self.root.rglob("*.pressure"):
            path.write_text(CALM)
        for path in self.root.rglob("cpu.cfs_quota_us"):
            path.write_text("-1\n")
        self.pread, self.clock = Pread(), Clock()

    def begin(self, *, fd_budget: int = 4096, every_s: float = INTERVAL_S) -> None:
        """Read until everything that can rest does."""
        host = layout.detect_layout(str(self.root / "cgroup"))
        self.readers = CgroupReaders(
            host, wall_ns=self.clock, pread=self.pread, fd_budget=fd_budget
        )
        for _ in range(4):
            self.one_pass(every_s=every_s)

    def file(self, cgroup: str, name: str) -> Path:
        return next(one for one in self.root.rglob(name) if str(one.parent).endswith(cgroup))

    def one_pass(
        self, *, parent: str = POD_CGROUP, every_s: float = INTERVAL_S
    ) -> tuple[CgroupSample | None, set[str]]:
        """The container's sample, and what was read for it."""
        self.clock.advance(every_s)
        self.readers.read(POD_CGROUP)
        self.clock.advance(0.001)
        self.pread.names.clear()
        return self.readers.read(CONTAINER_CGROUP, parent=parent), set(self.pread.names)


@pytest.fixture(params=LAYOUTS)
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    monkeypatch.setattr(readers, "SLOW_NS", 3600 * 10**9)
    machine = Machine(request.param, tmp_path)
    yield machine
    machine.readers.close()


@pytest.mark.parametrize("fd_budget", [4096, 0])
def test_a_container_is_not_read_while_its_pod_shows_no_change(
    machine: Machine, fd_budget: int
) -> None:
    machine.begin(fd_budget=fd_budget)
    before = machine.readers.read(CONTAINER_CGROUP)
    sample, names = machine.one_pass()
    assert names == set()
    assert before and sample and sample[1:] == before[1:]
    assert sample.time_ns == machine.clock.now_ns - 1_000_000, "when the pod was read"


@pytest.mark.parametrize("what", ["cpu time", "memory", "tasks"])
def test_it_is_read_when_a_number_of_the_pod_changes(machine: Machine, what: str) -> None:
    machine.begin()
    names = {
        "cpu time": ("cpuacct.usage", "cpu.stat"),
        "memory": ("memory.current", "memory.usage_in_bytes"),
        "tasks": ("pids.current",),
    }[what]
    name = next(one for one in names if any(machine.root.rglob(one)))
    for cgroup in (POD_CGROUP, CONTAINER_CGROUP):
        file = machine.file(cgroup, name)
        number = next(word for word in file.read_text().split() if word.isdigit())
        file.write_text(file.read_text().replace(number, str(int(number) + 1), 1))
    assert name in machine.one_pass()[1]
    assert set() in [machine.one_pass()[1] for _ in range(4)], "when it rests again"


def test_it_is_read_when_a_task_of_the_pod_waited_for_a_cpu_and_until_averages_are_zero(
    tmp_path: Path,
) -> None:
    machine = Machine("v2", tmp_path)
    machine.begin()
    pressure = machine.file(POD_CGROUP, "cpu.pressure")
    for text in (CALM.replace("total=7", "total=8"), CALM.replace("avg10=0.00", "avg10=0.10")):
        pressure.write_text(text)
        assert "cpu.pressure" in machine.one_pass()[1]
    assert all("cpu.pressure" in machine.one_pass()[1] for _ in range(5)), "others may fall"
    pressure.write_text(CALM)
    assert set() in [machine.one_pass()[1] for _ in range(3)]
    machine.readers.close()


def test_its_own_averages_are_read_until_they_are_zero(tmp_path: Path) -> None:
    machine = Machine("v2", tmp_path)
    machine.begin()
    falling = CALM.replace("avg300=0.00", "avg300=0.01")
    for cgroup in (POD_CGROUP, CONTAINER_CGROUP):
        machine.file(cgroup, "cpu.pressure").write_text(falling)
    machine.one_pass(every_s=1)
    machine.file(POD_CGROUP, "cpu.pressure").write_text(CALM)  # the kernel looked there first
    machine.one_pass(every_s=1)
    machine.file(CONTAINER_CGROUP, "cpu.pressure").write_text(CALM)
    sample, _ = machine.one_pass(every_s=1)
    assert sample and sample.cpu_pressure and sample.cpu_pressure.some.avg300 == 0
    assert set() in [machine.one_pass()[1] for _ in range(2)], "when it rests again"
    machine.readers.close()


def test_counters_that_the_kernel_flushes_late_are_read_first(machine: Machine) -> None:
    machine.begin(every_s=1)
    assert "memory.stat" in machine.one_pass(every_s=1)[1]


def test_it_is_read_once_a_minute_regardless(machine: Machine) -> None:
    machine.begin()
    file = machine.file(CONTAINER_CGROUP, "pids.current")
    file.write_text("77\n")  # as if one task had come and one of another container had gone
    waited_s = 0
    while waited_s <= 60:
        waited_s += INTERVAL_S
        sample, _ = machine.one_pass()
        if sample and sample.processes and sample.processes.threads == 77:
            break
    assert INTERVAL_S < waited_s <= 60


def test_it_is_read_when_the_clock_was_set_back(machine: Machine) -> None:
    machine.begin()
    assert machine.one_pass(every_s=1)[1] == set()
    machine.clock.advance(-3600)
    assert machine.one_pass(every_s=1)[1], "else no minute is over for an hour"
    assert set() in [machine.one_pass()[1] for _ in range(3)], "when it rests again"


@pytest.mark.parametrize("name", ["memory.current", "pids.current", "cpu.pressure"])
def test_it_is_read_where_its_pod_lacks_one_of_its_numbers(tmp_path: Path, name: str) -> None:
    machine = Machine("v2", tmp_path)
    machine.file(POD_CGROUP, name).unlink()
    machine.begin()
    assert name in machine.one_pass()[1]
    machine.readers.close()


def test_it_is_read_where_its_pod_s_file_is_malformed(tmp_path: Path) -> None:
    machine = Machine("v2", tmp_path)
    machine.file(POD_CGROUP, "memory.current").write_text("many\n")
    machine.begin()
    assert "memory.current" in machine.one_pass()[1]
    machine.readers.close()


@pytest.mark.parametrize("parent", ["", "/orchpods/pod7d1f6c1", "/elsewhere"])
def test_it_is_read_when_no_cgroup_above_it_was(tmp_path: Path, parent: str) -> None:
    machine = Machine("v2", tmp_path)
    machine.begin()
    assert machine.one_pass(parent=parent)[1]
    machine.readers.close()


@pytest.mark.parametrize("text", ["0\n", None])
def test_where_parents_do_not_include_memory_every_cgroup_is_read(
    tmp_path: Path, text: str | None
) -> None:
    machine = Machine("hybrid", tmp_path)
    file = machine.root / "cgroup/memory/memory.use_hierarchy"
    file.unlink() if text is None else file.write_text(text)
    machine.begin()
    assert machine.one_pass()[1]
    machine.readers.close()


@pytest.mark.parametrize("with_pressure", [True, False])
def test_a_container_with_a_quota_is_skipped_only_while_pressure_shows_no_waiting(
    tmp_path: Path, with_pressure: bool
) -> None:
    machine = Machine("hybrid", tmp_path)
    machine.file(CONTAINER_CGROUP, "cpu.cfs_quota_us").write_text("50000\n")
    if not with_pressure:
        for path in machine.root.rglob("cpu.pressure"):
            path.unlink()
    machine.begin()
    assert ("cpu.stat" in machine.one_pass()[1]) is not with_pressure
    machine.readers.close()


def test_a_container_removed_with_its_last_task_is_none(machine: Machine) -> None:
    machine.begin(fd_budget=0)
    for path in list(machine.root.rglob(f"*{CONTAINER_CGROUP}/*")):
        path.unlink()
    machine.file(POD_CGROUP, "pids.current").write_text("1\n")
    assert machine.one_pass()[0] is None
