"""A machine in namespaces of this one: systemd as process 1 over an overlay of the test root.

It has its own mounts, processes, host name, network (loopback alone) and cgroup tree, and shares
the kernel, so that a boot takes half a second. On a hybrid host its cgroups have no cpu and memory
controllers: limits have no effect in it, pressure files are real. It needs root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.runtime_lib.progress import RuntimeToolError
from tools.testbed.machine import Machine

_BOOT_S = 60.0
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin", "HOME": "/root", "LANG": "C.UTF-8"}
_NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--cgroup", "--net")

# $1 is the root below, $2 an empty directory of our own; the rest are pairs of what to show where.
_INIT = """
set -eu
lower=$1 own=$2
shift 2
mount -n -t tmpfs -o mode=755 tmpfs "$own"
mkdir "$own/upper" "$own/work" "$own/root"
mount -n -t overlay -o "lowerdir=$lower,upperdir=$own/upper,workdir=$own/work" overlay "$own/root"
cd "$own/root"
mount -n -t proc proc proc
mount -n -t sysfs sysfs sys
mount -n -t cgroup2 cgroup2 sys/fs/cgroup
mount -n -t tmpfs -o mode=755 tmpfs run
mount -n -t tmpfs -o mode=1777 tmpfs tmp
mount -n -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount -n --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -n -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
while [ $# -gt 0 ]; do
  if [ -d "$1" ]; then mkdir -p ".$2"; else mkdir -p ".${2%/*}"; touch ".$2"; fi
  mount -n --bind "$1" ".$2"
  mount -n -o remount,bind,ro ".$2"
  shift 2
done
mkdir old
pivot_root . old
cd /
umount -l /old
mount -n --make-rshared /
exec env -i container=testbed PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd --system
"""


@dataclass(frozen=True)
class BootedMachine(Machine):
    """A running system; `init` is the id of its process 1 as this machine sees it."""

    init: int

    def path(self, absolute: str) -> Path:
        """Where a file of the machine is for us."""
        return Path(f"/proc/{self.init}/root{absolute}")

    def entered(self) -> list[str]:
        """What makes a command line one of the machine."""
        return _inside(self.init)

    def run(
        self, *command: str, given: bytes = b"", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.entered(), *command],
            input=given,
            capture_output=True,
            timeout=timeout_s,
            env=_ENVIRONMENT,
        )
        out, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return subprocess.CompletedProcess(command, done.returncode, out, errors)


@contextmanager
def booted(
    root: Path, scratch: Path, shown: Sequence[tuple[Path, str]] = ()
) -> Iterator[BootedMachine]:
    """Boot, wait until the system runs, and stop it at the end.

    `shown` are files and directories of ours and where the machine sees them, read-only.
    """
    own = scratch / "machine"
    own.mkdir()
    cgroup = _cgroup_root() / f"testbed-{os.getpid()}-{time.monotonic_ns()}"
    cgroup.mkdir()
    pairs = [text for ours, theirs in shown for text in (str(ours), theirs)]
    script = f'echo 0 > "{cgroup}/cgroup.procs"; exec unshare "$@"'
    unshare = [*_NAMESPACES, "--fork", "--propagation", "private", "--"]
    command = ["sh", "-euc", script, "sh", *unshare, "sh", "-euc", _INIT, "sh", str(root), str(own)]
    with (scratch / "boot.log").open("wb") as log:
        starter = subprocess.Popen(
            [*command, *pairs], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        machine = BootedMachine(_init_of(starter, scratch / "boot.log"))
        _wait_running(machine)
        yield machine
    finally:
        _stop(starter)
        _remove_cgroup(cgroup)


def _cgroup_root() -> Path:
    """Where the version 2 hierarchy is mounted."""
    for place in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (place / "cgroup.procs").exists() and (place / "cgroup.controllers").exists():
            return place
    raise RuntimeToolError("this host has no cgroup version 2 hierarchy for a booted machine")


def _inside(pid: int) -> list[str]:
    return ["nsenter", "-t", str(pid), "-m", "-p", "-u", "-i", "-C", "-n", "--"]


def _init_of(starter: subprocess.Popen[bytes], log: Path) -> int:
    """The child of `unshare`, once it has become systemd."""
    children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")
    for _ in _tries():
        if starter.poll() is not None:
            raise RuntimeToolError(f"the machine did not boot: {log.read_text()}")
        with suppress(FileNotFoundError, ValueError):
            pid = int(children.read_text())
            if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                return pid
    raise RuntimeToolError(f"the machine did not boot: {log.read_text()}")


def _wait_running(machine: BootedMachine) -> None:
    state = ""
    for _ in _tries():
        state = machine.run("systemctl", "is-system-running").stdout.strip()
        if state in ("running", "degraded"):
            return
    raise RuntimeToolError(f"the machine did not come up: it is {state or 'silent'}")


def _tries() -> Iterator[None]:
    end_s = time.monotonic() + _BOOT_S
    while time.monotonic() < end_s:
        yield
        time.sleep(0.05)


def _stop(starter: subprocess.Popen[bytes]) -> None:
    """End process 1, and with it, by the kernel's rule, every process of the machine."""
    children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        os.kill(int(children.read_text()), signal.SIGKILL)
    try:
        starter.wait(timeout=10)
    except subprocess.TimeoutExpired:
        starter.kill()
        starter.wait()


def _remove_cgroup(top: Path) -> None:
    """Remove the cgroup and all below; the kernel needs a moment to see that they are empty."""
    for _ in range(100):
        with suppress(OSError):
            for directory, _, _ in os.walk(top, topdown=False):
                Path(directory).rmdir()
            return
        time.sleep(0.05)
    raise RuntimeToolError(f"cannot remove the machine's cgroups below {top}")
