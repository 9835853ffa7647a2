"""Sub-paths of volumes, mounted so that no link can lead out of the volume; blocking.

A container can replace a directory of its volume with a link between a check and the runtime's
mount. So the path is walked component by component without following links, its end is held open
and bind-mounted below the agent's root directory, and the runtime mounts that. Where this is
impossible, there is no sub-path.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from nodeagent import descriptors
from nodeagent.pods.volumes import directories, mounts
from nodeagent.pods.volumes.kernel_mounts import MountPoint
from nodeagent.pods.volumes.mounts import MountError, Mounts


class SubPathError(Exception):
    """A sub-path cannot be mounted; the text names it."""


def bind(
    volume: str,
    path: str,
    place: Path,
    mounting: Mounts,
    known: Sequence[MountPoint] | None = None,
) -> str:
    """The path for the runtime of `path` in `volume`; missing directories are created.

    It is mounted on `place`, and replaces what was mounted there for a former container. `known`:
    the table of mounts as it was just now.
    SubPathError when a link leads out of the volume, else OSError.
    """
    try:
        real_volume, real = os.path.realpath(volume), os.path.realpath(path)
        if real != real_volume and not real.startswith(real_volume.rstrip("/") + "/"):
            raise SubPathError(f"subPath {path} leads out of its volume through a link")
        reached = _reached(real_volume, Path(os.path.relpath(real, real_volume)))
    except OSError as error:
        raise SubPathError(f"cannot make subPath {path}: {error.strerror}") from error
    try:
        directories.make(place.parent)
        mounts.clear(place, mounting, known=known)
        _prepare(place, is_directory=stat.S_ISDIR(os.fstat(reached).st_mode))
        mounting.bind(reached, place)
    except MountError as error:
        raise SubPathError(f"cannot mount subPath {path}: {error}") from error
    finally:
        os.close(reached)
    return str(place)


def remove(place: Path) -> None:
    """Remove the mount points below `place`, on which nothing is mounted any more. OSError."""
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


def _prepare(place: Path, *, is_directory: bool) -> None:
    """Make `place`, on which nothing is mounted, an empty directory or a file."""
    if place.exists() and place.is_dir() != is_directory:
        place.rmdir() if place.is_dir() else place.unlink()
    if is_directory:
        place.mkdir(exist_ok=True)
    else:
        place.touch()
