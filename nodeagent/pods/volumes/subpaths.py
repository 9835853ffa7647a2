"""Sub-paths of volumes, mounted so that no link can lead out of the volume; blocking.

A container can replace a directory of its volume with a link between a check and the runtime's
mount. So the path is walked component by component without following links, its end is held open
and bind-mounted below the agent's root directory, and the runtime mounts that. Where the agent may
not mount, or the runtime would not see the mount, the runtime gets the checked path; logged once.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

from nodeagent.pods.volumes import directories, kernel_mounts
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
_fallback = OnceLog(log)


class SubPathError(Exception):
    """A sub-path cannot be mounted; the text names it."""


def bind(volume: str, path: str, place: Path) -> str:
    """The path for the runtime of `path` in `volume`; missing directories are created.

    It is mounted on `place`, and replaces what was mounted there for a former container.
    SubPathError when a link leads out of the volume, else OSError.
    """
    real_volume, real = os.path.realpath(volume), os.path.realpath(path)
    if real != real_volume and not real.startswith(real_volume.rstrip("/") + "/"):
        raise SubPathError(f"subPath {path} leads out of its volume through a link")
    try:
        reached = _walk(real_volume, os.path.relpath(real, real_volume))
    except OSError as error:
        raise SubPathError(f"cannot make subPath {path}: {error.strerror}") from error
    try:
        return _mounted(reached, place) or real
    finally:
        os.close(reached)


def unbind(place: Path) -> None:
    """Unmount every sub-path below `place`, and remove the mount points. OSError."""
    for mount in kernel_mounts.mounts_below(os.path.realpath(place)):
        kernel_mounts.unmount(mount.path)
    for parent, folders, files in os.walk(place, topdown=False):
        for file in files:
            Path(parent, file).unlink()
        for folder in folders:
            Path(parent, folder).rmdir()  # never its content: that would be the volume's
    if place.exists():
        place.rmdir()


def _walk(root: str, below: str) -> int:
    """A descriptor of `below`, reached from `root` without following a link."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    current = os.open(root, flags)
    mode = stat.S_IMODE(os.fstat(current).st_mode)
    for part in Path(below).parts:
        try:
            following = _step(current, part, flags, mode)
        finally:
            os.close(current)
        current = following
    return current


def _step(parent: int, part: str, flags: int, mode: int) -> int:
    try:
        reached = os.open(part, flags, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(part, dir_fd=parent)
        reached = os.open(part, flags | os.O_DIRECTORY, dir_fd=parent)
        os.chmod(f"/proc/self/fd/{reached}", mode)
    if stat.S_ISLNK(os.fstat(reached).st_mode):
        os.close(reached)
        raise OSError(errno.ELOOP, f"{part} has just become a link")
    return reached


def _mounted(reached: int, place: Path) -> str | None:
    """`place` with `reached` mounted on it; None where mounting is impossible."""
    directories.make(place.parent)
    if not kernel_mounts.is_shared(str(place.parent)):
        _fall_back("mounts below the root directory are not shared with the runtime")
        return None
    while any(m.path == str(place) for m in kernel_mounts.mounts_below(str(place))):
        kernel_mounts.unmount(str(place))
    is_directory = stat.S_ISDIR(os.fstat(reached).st_mode)
    if place.exists() and place.is_dir() != is_directory:
        place.rmdir() if place.is_dir() else place.unlink()
    if is_directory:
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    try:
        kernel_mounts.bind(f"/proc/self/fd/{reached}", str(place))
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        _fall_back(f"the agent may not mount ({error.strerror})")
        return None
    return str(place)


def _fall_back(why: str) -> None:
    _fallback.failed("subPaths are checked once, not held: %s (docs/pods.md)", why)
