"""Creates, bounds and removes single cgroups below a hierarchy's root; blocking, from a thread.

Which cgroups pods have, and their bounds, is in `pod_cgroups`.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import signal
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)

PARENT = "/orchpods"  # the cgroup of all pods, below the configured root
_NO_LIMIT = 2**62  # and more is what a v1 kernel calls unlimited memory


class CgroupError(Exception):
    """A cgroup cannot be removed; the text names it and the reason."""


def hierarchies(root: Path) -> dict[str, Path]:
    """Controller directory name → its path; v2 alone is `unified`."""
    if (root / "cgroup.controllers").exists():
        return {"unified": root}
    return {
        entry.name: Path(entry.path)
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False)
    }


def is_unified(root: Path) -> bool:
    """Whether the host has cgroup v2 alone; a hybrid one has it beside v1, without controllers."""
    return (root / "cgroup.controllers").exists()


def limits_swap(root: Path) -> bool:
    """Whether the kernel can limit what a cgroup v2 swaps; the root itself has no such file."""
    return any(root.glob("*/memory.swap.max"))


def make(name: str, hierarchy: Path, directory: Path) -> None:
    """Create a cgroup in the hierarchy `name`, or complete an existing one. OSError."""
    if name == "unified":
        _make_unified(hierarchy, directory)
        return
    directory.mkdir(parents=True, exist_ok=True)
    if name == "cpuset":
        _inherit_cpuset(hierarchy, directory)


def set_bounds(directory: Path, bounds: Mapping[str, str]) -> None:
    """Write values that differ, in the files that this hierarchy has. OSError."""
    for file, value in bounds.items():
        path = directory / file
        if path.exists() and path.read_text().strip() != value:
            path.write_text(value)


def move_bounds(directory: Path, bounds: Mapping[str, str], *, grow: bool) -> None:
    """Write those values that are above what is in force, or those that are below. OSError."""
    for file, value in bounds.items():
        path = directory / file
        if not path.exists():
            continue
        current, wanted = _height(path.read_text()), _height(value)
        if wanted != current and (wanted > current) is grow:
            path.write_text(value)


def _height(value: str) -> float:
    """The first number of a bound; above all others where there is none."""
    first = (value.split() or ["max"])[0]
    height = math.inf if first in ("max", "-1") else float(first)
    return height if height < _NO_LIMIT else math.inf


def _make_unified(root: Path, directory: Path) -> None:
    """Every ancestor passes its controllers on before the child is created."""
    current = root
    for part in directory.relative_to(root).parts:
        _enable_controllers(current)
        current = current / part
        current.mkdir(exist_ok=True)
    _enable_controllers(current)


def _enable_controllers(directory: Path) -> None:
    control = directory / "cgroup.subtree_control"
    if not control.exists():
        return
    available = (directory / "cgroup.controllers").read_text().split()
    missing = set(available) - set(control.read_text().split())
    for controller in sorted(missing):
        try:
            control.write_text(f"+{controller}")
        except OSError as error:
            log.debug("%s does not pass on %s: %s", directory, controller, error)


def _inherit_cpuset(root: Path, directory: Path) -> None:
    """A new v1 cpuset is empty and accepts no process until it has cpus and memory nodes."""
    current = root
    for part in directory.relative_to(root).parts:
        parent, current = current, current / part
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (current / file).exists() and not (current / file).read_text().strip():
                (current / file).write_text((parent / file).read_text())


def remove_cgroups(directory: Path) -> bool:
    """Remove a cgroup and those below it; False when processes had to be killed first."""
    gone = True
    for path, _, _ in os.walk(directory, topdown=False):
        try:
            Path(path).rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                raise CgroupError(f"cannot remove cgroup {path}: {error.strerror}") from error
            _kill_all(Path(path))
            gone = False
    return gone


def _kill_all(cgroup: Path) -> None:
    try:
        listed = [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:
        return  # removed meanwhile
    for pid in filter(None, listed):  # 0: of another namespace; kill(0) would kill the agent
        log.warning("killing process %d, left in cgroup %s of a pod that is gone", pid, cgroup)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
