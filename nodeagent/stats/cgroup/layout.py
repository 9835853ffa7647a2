"""The layout of a host's cgroup files.

A layout (version 1, version 2, or hybrid: controllers in version 1, pressure files only in the
version 2 tree beside them) says which file of which hierarchy holds which number. Everything is
found below one injected root, so that tests use captured trees. `ReadContext` is what the readers
of all cgroups share. Nothing here reads a number; that is `reader`.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nodeagent import psi
from nodeagent.stats.cgroup import values

# Positions of the values that every pass reads; a layout fills those it has.
CPU, CPU_TIMES, CPU_THROTTLE = 0, 1, 2
MEMORY_USAGE, MEMORY_STAT, MEMORY_EVENTS, SWAP = 3, 4, 5, 6
THREADS, PROCESSES = 7, 8
IO_BYTES, IO_OPERATIONS = 9, 10
PSI_CPU, PSI_MEMORY, PSI_IO = 11, 12, 13
POSITIONS = 14
PSI_POSITIONS = {PSI_CPU: "cpu", PSI_MEMORY: "memory", PSI_IO: "io"}

# A cgroup is idle while these do not change: no task of it runs, none is moved, none of its memory
# is reclaimed. A value that only such activity changes is then constant too (a killed task still
# runs to its end).
ACTIVITY = (CPU, MEMORY_USAGE, THREADS)
CHANGED_FROM_OUTSIDE = (MEMORY_STAT, PROCESSES)  # rarely, without a trace in `ACTIVITY`
_STABLE_WHILE_IDLE = frozenset({MEMORY_STAT, MEMORY_EVENTS, PROCESSES})


class CgroupFile(NamedTuple):
    """A file that every cgroup has: the root of its hierarchy, its name, its parser.

    `is_stable` says whether a text stays the same while the cgroup is idle; None: no text does.
    """

    position: int
    hierarchy: str
    name: str
    parse: Callable[[bytes], Any]
    is_stable: Callable[[bytes], bool] | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """`version` is v1, v2, hybrid or none; `controllers` maps a controller to its hierarchy.

    `sums` says that every number of a cgroup includes those of the cgroups below it.
    """

    version: str
    controllers: dict[str, str]
    unified: str | None
    files: tuple[CgroupFile, ...]
    sums: bool = True

    @property
    def sums_oom_kills(self) -> bool:
        """Whether a cgroup's OOM kills include those below it, as in version 2 alone."""
        return self.version == "v2"

    def directory(self, path: str) -> str | None:
        """A directory of the cgroup `path` that exists on every host of this layout."""
        root = self.unified if self.version == "v2" else self.controllers.get("memory")
        root = root or self.unified or next(iter(self.controllers.values()), None)
        return None if root is None else root + path.rstrip("/")


def detect_layout(cgroup_root: str) -> Layout:
    """Inspect the root; a host without cgroups has version `none` and no files."""
    root = Path(cgroup_root)
    if (root / "cgroup.controllers").is_file():
        return Layout("v2", {}, cgroup_root, _v2_files(cgroup_root))
    controllers = _find_controllers(root)
    unified = root / "unified"
    sums = _sums_memory(controllers)
    if not (unified / "cgroup.controllers").is_file():
        version = "v1" if controllers else "none"
        return Layout(version, controllers, None, _v1_files(controllers), sums)
    files = _v1_files(controllers) + _pressure_files(str(unified))
    return Layout("hybrid", controllers, str(unified), files, sums)


def _sums_memory(controllers: dict[str, str]) -> bool:
    """Whether version 1 charges memory to parent cgroups too; the root's setting is inherited."""
    try:
        return Path(controllers["memory"], "memory.use_hierarchy").read_bytes().strip() == b"1"
    except (KeyError, OSError):
        return False


def _find_controllers(root: Path) -> dict[str, str]:
    wanted = ("cpu", "cpuacct", "memory", "pids", "blkio")
    found: dict[str, str] = {}
    if not root.is_dir():
        return found
    for entry in sorted(root.iterdir()):
        for controller in entry.name.split(","):  # the mount may be named cpu,cpuacct
            if controller in wanted and (entry / "cgroup.procs").is_file():
                found.setdefault(controller, str(entry))
    return found


def _v2_files(root: str) -> tuple[CgroupFile, ...]:
    rows = (
        (CPU, "cpu.stat", values.parse_cpu_stat),
        (MEMORY_USAGE, "memory.current", values.parse_number),
        (MEMORY_STAT, "memory.stat", values.parse_memory_stat),
        (MEMORY_EVENTS, "memory.events", values.parse_memory_events),
        (SWAP, "memory.swap.current", values.parse_number),
        (THREADS, "pids.current", values.parse_number),
        (PROCESSES, "cgroup.procs", values.count_lines),
        (IO_BYTES, "io.stat", values.parse_io_stat),
    )
    files = (_file(at, root, name, parse, _STABLE_WHILE_IDLE) for at, name, parse in rows)
    return tuple(files) + _pressure_files(root)


def _v1_files(controllers: dict[str, str]) -> tuple[CgroupFile, ...]:
    rows = (
        (CPU, "cpuacct", "cpuacct.usage", values.parse_number),
        (CPU_TIMES, "cpuacct", "cpuacct.stat", values.parse_cpuacct_stat),
        (CPU_THROTTLE, "cpu", "cpu.stat", values.parse_throttling),
        (MEMORY_USAGE, "memory", "memory.usage_in_bytes", values.parse_number),
        (MEMORY_STAT, "memory", "memory.stat", values.parse_memory_stat_v1),
        (MEMORY_EVENTS, "memory", "memory.oom_control", values.parse_oom_control),
        (THREADS, "pids", "pids.current", values.parse_number),
        (PROCESSES, "pids", "cgroup.procs", values.count_lines),
        (IO_BYTES, "blkio", "blkio.throttle.io_service_bytes_recursive", values.parse_blkio),
        (IO_OPERATIONS, "blkio", "blkio.throttle.io_serviced_recursive", values.parse_blkio),
    )
    # Version 1 charges a cgroup for what its own tasks submit, and not for writeback.
    stable = _STABLE_WHILE_IDLE | {CPU_TIMES, IO_BYTES, IO_OPERATIONS}
    return tuple(
        _file(at, controllers[controller], name, parse, stable)
        for at, controller, name, parse in rows
        if controller in controllers
    )


def _file(
    position: int, root: str, name: str, parse: Callable[[bytes], Any], stable: frozenset[int]
) -> CgroupFile:
    return CgroupFile(position, root, name, parse, _any_text if position in stable else None)


def _any_text(_: bytes) -> bool:
    return True


def _pressure_files(root: str) -> tuple[CgroupFile, ...]:
    """A task waits for a cpu without running; before it waits for memory or a disk, it ran."""
    return tuple(
        CgroupFile(
            at,
            root,
            f"{resource}.pressure",
            psi.parse_pressure,
            None if at == PSI_CPU else psi.has_no_averages,
        )
        for at, resource in PSI_POSITIONS.items()
    )


Pread = Callable[[int, int, int], bytes]


class ReadContext:
    """Shared by all readers: the layout, the budget of descriptors, and counts of failures.

    `errors` counts failed and malformed files by file name, `slow` the slow ones; `psi` maps a
    resource to whether this host's cgroups report its pressure: supported, disabled (psi=0) or
    absent.
    """

    def __init__(self, host: Layout, *, pread: Pread, fd_budget: int) -> None:
        self.layout = host
        self.pread = pread
        self.fds_left = fd_budget
        self.errors: Counter[str] = Counter()
        self.slow: Counter[str] = Counter()
        self.psi: dict[str, str] = {}
        self.width = len(host.files)

    def note_failure(self, file: CgroupFile, error: OSError) -> None:
        """Count an error; pressure that the kernel does not offer is a fact, not an error."""
        resource = PSI_POSITIONS.get(file.position)
        if resource and error.errno in (errno.EOPNOTSUPP, errno.ENOENT):
            if error.errno == errno.ENOENT:
                self.psi.setdefault(resource, "absent")  # maybe for this cgroup alone
            elif self.psi.get(resource) != "supported":
                self.psi[resource] = "disabled"
        elif error.errno != errno.ENOENT:
            self.errors[file.name] += 1

    def note_value(self, file: CgroupFile, value: Any) -> None:
        """Take the first value of a file, and None for every text that cannot be parsed."""
        if value is None:
            self.errors[file.name] += 1
        elif file.position in PSI_POSITIONS:
            self.psi[PSI_POSITIONS[file.position]] = "supported"
