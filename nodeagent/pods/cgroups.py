"""The cgroups of pods, in every hierarchy the host has: made with the pod, gone with it.

Works on cgroup v1, hybrid and v2 below an injected root. Containers' own cgroups are the
runtime's; this module makes their parent, `<parent>/pod<uid>`, and sets what bounds the pod as a
whole. Not being allowed to is no reason not to run the pod: it is logged once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from pathlib import Path

from nodeagent.pods import bounds
from orch.wire.pods import Pod

log = logging.getLogger(__name__)

_TRIES = 20
_PAUSE_S = 0.1


class CgroupError(Exception):
    """A cgroup cannot be removed; the text names it and the reason."""


class PodCgroups:
    """`parent` is the cgroup that holds all pods, `/orchpods`; `root` where hierarchies are."""

    def __init__(self, parent: str, *, root: str = "/sys/fs/cgroup") -> None:
        self._parent = parent.strip("/")
        self._root = Path(root)
        self._refused = ""

    async def ensure(self, pod: Pod) -> None:
        """Make the pod's cgroup and set its bounds."""
        try:
            await asyncio.to_thread(self._ensure, pod)
        except OSError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.warning("pods run without bounds of their own: %s", error)

    async def remove(self, uid: str) -> None:
        """Remove the pod's cgroup and all below it, killing what is left in them.

        CgroupError when it stays all the same.
        """
        if not uid or "/" in uid:
            raise CgroupError(f"{uid!r} is not a pod uid")
        for attempt in range(_TRIES):
            if await asyncio.to_thread(self._remove, f"pod{uid}"):
                return
            await asyncio.sleep(_PAUSE_S * (attempt > 0))
        raise CgroupError(f"cgroup {self._parent}/pod{uid} still holds processes that do not end")

    async def remove_parent(self) -> None:
        """Remove the cgroup of all pods where it is empty."""
        await asyncio.to_thread(self._remove_parent)

    def _hierarchies(self) -> dict[str, Path]:
        """Controller directory name → its path; v2 alone is `unified`."""
        if (self._root / "cgroup.controllers").exists():
            return {"unified": self._root}
        return {
            entry.name: Path(entry.path)
            for entry in os.scandir(self._root)
            if entry.is_dir(follow_symlinks=False)
        }

    def _ensure(self, pod: Pod) -> None:
        below = f"{self._parent}/pod{pod.metadata.uid}"
        for name, hierarchy in self._hierarchies().items():
            directory = hierarchy / below
            if directory.exists():
                continue
            if name == "unified":
                _make_unified(hierarchy, directory)
            else:
                directory.mkdir(parents=True, exist_ok=True)
                if name == "cpuset":
                    _inherit_cpuset(hierarchy, directory)
            for file, value in bounds.pod_bounds(pod, unified=name == "unified").items():
                if (directory / file).exists():
                    (directory / file).write_text(value)

    def _remove(self, name: str) -> bool:
        gone = True
        for hierarchy in self._hierarchies().values():
            gone &= _remove_tree(hierarchy / self._parent / name)
        return gone

    def _remove_parent(self) -> None:
        for hierarchy in self._hierarchies().values():
            try:
                (hierarchy / self._parent).rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
                    raise


def _make_unified(root: Path, directory: Path) -> None:
    """Every ancestor passes its controllers on before the child is made."""
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
    """A v1 cpuset is born empty and takes no process until it has cpus and memory nodes."""
    current = root
    for part in directory.relative_to(root).parts:
        parent, current = current, current / part
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (current / file).exists() and not (current / file).read_text().strip():
                (current / file).write_text((parent / file).read_text())


def _remove_tree(directory: Path) -> bool:
    """Remove a cgroup and those below it; False when processes were in the way and got killed."""
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
        return  # the cgroup went meanwhile
    for pid in filter(None, listed):  # 0 is a process of another namespace, and means us to kill()
        log.warning("killing process %d, left in cgroup %s of a pod that is gone", pid, cgroup)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
