"""Finds and removes cgroups that containers left behind, in v1, v2 and hybrid layouts."""

import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from . import processes, sharing

_LEAVING_S = 5.0
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


def container_ids(state: Path, running: Collection[processes.Process]) -> set[str]:
    """Name the containers of an instance: those with a task in `state`, and those that run."""
    tasks = state.glob("io.containerd.runtime.v2.task/*/*")
    ids = {task.name for task in tasks}
    contained = [process for process in running if not process.private]
    for path in processes.cgroups_of(contained):
        ids |= {part for part in path.split("/") if _CONTAINER_ID.fullmatch(part)}
    return ids


def of_containers(ids: Collection[str]) -> list[Path]:
    """List the cgroups of containers in all hierarchies."""
    if not ids:
        return []
    return [
        Path(directory) / name
        for hierarchy in _hierarchies()
        for directory, names, _ in os.walk(hierarchy)
        for name in names
        if name in ids
    ]


def thaw(cgroups: Collection[Path]) -> None:
    """Let frozen containers run again: what is frozen by cgroup v1 does not die when killed."""
    for cgroup in cgroups:
        for name, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            control = cgroup / name
            if control.exists():
                control.write_text(value)


def remove(cgroups: Collection[Path]) -> None:
    """Remove cgroups, and the parents that only existed for them: those left without children.

    What was killed a moment ago still leaves its cgroup. One that goes on to have processes or
    children refuses, and stays.
    """
    roots = set(_hierarchies())
    until_s = time.monotonic() + _LEAVING_S
    for cgroup in cgroups:
        for directory, _, _ in os.walk(cgroup, topdown=False):
            while not _remove_one(Path(directory)) and time.monotonic() < until_s:
                time.sleep(0.01)
        parent = cgroup.parent
        while parent not in roots and _remove_one(parent):
            parent = parent.parent


def _remove_one(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _hierarchies() -> Iterator[Path]:
    """Yield the mount point of every cgroup hierarchy."""
    for fields in sharing.mounts():
        if fields[fields.index("-") + 1] in ("cgroup", "cgroup2"):
            yield Path(fields[4])
