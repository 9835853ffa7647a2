"""The machine outside cgroups: constant facts, and its own counters.

Facts and huge pages are read once at start; load, swap and pressure once per sampling pass. Every
root is a parameter. A missing or unreadable file leaves its fact empty; nothing here raises.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from nodeagent import psi
from nodeagent.psi import Pressure
from nodeagent.stats.cgroup import values
from nodeagent.stats.samples import RlimitSample, SwapSample
from orch.component.process import system
from orch.component.process.system import Hardware

log = logging.getLogger(__name__)

_OTHER_OPEN_FILES = 1024  # connections, logs, what the budget of cgroup files does not count
_GO_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i386": "386",
    "i686": "386",
}


@dataclass(frozen=True, slots=True)
class HostFacts(Hardware):
    """Constant while the machine runs; empty text and 0 mean "unknown"."""

    boot_id: str
    machine_id: str
    system_uuid: str
    kernel_version: str
    os_image: str
    architecture: str  # as image indexes write it: amd64, arm64, …
    operating_system: str
    hostname: str
    pid_max: int
    sockets: int = 0
    apparmor: bool = False  # whether profiles are enforced


def open_files_budget(wanted: int) -> int:
    """The number of wanted descriptors that this process may hold and still serve requests."""
    allowed = system.raise_open_files(wanted + _OTHER_OPEN_FILES)
    budget = wanted if allowed < 0 else max(0, min(wanted, allowed - _OTHER_OPEN_FILES))
    if budget < wanted:
        log.warning(
            "only %d open files are allowed: %d of the %d in openFileBudget can hold the kernel's "
            "files open (raise LimitNOFILE)",
            allowed,
            budget,
            wanted,
        )
    return budget


def read_host_facts(
    proc_root: str = "/proc",
    sys_root: str = "/sys",
    etc_root: str = "/etc",
    *,
    hardware: Callable[[], Hardware] = system.read_hardware,
) -> HostFacts:
    """Read everything once; the architecture comes from the kernel."""
    proc, sys, etc = Path(proc_root), Path(sys_root), Path(etc_root)
    machine = os.uname().machine
    return HostFacts(
        **asdict(hardware()),
        boot_id=read_text(proc / "sys/kernel/random/boot_id"),
        machine_id=read_text(etc / "machine-id"),
        system_uuid=read_text(sys / "class/dmi/id/product_uuid"),
        kernel_version=read_text(proc / "sys/kernel/osrelease"),
        os_image=_os_image(etc),
        architecture=_GO_ARCHITECTURES.get(machine, machine),
        operating_system="linux",
        hostname=read_text(proc / "sys/kernel/hostname"),
        pid_max=read_number(proc / "sys/kernel/pid_max") or 0,
        sockets=_sockets(sys),
        apparmor=read_text(sys / "module/apparmor/parameters/enabled") == "Y",
    )


def read_meminfo(proc_root: str) -> dict[str, int]:
    """/proc/meminfo in bytes; lines without an amount are skipped."""
    amounts = {}
    for line in read_text(Path(proc_root, "meminfo")).splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        value = values.parse_number(words[0].encode()) if words else None
        if value is not None:
            amounts[key] = value * 1024 if words[1:] == ["kB"] else value
    return amounts


_VMSTAT = values.LineNumbers("oom_kill")


def read_oom_kills(proc_root: str) -> int | None:
    """Processes killed by the kernel for lack of memory, in any cgroup; None before Linux 4.13."""
    return _VMSTAT(read_bytes(proc_root, "vmstat"))[0]


def swap_of(meminfo: dict[str, int], time_ns: int) -> SwapSample | None:
    """Swap of the machine; None when meminfo lacks it."""
    total, free = meminfo.get("SwapTotal"), meminfo.get("SwapFree")
    if total is None or free is None:
        return None
    return SwapSample(time_ns, total, max(total - free, 0))


def cgroup_of(proc_root: str = "/proc", pid: int | str = "self") -> str | None:
    """The cgroup of a process; None without one, or when it is the root.

    In version 1 every hierarchy has its own; those of cpu and memory must agree.
    """
    paths = set()
    for line in read_text(Path(proc_root, str(pid), "cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or {"cpuacct", "memory"} & set(controllers.split(",")):
            paths.add((number == "0", path))
    of_v1 = {path for is_v2, path in paths if not is_v2}
    of_v2 = {path for is_v2, path in paths if is_v2}
    found = of_v1 or of_v2
    if len(found) != 1:
        return None
    (path,) = found
    return path if path not in ("", "/") and ".." not in path else None


def read_rlimit(proc_root: str, time_ns: int) -> RlimitSample:
    """The limit of tasks, which is the smaller of pid_max and threads-max, and their number."""
    kernel = Path(proc_root, "sys/kernel")
    limits = [read_number(kernel / "pid_max"), read_number(kernel / "threads-max")]
    known = [limit for limit in limits if limit is not None]
    return RlimitSample(
        time_ns, min(known, default=None), count_tasks(read_text(Path(proc_root, "loadavg")))
    )


def count_tasks(loadavg: str) -> int | None:
    """`0.01 0.02 0.03 2/345 6789` → 345; None for a text of another form."""
    words = loadavg.split()
    if len(words) < 5:
        return None
    return values.parse_number(words[3].partition("/")[2].encode())


def read_bytes(root: str, name: str) -> bytes:
    """A file below `root`; empty when it cannot be read."""
    try:
        return Path(root, name).read_bytes()
    except OSError:
        return b""


def read_pressure(proc_root: str, kind: str) -> tuple[Pressure | None, str]:
    """The machine's pressure, and the kernel's support of it: supported, disabled or absent.

    `kind` is cpu, memory or io.
    """
    try:
        with Path(proc_root, "pressure", kind).open("rb", buffering=0) as file:
            pressure = psi.parse_pressure(file.read(4096) or b"")
    except OSError as error:
        return None, "disabled" if error.errno == errno.EOPNOTSUPP else "absent"
    return pressure, "supported" if pressure is not None else "absent"


def _sockets(sys: Path) -> int:
    """The number of CPU sockets, 0 when sysfs lacks it."""
    packages = (sys / "devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    return len({read_text(package) for package in packages} - {""})


def _os_image(etc: Path) -> str:
    for line in read_text(etc / "os-release").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return ""


def read_number(path: Path) -> int | None:
    """The number that a file holds; None when it is not a number or cannot be read."""
    return values.parse_number(read_text(path).encode())


def read_text(path: Path) -> str:
    """The content without surrounding blanks; empty when it cannot be read."""
    return read_bytes(str(path.parent), path.name).decode("utf-8", "replace").strip()


_FOLDER = re.compile(r"hugepages-([0-9]+)kB")


def read_hugepages(sys_root: str = "/sys") -> dict[int, int]:
    """Huge pages that the kernel reserved: page size → all pages of that size, in bytes."""
    found = {}
    for folder in Path(sys_root, "kernel/mm/hugepages").glob("hugepages-*"):
        match = _FOLDER.fullmatch(folder.name)
        pages = read_number(folder / "nr_hugepages")
        if match and pages is not None:
            size_bytes = int(match[1]) * 1024
            found[size_bytes] = pages * size_bytes
    return found
