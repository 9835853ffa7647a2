"""The processes of an instance, and how they are ended.

They are identified by the kernel, not by a record: a process belongs to an instance when its mount
table names the instance's own tmpfs (containerd, its shims and helpers), or when its root is in the
instance's storage (the containers). That holds after any crash, and a process ID reused by a
stranger is never mistaken.
"""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

_PROC = Path("/proc")


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """A process of an instance. `private` is false for what runs in a container."""

    pid: int
    command: Sequence[str]
    private: bool


def of_instance(marker: str) -> list[Process]:
    """List the living processes of the instance whose tmpfs and storage are named `marker`."""
    known: dict[str, bool | None] = {}
    found = []
    for pid in _pids():
        try:
            mounts = os.readlink(_PROC / str(pid) / "ns/mnt")
            if mounts not in known:
                known[mounts] = classify(_read(pid, "mountinfo"), marker)
            private = known[mounts]
            if private is not None:
                command = _read(pid, "cmdline").rstrip("\0").split("\0")
                found.append(Process(pid=pid, command=command, private=private))
        except OSError:  # it ended while we looked, or is a zombie
            continue
    return found


def classify(mountinfo: str, marker: str) -> bool | None:
    """Tell from a mount table whose process it is; pure.

    True: in the instance's namespace. False: in one of its containers. None: not of the instance.
    """
    contained = False
    for line in mountinfo.splitlines():
        if marker not in line:
            continue
        mounted, _, described = line.partition(" - ")
        if described.startswith(f"tmpfs {marker} "):
            return True
        if mounted.split(" ")[4] == "/" and f"/{marker}/" in line:
            contained = True
    return False if contained else None


def send(process: Process, number: signal.Signals, marker: str) -> None:
    """Send a signal to a process if it still is the instance's; no error when it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:  # asked again with the handle open: from here on the id cannot mean another process
        if classify(_read(process.pid, "mountinfo"), marker) is not None:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return
    finally:
        os.close(handle)


def is_stopped(process: Process) -> bool:
    """Tell whether a signal has stopped it: each thread stops when it is its turn to run."""
    states = set()
    for status in (_PROC / str(process.pid) / "task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            states.add(status.read_text().rpartition(")")[2].split()[0])
    return states == {"T"}


def mount_on(path: Path) -> bool:
    """Tell whether `path` is a mount point for any process on this machine."""
    seen = set()
    for pid in _pids():
        try:
            mounts = os.readlink(_PROC / str(pid) / "ns/mnt")
            if mounts not in seen and f" {path} " in _read(pid, "mountinfo"):
                return True
        except OSError:
            continue
        seen.add(mounts)
    return False


def see(directory: Path, place: str) -> bool:
    """Tell whether any process has `directory` mounted at /`place`, as the base at /usr."""
    if not directory.exists():
        return False
    wanted = directory.stat()
    for pid in _pids():
        try:
            if os.path.samestat(wanted, (_PROC / str(pid) / "root" / place).stat()):
                return True
        except OSError:
            continue
    return False


def cgroups_of(processes: Collection[Process]) -> set[str]:
    """Return the paths of the cgroups processes are in, below their hierarchy's root."""
    paths = set()
    for process in processes:
        try:
            lines = _read(process.pid, "cgroup").splitlines()
        except OSError:
            continue
        paths |= {line.split(":", 2)[2] for line in lines}
    return paths


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _read(pid: int, name: str) -> str:
    return (_PROC / str(pid) / name).read_text(errors="replace")
