"""This machine's own cgroups: numbers against independent readings, and what vanishes for real."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeagent.stats.cgroup import layout
from nodeagent.stats.cgroup.layout import Layout
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.summary import rate_nanocores

pytestmark = pytest.mark.real

BURN = "while True: pass"


class Tree:
    """Cgroups below a parent of the test's own, in every hierarchy that is read."""

    def __init__(self, host: Layout) -> None:
        self.host = host
        self.parent = f"/orchtest-{os.getpid()}"
        self._roots = sorted({file.hierarchy for file in host.files})
        self._made: list[Path] = []
        self.make("")

    def make(self, name: str) -> str:
        for root in self._roots:
            directory = Path(root, (self.parent + name)[1:])
            directory.mkdir()
            self._made.append(directory)
        if self.host.version == "v2" and not name:
            control = Path(self._roots[0], self.parent[1:], "cgroup.subtree_control")
            control.write_text("+cpu +memory +pids +io")
        return self.parent + name

    def remove(self, name: str = "") -> None:
        for directory in [path for path in self._made if str(path).endswith(self.parent + name)]:
            directory.rmdir()
            self._made.remove(directory)

    def write(self, path: str, controller: str, file: str, text: str) -> None:
        root = self.host.controllers.get(controller) or self.host.unified
        Path(str(root), path[1:], file).write_text(text)

    def clear(self) -> None:
        for directory in reversed(self._made):
            with contextlib.suppress(OSError):
                directory.rmdir()


@pytest.fixture
def tree() -> Iterator[Tree]:
    host = layout.detect_layout("/sys/fs/cgroup")
    if os.geteuid() != 0 or host.version == "none":
        pytest.skip("making cgroups needs root and a cgroup file system")
    try:
        tree = Tree(host)
    except OSError as error:
        pytest.skip(f"this machine does not let us make cgroups: {error}")
    yield tree
    tree.clear()


@contextlib.contextmanager
def running(tree: Tree, path: str, code: str) -> Iterator[int]:
    """A Python process in the cgroup; it starts its work only when it is inside."""
    process = subprocess.Popen([sys.executable, "-c", f"input()\n{code}"], stdin=subprocess.PIPE)
    try:
        for root in sorted({file.hierarchy for file in tree.host.files}):
            Path(root, path[1:], "cgroup.procs").write_text(str(process.pid))
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.flush()
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_a_container_held_to_a_tenth_of_a_core_shows_it_and_its_pressure(tree: Tree) -> None:
    path = tree.make("/tenth")
    if tree.host.version == "v2":
        tree.write(path, "cpu", "cpu.max", "10000 100000")
    else:
        tree.write(path, "cpu", "cpu.cfs_quota_us", "10000")
    readers = CgroupReaders(tree.host)
    with running(tree, path, BURN):
        time.sleep(0.3)  # let the load begin; what is measured is the time between the samples
        first = readers.read(path)
        time.sleep(1.5)
        second = readers.read(path)
    readers.close()
    assert first and second and first.cpu and second.cpu
    rate = rate_nanocores(second, first)
    assert rate is not None
    assert 0.02e9 < rate < 0.2e9, "a tenth, which even a busy machine has to give"
    assert second.limits.cpu_quota_usec == 10000
    if second.cpu.throttled_periods is not None:
        assert second.cpu.throttled_periods > (first.cpu.throttled_periods or 0)
    if first.cpu_pressure and second.cpu_pressure:
        assert second.cpu_pressure.some.total_usec > first.cpu_pressure.some.total_usec


def test_memory_and_processes_match_the_kernel_s_files(tree: Tree) -> None:
    path = tree.make("/memory")
    readers = CgroupReaders(tree.host)
    with running(tree, path, "data = b'x' * 50_000_000\nimport time; time.sleep(60)"):
        wanted = 50_000_000
        for _ in range(600):
            sample = readers.read(path)
            if sample and sample.memory and (sample.memory.rss_bytes or 0) >= wanted:
                break
            time.sleep(0.05)
        assert sample and sample.memory and sample.processes
        name = "memory.current" if tree.host.version == "v2" else "memory.usage_in_bytes"
        root = tree.host.controllers.get("memory") or tree.host.unified
        independent = int(Path(str(root), path[1:], name).read_text())
        sample = readers.read(path)
        assert sample and sample.memory and sample.memory.usage_bytes is not None
        assert abs(sample.memory.usage_bytes - independent) < 4_000_000
        assert sample.memory.working_set_bytes is not None
        assert wanted <= sample.memory.working_set_bytes <= sample.memory.usage_bytes
        assert sample.processes and sample.processes.processes == 1
    readers.close()


def test_a_cgroup_removed_between_two_passes_leaves_no_descriptor(tree: Tree) -> None:
    path = tree.make("/gone")
    before = len(os.listdir("/proc/self/fd"))
    readers = CgroupReaders(tree.host)
    assert readers.read(path)
    tree.remove("/gone")
    assert readers.read(path) is None
    assert not readers.context.errors
    assert len(os.listdir("/proc/self/fd")) <= before  # earlier tests may close theirs
    tree.make("/gone")
    assert readers.read(path), "made anew under its old name"
    tree.remove("/gone")
    tree.make("/gone")
    assert readers.read(path), "even between two passes"
    readers.close()
    assert len(os.listdir("/proc/self/fd")) <= before  # earlier tests may close theirs


def test_hundreds_of_short_lived_cgroups_leave_nothing_behind(tree: Tree) -> None:
    readers = CgroupReaders(tree.host, fd_budget=100)
    before = len(os.listdir("/proc/self/fd"))
    for round_ in range(20):
        names = [f"/{round_}-{index}" for index in range(20)]
        paths = [tree.make(name) for name in names]
        readers.retain(paths)
        assert all(readers.read(path) for path in paths)
        for name in names[::2]:
            tree.remove(name)
        assert [readers.read(path) is None for path in paths] == [True, False] * 10
        for name in names[1::2]:
            tree.remove(name)
    readers.retain([])
    assert (len(readers), readers.context.fds_left, readers.context.errors) == (0, 100, {})
    assert len(os.listdir("/proc/self/fd")) <= before  # earlier tests may close theirs


def test_a_pass_costs_at_most_three_times_its_bare_reads(tree: Tree) -> None:
    paths = [tree.make(f"/c{index}") for index in range(60)]
    ends = itertools.cycle((b"", b"\n"))  # every pass finds other texts than the last
    end = next(ends)
    fds = set()

    def pread(fd: int, size: int, offset: int) -> bytes:
        fds.add(fd)
        return os.pread(fd, size, offset) + end

    readers = CgroupReaders(tree.host, fd_budget=10_000, pread=pread)
    for path in paths:
        readers.read(path)

    def bare() -> None:
        for fd in sorted(fds):
            pread(fd, 4096, 0)

    def ours() -> None:
        nonlocal end
        end = next(ends)
        for path in paths:
            readers.read(path)

    costs: dict[Callable[[], None], list[int]] = {bare: [], ours: []}
    for _ in range(60):
        for work, taken in costs.items():
            begun = time.thread_time_ns()
            work()
            taken.append(time.thread_time_ns() - begun)
    readers.close()
    # The least disturbed of each: others on the machine take caches, which costs either its part.
    assert min(costs[ours]) <= 3.0 * min(costs[bare]), costs
