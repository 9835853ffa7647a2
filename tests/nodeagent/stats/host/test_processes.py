"""Open files of containers, from a tree made by hand and from this very process."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.stats.cgroup.values import UINT64_MAX
from nodeagent.stats.host import processes
from nodeagent.stats.host.processes import ContainerProcesses, ProcessUsage, read_process_use
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import CgroupSample, CpuSample, ProcessUse
from tests.fakes import hosts
from tests.fakes.hosts import CONTAINER_CGROUP, POD, Clock

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max processes             96224                96224                processes
Max open files            1024                 524288               files
"""


def make_process(proc: Path, pid: int, targets: list[str], limits: str = LIMITS) -> None:
    directory = proc / str(pid)
    (directory / "fd").mkdir(parents=True)
    for number, target in enumerate(targets):
        (directory / "fd" / str(number)).symlink_to(target)
    (directory / "limits").write_text(limits)


def one_process(proc: Path) -> Path:
    """With one open file; the file that names it."""
    make_process(proc, 10, ["/dev/null"])
    procs_file = proc / "procs"
    procs_file.write_text("10\n")
    return procs_file


def test_descriptors_and_sockets_are_summed_over_the_processes(tmp_path: Path) -> None:
    make_process(tmp_path, 10, ["/dev/null", "socket:[1]", "pipe:[2]"])
    make_process(tmp_path, 11, ["socket:[3]"])
    assert read_process_use(str(tmp_path), [10, 11, 404], 7) == ProcessUse(7, 4, 2, 1024)
    assert read_process_use(str(tmp_path), [404], 7) == ProcessUse(7, 0, 0, None)


@pytest.mark.parametrize("call", ["scandir", "readlink"])
def test_without_access_to_a_process_there_is_no_sum_rather_than_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    make_process(tmp_path, 10, ["/dev/null", "socket:[1]"])
    make_process(tmp_path, 11, ["socket:[3]"])
    real = getattr(os, call)

    def refuse(path: str) -> object:
        if f"/{11}/" in path:
            raise PermissionError(path)
        return real(path)

    monkeypatch.setattr(os, call, refuse)
    assert read_process_use(str(tmp_path), [10, 11], 7) == ProcessUse(7, None, None, 1024)


def test_of_too_many_descriptors_and_processes_there_is_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million descriptors that a pod opened took a second each time, and as many processes."""
    monkeypatch.setattr(processes, "MAX_COUNTED", 10)
    pids = list(range(10, 14))
    for pid in pids:
        make_process(tmp_path, pid, ["/dev/null"] * 2)
    assert read_process_use(str(tmp_path), pids[:3], 7) == ProcessUse(7, 6, 0, 1024)
    make_process(tmp_path, 9, ["/dev/null"] * 11)
    looked: list[str] = []
    monkeypatch.setattr(os, "readlink", lambda path: looked.append(path) or "/dev/null")
    for found in (pids, [9], [*range(100, 120)]):
        looked.clear()
        assert read_process_use(str(tmp_path), found, 7).file_descriptors is None
        assert len(looked) <= 11


def test_this_process_is_counted_right() -> None:
    before = read_process_use("/proc", [os.getpid()], 7)
    with socket.socket(), Path("/dev/null").open():
        after = read_process_use("/proc", [os.getpid()], 7)
    assert after.file_descriptors == before.file_descriptors + 2
    assert after.sockets == before.sockets + 1


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (LIMITS, 1024),
        ("Max open files            unlimited            unlimited            files\n", -1),
        ("Max open files\n", None),
        ("", None),
    ],
)
def test_the_soft_limit_of_open_files(limits: str, expected: int | None) -> None:
    assert processes.parse_open_files_limit(limits) == expected


@given(st.text(max_size=80))
def test_arbitrary_limits_are_a_number_none_at_all_or_unknown(text: str) -> None:
    for limits in (text, "Max open files" + text, "Max open files " + text):
        limit = processes.parse_open_files_limit(limits)
        assert limit is None or -1 <= limit <= UINT64_MAX


def test_containers_beyond_the_budget_come_first_next_time_and_it_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, elapsed = Clock(), [0.0]

    def monotonic_s() -> float:
        elapsed[0] += 1.0
        return elapsed[0]

    containers = {}
    for name in "abc":
        (tmp_path / name).write_text("1\n")
        containers[name] = ContainerProcesses(str(tmp_path / name), CgroupSample(0))
    usage = ProcessUsage(str(tmp_path), budget_s=2.5, wall_ns=clock, monotonic_s=monotonic_s)
    usage.refresh(containers)
    assert [name for name in "abc" if usage.latest.get(name)] == ["a", "b"]
    clock.advance(60)
    usage.refresh(containers)
    assert usage.latest.get("c") == ProcessUse(clock.now_ns, 0, 0, None)
    assert len(caplog.messages) == 1
    usage.refresh({})
    assert usage.latest.get("a") is None


def test_a_container_that_did_not_run_since_is_not_read_again(tmp_path: Path) -> None:
    procs_file, clock = one_process(tmp_path), Clock()
    usage = ProcessUsage(str(tmp_path), wall_ns=clock)
    stamps = []
    for ran_nsec in (5, 5, 6):
        clock.advance(60)
        cgroup = CgroupSample(clock.now_ns - 1, CpuSample(ran_nsec))
        usage.refresh({"a": ContainerProcesses(str(procs_file), cgroup)})
        found = usage.latest.get("a")
        assert found
        stamps.append((found.time_ns - clock.now_ns, found.file_descriptors))
        (tmp_path / "10" / "fd" / str(clock.now_ns)).symlink_to("/dev/null")
    assert stamps == [(0, 1), (-1, 1), (0, 3)]


def test_new_containers_are_read_alone(tmp_path: Path) -> None:
    procs_file, clock = one_process(tmp_path), Clock()
    usage = ProcessUsage(str(tmp_path), wall_ns=clock)
    container = ContainerProcesses(str(procs_file), CgroupSample(0))
    usage.refresh({"old": container})
    then_ns = clock.now_ns
    clock.advance(10)
    usage.refresh_new({"old": container, "new": container})
    assert usage.latest.get("old") == ProcessUse(then_ns, 1, 0, 1024)
    assert usage.latest.get("new") == ProcessUse(clock.now_ns, 1, 0, 1024)


async def test_the_sampler_shows_what_the_last_refresh_found(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    make_process(root / "proc", 101, ["socket:[1]", "/dev/null"])
    sampler = Sampler(targets=lambda: [POD], sources=hosts.sources(root))
    assert (await sampler.sample()).pods[0].containers[0].use is None
    await sampler.step_disks()
    use = (await sampler.sample()).pods[0].containers[0].use
    assert use and (use.file_descriptors, use.sockets, use.max_open_files) == (2, 1, 1024)
    assert (root / "cgroup" / CONTAINER_CGROUP[1:] / "cgroup.procs").exists()
    await sampler.close()


def test_memory_that_processes_share_since_a_fork_counts_for_each() -> None:
    """A checkpoint writes it for each: 20 of 20 MB, of 26 MB in all, made an archive of 426 MB."""
    script = "exec 3<&0; x=$(head -c 5000000 /dev/zero | tr '\\0' x)"
    script += "; for i in 1 2 3 4; do (read y <&3) & done; echo ready; wait"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdin and shell.stdout and shell.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
        found = processes.own_memory_bytes([str(shell.pid), *children, "0"])
        shell.stdin.close()
    assert len(children) == 4
    assert 25_000_000 < found < 60_000_000
