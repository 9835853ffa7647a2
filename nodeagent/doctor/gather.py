"""Facts of this host: kernel files, limits, ports, disks, tools. Reads only, and never raises.

What is concluded from them is `kernel` and `checks`. Blocking: the commands call it, no daemon.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
from pathlib import Path

from nodeagent.doctor import criu, kernel
from nodeagent.doctor.checks import DiskFacts, PortFacts
from nodeagent.doctor.kernel import KernelFacts
from nodeagent.profiles.file import MAX_PROFILE_BYTES
from nodeagent.stats.host.machine import read_pressure, read_text
from orch.component.process import system

READ, WRITE = 0o044, 0o022
_PRESSURES = ("cpu", "memory", "io")


def read_kernel(proc_root: str = "/proc") -> KernelFacts:
    names = [*(name for name, _ in kernel.SYSCTLS), kernel.IPVS_SYSCTL]
    sysctls = Path(proc_root, "sys")
    return KernelFacts(
        release=read_text(sysctls / "kernel/osrelease"),
        sysctls=frozenset(n for n in names if (sysctls / n.replace(".", "/")).exists()),
        nft=criu.version_of(["nft"]),
        psi={one: read_pressure(proc_root, one)[1] for one in _PRESSURES},
    )


def read_controllers(cgroup_root: str = "/sys/fs/cgroup") -> frozenset[str]:
    """The controllers of cgroup v2; empty on version 1."""
    return frozenset(read_text(Path(cgroup_root, "cgroup.controllers")).split())


def read_capabilities(proc_root: str = "/proc") -> int | None:
    """The effective set of this process as a bit mask; None when /proc does not tell."""
    text = _status_field(proc_root, "CapEff")
    return int(text, 16) if text else None


def has_seccomp(proc_root: str = "/proc") -> bool:
    return bool(_status_field(proc_root, "Seccomp"))


def bad_profiles(directory: str) -> tuple[str, ...]:
    """What is wrong with the profiles below a directory, one text per bad file."""
    return tuple(
        f"{path}: {problem}"
        for path in sorted(Path(directory).rglob("*.json"))
        if (problem := _profile_problem(path))
    )


def read_disk(path: str) -> DiskFacts | None:
    """The file system that holds a path, or will hold it; None when that cannot be told."""
    there = Path(path).absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        found = os.statvfs(there)
    except OSError:
        return None
    inodes = 100.0 * found.f_favail / found.f_files if found.f_files else 100.0
    return DiskFacts(path, 100.0 * found.f_bavail / max(found.f_blocks, 1), inodes)


def read_descriptors(proc_root: str = "/proc") -> tuple[int, int, int]:
    """This process's limit, what the system has open, and the system's limit (0: unknown)."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    words = read_text(Path(proc_root, "sys/fs/file-nr")).split()
    used, most = (int(words[0]), int(words[2])) if len(words) == 3 else (0, 0)
    return limit, used, most


def read_lock(path: str, proc_root: str = "/proc") -> tuple[int | None, str]:
    """Who holds a lock file (None: nobody), and why it could not be made (""). Opens nothing."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        folder = Path(path).absolute().parent
        return None, "" if os.access(folder, os.W_OK) else f"{folder} cannot be written"
    except OSError as error:
        return None, error.strerror or str(error)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in read_text(Path(proc_root, "locks")).splitlines():
        words = line.split()  # 1: POSIX ADVISORY WRITE 123 fe:01:456 0 EOF
        if len(words) >= 6 and words[1] == "POSIX" and words[5] == device:
            return int(words[4]), ""
    return None, ""


def read_port(role: str, address: str, port: int) -> PortFacts:
    """Whether one could listen there; SO_REUSEADDR is set, as servers do."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            probe.listen(1)
    except (OSError, OverflowError) as error:
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        pid = system.listening_process(port) if in_use else None
        holder = system.describe_process(pid) if pid else ""
        why = str(getattr(error, "strerror", None) or error)
        return PortFacts(role, address, port, why, holder)
    return PortFacts(role, address, port)


def is_open_to_others(path: str, rights: int) -> bool:
    """Whether group or others have one of the rights (READ, WRITE) on a file that is there."""
    try:
        return bool(os.stat(path).st_mode & rights)
    except OSError:
        return False


def _profile_problem(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_PROFILE_BYTES:
            return f"larger than {MAX_PROFILE_BYTES} bytes"
        profile = json.loads(path.read_bytes())
    except OSError as error:
        return error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(profile, dict) or not isinstance(profile.get("defaultAction"), str):
        return "no seccomp profile: defaultAction is missing"
    return ""


def _status_field(proc_root: str, name: str) -> str:
    for line in read_text(Path(proc_root, "self/status")).splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return ""
