"""Sub-paths of volumes, mounted so that no link can lead out of the volume; blocking.

A container can replace a directory of its volume with a link between a check and the runtime's
mount. So the path is walked component by component without following links, its end is held open
and bind-mounted below the agent's root directory, and the runtime mounts that. Where the agent may
not mount, or the runtime would not see the mount, there is no sub-path.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from nodeagent import descriptors
from nodeagent.pods.volumes import directories, kernel_mounts

_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)


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
        reached = _reached(real_volume, Path(os.path.relpath(real, real_volume)))
    except OSError as error:
        raise SubPathError(f"cannot make subPath {path}: {error.strerror}") from error
    try:
        _mount(reached, place)
    except SubPathError as error:
        raise SubPathError(f"cannot mount subPath {path}: {error}") from error
    finally:
        os.close(reached)
    return str(place)


def unbind(place: Path) -> None:
    """Unmount every sub-path below `place`, and remove the mount points. OSError."""
    for mount in kernel_mounts.mounts_below(os.path.realpath(place)):
        kernel_mounts.unmount(mount.path)
    if not place.exists():
        return
    for container in place.iterdir():
        for point in container.iterdir():  # never its content: that would be the volume's
            point.rmdir() if point.is_dir() else point.unlink()
        container.rmdir()
    place.rmdir()


def _reached(volume: str, below: Path) -> int:
    """A descriptor of `below` in `volume`, whose mode missing directories get."""
    root = descriptors.reach_path(volume)
    try:
        mode = stat.S_IMODE(os.fstat(root).st_mode)
        return descriptors.reach(root, below.parts, new_mode=mode)
    finally:
        os.close(root)


def _mount(reached: int, place: Path) -> None:
    """Mount `reached` on `place`; SubPathError where mounting is impossible."""
    directories.make(place.parent)
    if not kernel_mounts.is_shared(str(place.parent)):
        raise SubPathError(
            "what the agent mounts below its root directory is not shared with the runtime; "
            "run `mount --make-shared` on it (docs/pods.md)"
        )
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
        raise SubPathError(
            f"the agent may not mount ({error.strerror}); allow it with the drop-in for mounting "
            "in docs/systemd.md"
        ) from error
