"""Open descriptors and sockets of a container's processes, and their limit; their own memory.

Only /proc has it, process by process and descriptor by descriptor, so it is refreshed at the slow
interval of directory walks, within a budget of time; containers that did not run since are skipped.
Every value has its own stamp. A process that ends meanwhile does not count; when access to a
process is denied, or a container has more than MAX_COUNTED, there is no sum at all.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nodeagent.stats.cgroup import values
from nodeagent.stats.samples import CgroupSample, ProcessUse
from orch.component.process import clock
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

REFRESH_BUDGET_S = 5.0
MAX_COUNTED = 100_000  # processes and descriptors of a container: half a second
_OPEN_FILES = "Max open files"
_OWN_MEMORY = re.compile(rb"^(?:RssAnon|VmSwap):\s+([0-9]+) kB$", re.MULTILINE)


class ContainerProcesses(NamedTuple):
    """A container's cgroup.procs file, and its cgroup as sampled before."""

    procs_file: str
    cgroup: CgroupSample


class ProcessUsage:
    """`latest` has the containers, by id, that a refresh reached.

    `duration_s` is that of the last full refresh.
    """

    def __init__(
        self,
        proc_root: str = "/proc",
        *,
        budget_s: float = REFRESH_BUDGET_S,
        wall_ns: Callable[[], int] = clock.wall_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.duration_s = 0.0
        self._proc_root = proc_root
        self._budget_s = budget_s
        self._wall_ns = wall_ns
        self._monotonic_s = monotonic_s
        self.latest: dict[str, ProcessUse] = {}
        self._ran_nsec: dict[str, int | None] = {}  # the cpu time before a value was read
        self._overruns = OnceLog(log)

    def refresh(self, containers: Mapping[str, ContainerProcesses]) -> None:
        """Read all containers (by id) that ran since the last time, the oldest values first."""
        for gone in self.latest.keys() - containers.keys():
            del self.latest[gone], self._ran_nsec[gone]
        begun_s = self._monotonic_s()
        if self._read(sorted(containers, key=self._age), containers):
            self._overruns.recovered()
        else:
            self._overruns.failed(
                "counting all open files takes more than %g s: some have an older stamp",
                self._budget_s,
            )
        self.duration_s = self._monotonic_s() - begun_s

    def refresh_new(self, containers: Mapping[str, ContainerProcesses]) -> None:
        """Read the containers that were never read, within the same budget."""
        self._read([id_ for id_ in containers if id_ not in self.latest], containers)

    def _read(self, ids: Iterable[str], containers: Mapping[str, ContainerProcesses]) -> bool:
        """Read in order; False when the budget does not suffice."""
        ends_s = self._monotonic_s() + self._budget_s
        for container_id in ids:
            if self._monotonic_s() > ends_s:
                return False
            self.latest[container_id] = self._use(container_id, containers[container_id])
        return True

    def _use(self, container_id: str, container: ContainerProcesses) -> ProcessUse:
        known, cpu = self.latest.get(container_id), container.cgroup.cpu
        before_nsec = self._ran_nsec.get(container_id)
        self._ran_nsec[container_id] = cpu.usage_nsec if cpu else None
        if known and cpu and cpu.usage_nsec == before_nsec:
            return known._replace(time_ns=max(known.time_ns, container.cgroup.time_ns))
        pids = read_pids(container.procs_file)
        return read_process_use(self._proc_root, pids, self._wall_ns())

    def _age(self, container_id: str) -> int:
        value = self.latest.get(container_id)
        return value.time_ns if value else 0


def read_pids(procs_file: str) -> list[int]:
    """The processes of a cgroup; empty when it is gone."""
    try:
        lines = Path(procs_file).read_bytes().split()
    except OSError:
        return []
    return [int(line) for line in lines if line.isdigit()]


def read_process_use(proc_root: str, pids: Iterable[int], time_ns: int) -> ProcessUse:
    """Sums over the processes, None for too many; the limit is that of the first readable one."""
    descriptors = sockets = 0
    limit: int | None = None
    for number, pid in enumerate(pids):
        directory = f"{proc_root}/{pid}"
        limit = _open_files_limit(directory) if limit is None else limit
        found = _count(f"{directory}/fd", MAX_COUNTED - descriptors - number)
        if found is None:
            return ProcessUse(time_ns, None, None, limit)
        descriptors += found[0]
        sockets += found[1]
    return ProcessUse(time_ns, descriptors, sockets, limit)


def own_memory_bytes(pids: Iterable[str], proc: Path = Path("/proc")) -> int:
    """Of processes: a page that several have since a fork counts for each. Blocking I/O."""
    found_kib = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has exited
            found_kib += sum(map(int, _OWN_MEMORY.findall((proc / pid / "status").read_bytes())))
    return found_kib * 1024


def parse_open_files_limit(limits: str) -> int | None:
    """The soft limit in /proc/<pid>/limits; -1 when unlimited, None when it is missing."""
    for line in limits.splitlines():
        if line.startswith(_OPEN_FILES):
            words = line.removeprefix(_OPEN_FILES).split()
            if words and words[0] == "unlimited":
                return -1
            return values.parse_number(words[0].encode()) if words else None
    return None


def _count(directory: str, most: int) -> tuple[int, int] | None:
    """Descriptors, and how many of them are sockets; None without access, or beyond `most`."""
    descriptors = sockets = 0
    try:
        with os.scandir(directory) as entries:
            for entry in itertools.islice(entries, max(0, most + 1)):
                descriptors += 1
                sockets += _is_socket(entry.path)
    except PermissionError:
        return None
    except OSError:
        pass  # the process ended: what was counted so far counts
    return None if descriptors > most else (descriptors, sockets)


def _is_socket(path: str) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except PermissionError:
        raise
    except OSError:
        return False


def _open_files_limit(directory: str) -> int | None:
    try:
        return parse_open_files_limit(Path(directory, "limits").read_text())
    except (OSError, ValueError):
        return None
