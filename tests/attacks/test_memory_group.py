"""Memory in a control group: all that a tenant may do at once, where the kernel kills at a limit.

The server reads its group's limit by itself, and refuses and gives up before it is reached.
`test_memory.py` judges each attack alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attacks import harness
from tests.attacks.harness import OPERATOR, TENANT, Attacked
from tests.attacks.test_memory import BIG, LISTED, OBJECTS, TABLE, big, unread
from tests.conftest_runtime import CGROUPS, remove_pod_cgroups

pytestmark = pytest.mark.alone  # what is cut late takes memory, and a busy machine is late

MIB = 1 << 20
LIMIT_MIB = 500
NAMESPACE_UNBOUNDED = (
    "--max-namespace-mib=0"  # else that bound refuses, long before memory is short
)
ENTER = """
import os, sys
from pathlib import Path
Path(sys.argv[1]).write_text("0")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@dataclass
class Group:
    """A control group of either version with a limit of memory, and the most that it used."""

    directory: Path
    most_mib: float = 0.0

    def program(self) -> tuple[str, ...]:
        """The server's, which enters the group before it begins."""
        return ("-c", ENTER, str(self.directory / "cgroup.procs"), *harness.PROGRAM)

    def used_mib(self) -> float:
        """What the limit counts, without what the kernel takes back before it kills."""
        used = self._first("memory.current", "memory.usage_in_bytes")
        stat = _table(self.directory / "memory.stat")
        prefix = "total_" if "total_inactive_file" in stat else ""
        return (used - stat[f"{prefix}inactive_file"] - stat[f"{prefix}active_file"]) / MIB

    def killed(self) -> int:
        """How often the kernel met the limit in vain, or killed for it."""
        counts = self.directory / "memory.events"
        told = _table(counts if counts.exists() else self.directory / "memory.oom_control")
        return told["oom_kill"] + told.get("oom", 0) + told.get("under_oom", 0)

    @contextmanager
    def sampled(self) -> Iterator[None]:
        done = threading.Event()

        def sample() -> None:
            while not done.wait(0.05):
                self.most_mib = max(self.most_mib, self.used_mib())

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            yield
        finally:
            done.set()
            sampler.join()

    def _first(self, *names: str) -> int:
        files = (self.directory / name for name in names)
        return int(next(file for file in files if file.exists()).read_text())


def _table(file: Path) -> dict[str, int]:
    rows = map(str.split, file.read_text().splitlines())
    return {name: int(value) for name, value in rows}


@contextmanager
def limited() -> Iterator[Group]:
    """A group of its own, gone at the end."""
    v1 = CGROUPS / "memory"
    top = v1 if v1.is_dir() else CGROUPS
    directory = top / f"orchattacked-{os.getpid()}"
    limit = directory / ("memory.limit_in_bytes" if top == v1 else "memory.max")
    try:
        if top == CGROUPS:
            (top / "cgroup.subtree_control").write_text("+memory")
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a control group: {error}")
    try:
        limit.write_text(str(LIMIT_MIB * MIB))
        for swap, most in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", LIMIT_MIB)):
            if (directory / swap).exists():
                (directory / swap).write_text(str(most * MIB))
        yield Group(directory)
    finally:
        remove_pod_cgroups(f"/{directory.name}")


def attack(target: Attacked, stack: contextlib.ExitStack) -> Counter[int]:
    """The answers to what was written meanwhile."""
    codes = Counter(big(target, "POST", f"big{number}") for number in range(LISTED))
    for _ in range(400):
        stack.enter_context(unread(target, TENANT, OBJECTS))
    for _ in range(60):
        path = f"{OBJECTS}?includeObject=Object"
        stack.enter_context(unread(target, TENANT, path, accept=TABLE))
    for number in range(100):
        selector = f"&labelSelector=n!%3Dx{number}" if number % 2 else ""
        path = f"{OBJECTS}?watch=1&resourceVersion=0{selector}"
        stack.enter_context(unread(target, TENANT, path))
    for number in range(150):
        codes[big(target, "PUT", f"big{number % LISTED}", BIG + str(number))] += 1
    for number in range(450):  # without refusals more than the limit
        codes[big(target, "POST", f"more{number}")] += 1
    return codes


def test_a_tenant_is_refused_before_the_kernel_kills_the_server(tmp_path: Path) -> None:
    flags = (harness.AT_ANY_RATE, NAMESPACE_UNBOUNDED)
    with (
        limited() as group,
        harness.attacked(tmp_path, *flags, program=group.program()) as target,
    ):
        with target.witnessed() as seen, group.sampled(), contextlib.ExitStack() as stack:
            codes = attack(target, stack)
        figures = f"{group.most_mib:.0f} of {LIMIT_MIB} MiB at most; {dict(codes)}; {seen}"
        print(figures)
        assert target.server.process.poll() is None, figures
        assert group.killed() == 0, figures
        assert 0 < group.most_mib < LIMIT_MIB, figures
        page = target.ask(OPERATOR, "GET", "/metrics").body.decode()
        (known,) = re.findall(r"^apiserver_memory_limit_bytes (\S+)", page, re.MULTILINE)
        assert float(known) == LIMIT_MIB * MIB
        assert codes[429] > 0 and set(codes) == {200, 201, 429}, figures
        assert "memory is short" in target.server.log()
        # A neighbour is a tenant, too, so it may be refused meanwhile; a node never is.
        assert seen.requests > seen.refused, figures
        assert seen.renewals_refused == 0 and seen.errors == 0, figures
        assert seen.lease_late_s <= 5.0, figures
