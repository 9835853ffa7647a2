"""Facts of the machine, from a captured tree and from nothing at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.stats.cgroup.values import UINT64_MAX
from nodeagent.stats.host import machine
from nodeagent.stats.samples import RlimitSample, SwapSample
from tests.fakes import hosts

ROOT = hosts.TREES / "hybrid"


def test_facts_are_read_from_the_given_roots() -> None:
    roots = (str(ROOT / "proc"), str(ROOT / "sys"), str(ROOT / "etc"))
    facts = machine.read_host_facts(*roots, hardware=lambda: hosts.HARDWARE)
    assert (facts.cpu_count, facts.physical_cores, facts.sockets) == (2, 2, 1)
    assert facts.memory_bytes == hosts.HARDWARE.memory_bytes
    assert facts.swap_bytes == hosts.HARDWARE.swap_bytes
    assert facts.boot_time_ns == hosts.HARDWARE.boot_time_ns
    assert facts.boot_id == "11111111-2222-3333-4444-555555555555"
    assert facts.machine_id == "0123456789abcdef0123456789abcdef"
    assert facts.system_uuid == "99999999-8888-7777-6666-555555555555"
    assert facts.os_image == "Debian GNU/Linux 12 (bookworm)"
    assert (facts.hostname, facts.operating_system, facts.pid_max) == ("node-a", "linux", 32768)
    assert facts.kernel_version


def test_a_machine_without_any_file_has_empty_facts(tmp_path: Path) -> None:
    facts = machine.read_host_facts(str(tmp_path), str(tmp_path), str(tmp_path))
    assert (facts.boot_id, facts.hostname, facts.pid_max, facts.sockets) == ("", "", 0, 0)


def test_this_machine_has_a_name_memory_and_a_kernel() -> None:
    facts = machine.read_host_facts()
    assert facts.hostname and facts.memory_bytes and facts.kernel_version == os.uname().release


@pytest.mark.parametrize(
    ("loadavg", "tasks"),
    [
        ("0.01 0.02 0.03 2/345 6789\n", 345),
        ("0.01 0.02 0.03 2/345", None),
        ("0.01 0.02 0.03 345 6789", None),
        ("", None),
    ],
)
def test_the_number_of_tasks_is_in_the_fourth_field(loadavg: str, tasks: int | None) -> None:
    assert machine.count_tasks(loadavg) == tasks


@given(st.text(max_size=60))
def test_arbitrary_text_is_a_count_or_none(text: str) -> None:
    tasks = machine.count_tasks(text)
    assert tasks is None or 0 <= tasks <= UINT64_MAX


@given(st.binary(max_size=200))
def test_arbitrary_files_yield_amounts_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    root = tmp_path_factory.mktemp("proc")
    for name in ("meminfo", "loadavg"):
        (root / name).write_bytes(data)
    amounts = machine.read_meminfo(str(root))
    assert all(0 <= amount <= UINT64_MAX * 1024 for amount in amounts.values())
    at_ns, max_pids, running = machine.read_rlimit(str(root), 1)
    assert (at_ns, max_pids) == (1, None)
    assert running is None or 0 <= running <= UINT64_MAX


def test_the_smaller_limit_of_tasks_counts(tmp_path: Path) -> None:
    kernel = tmp_path / "sys/kernel"
    kernel.mkdir(parents=True)
    (tmp_path / "loadavg").write_text("0 0 0 1/7 9\n")
    assert machine.read_rlimit(str(tmp_path), 5) == RlimitSample(5, None, 7)
    (kernel / "pid_max").write_text("4194304\n")
    (kernel / "threads-max").write_text("192000\n")
    assert machine.read_rlimit(str(tmp_path), 5) == RlimitSample(5, 192000, 7)


def test_swap_is_what_is_not_free() -> None:
    assert machine.swap_of({"SwapTotal": 10, "SwapFree": 4}, 5) == SwapSample(5, 10, 6)
    assert machine.swap_of({"SwapTotal": 10}, 5) is None


def test_pressure_is_supported_disabled_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.read_pressure(str(tmp_path), "cpu") == (None, "absent")
    pressure, state = machine.read_pressure(str(ROOT / "proc"), "cpu")
    assert pressure and state == "supported"

    def refuse(*_: object, **__: object) -> object:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(Path, "open", refuse)
    assert machine.read_pressure(str(ROOT / "proc"), "cpu") == (None, "disabled")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/system.slice/nodeagent.service\n", "/system.slice/nodeagent.service"),
        ("0::/\n", None),
        ("4:memory:/a\n2:cpu,cpuacct:/a\n0::/b\n", "/a"),
        ("4:memory:/a\n2:cpu,cpuacct:/\n0::/a\n", None),
        ("9:name=systemd:/a\n0::/../other\n", None),
        ("", None),
        ("no colons at all\n", None),
    ],
)
def test_the_agent_finds_its_own_cgroup_if_it_has_one(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(text)
    assert machine.cgroup_of(str(tmp_path)) == expected


def test_pages_are_counted_in_bytes_by_size(tmp_path: Path) -> None:
    for name, pages in (("hugepages-2048kB", "16\n"), ("hugepages-1048576kB", "0\n")):
        folder = tmp_path / "kernel/mm/hugepages" / name
        folder.mkdir(parents=True)
        (folder / "nr_hugepages").write_text(pages)
    (tmp_path / "kernel/mm/hugepages/hugepages-odd").mkdir()
    assert machine.read_hugepages(str(tmp_path)) == {2 * 1024**2: 32 * 1024**2, 1024**3: 0}


def test_a_kernel_without_huge_pages_has_none(tmp_path: Path) -> None:
    assert machine.read_hugepages(str(tmp_path)) == {}
