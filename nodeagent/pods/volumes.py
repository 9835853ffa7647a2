"""The volumes of pods on this host: made before the containers, gone after them.

`<root>/pods/<uid>/volumes/<kind>/<name>`; a Memory emptyDir is a tmpfs mounted there. Blocking work
runs in one thread per call. What containers do with their mounts is in `mounts`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodeagent.pods import directories, downward, kernelmounts
from nodeagent.pods.downward import DownwardFile
from nodeagent.pods.env import SpecError
from nodeagent.runtime.base import Mount
from orch.wire import quantity
from orch.wire.pods import EmptyDirVolume, HostPathVolume, Pod, Volume

EMPTY_DIR = "empty-dir"
DOWNWARD_API = "downward-api"

_FILE_TESTS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


class VolumeError(Exception):
    """A volume cannot be made or removed; the text names it and the reason."""


class VolumeStore:
    """The volumes below one root directory (absolute)."""

    def __init__(self, root_dir: str) -> None:
        self._root = Path(root_dir)

    def pod_dir(self, uid: str) -> Path:
        return self._root / "pods" / uid

    def volume_dir(self, uid: str, kind: str, name: str) -> Path:
        return self.pod_dir(uid) / "volumes" / kind / name

    async def prepare(
        self, pod: Pod, allocatable: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Make what is missing; volume name → path on the host. VolumeError names the volume.

        Files that show fields of the pod are brought up to date; `allocatable` is the node's.
        """
        return await asyncio.to_thread(self._prepare, pod, allocatable or {})

    async def check_mounts(self, mounts: Sequence[Mount], volumes: Mapping[str, str]) -> None:
        """Make missing sub-paths; VolumeError when a link leads one out of its volume."""
        roots = set(volumes.values())
        below = [mount.host_path for mount in mounts if mount.host_path not in roots]
        if below:
            await asyncio.to_thread(_check_sub_paths, below, roots)

    async def remove(self, uid: str) -> None:
        """Unmount and delete everything of a pod; VolumeError when something keeps it."""
        await asyncio.to_thread(self._remove, uid)

    async def uids(self) -> list[str]:
        """Pods that have a directory here."""
        return await asyncio.to_thread(self._uids)

    def _prepare(self, pod: Pod, allocatable: Mapping[str, str]) -> dict[str, str]:
        places: dict[str, str] = {}
        for volume in pod.spec.volumes or ():
            try:
                places[volume.name] = self._make(pod, volume, allocatable)
            except (OSError, ValueError, SpecError) as error:
                raise VolumeError(f"volume {volume.name!r}: {error}") from error
        return places

    def _make(self, pod: Pod, volume: Volume, allocatable: Mapping[str, str]) -> str:
        uid = pod.metadata.uid or ""
        if volume.hostPath is not None:
            return _host_path(volume.hostPath)
        if volume.emptyDir is not None:
            path = self.volume_dir(uid, EMPTY_DIR, volume.name)
            return _empty_dir(path, volume.emptyDir)
        if volume.downwardAPI is not None:
            path = self.volume_dir(uid, DOWNWARD_API, volume.name)
            _write_files(path, downward.files(pod, volume.downwardAPI, allocatable))
            return str(path)
        asked = ", ".join(key for key in volume.to_wire() if key != "name") or "nothing"
        raise ValueError(
            f"the source {asked} is not supported; use emptyDir, hostPath or downwardAPI"
        )

    def _remove(self, uid: str) -> None:
        if not uid or "/" in uid or uid in (".", ".."):
            raise VolumeError(f"{uid!r} is not a pod uid")
        directory = self.pod_dir(uid)
        try:
            for mount in kernelmounts.mounts_below(os.path.realpath(directory)):
                if mount.filesystem != "tmpfs":
                    raise VolumeError(
                        f"{mount.path} has a {mount.filesystem} mounted on it that the agent did "
                        "not mount; unmount it, and the pod's directory is removed"
                    )
                kernelmounts.unmount(mount.path)
            if directory.exists():
                shutil.rmtree(directory)
        except OSError as error:
            raise VolumeError(f"cannot remove {directory}: {error}") from error

    def _uids(self) -> list[str]:
        try:
            return sorted(os.listdir(self._root / "pods"))
        except FileNotFoundError:
            return []


def _empty_dir(path: Path, volume: EmptyDirVolume) -> str:
    if not path.exists():
        directories.make(path.parent)
        directories.make(path, 0o777)
    if volume.medium == "Memory":
        real = os.path.realpath(path)
        if not any(mount.path == real for mount in kernelmounts.mounts_below(real)):
            size = quantity.to_bytes(volume.sizeLimit) if volume.sizeLimit else None
            kernelmounts.mount_tmpfs(real, size)
    elif volume.medium:
        raise ValueError(f'emptyDir.medium {volume.medium!r} is neither "" nor Memory')
    return str(path)


def _write_files(directory: Path, files: Sequence[DownwardFile]) -> None:
    """Each file is replaced whole, and only when it says something else now."""
    directories.make(directory)
    for file in files:
        path = directory / file.path
        directories.make(path.parent)
        if not path.is_symlink() and path.exists() and path.read_text() == file.content:
            continue
        unfinished = path.with_name(f".{path.name}.new")
        unfinished.unlink(missing_ok=True)
        # never through a link that somebody planted there
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        with os.fdopen(os.open(unfinished, flags, 0o600), "w") as stream:
            stream.write(file.content)
            os.fchmod(stream.fileno(), file.mode)
        unfinished.replace(path)


def _host_path(volume: HostPathVolume) -> str:
    kind, path = volume.type or "", Path(volume.path)
    if not kind:
        return volume.path
    if kind not in _FILE_TESTS:
        raise ValueError(f"hostPath.type {kind!r} is not one of {', '.join(_FILE_TESTS)}")
    if kind == "DirectoryOrCreate" and not path.exists():
        directories.make(path)
    if kind == "FileOrCreate" and not path.exists():
        path.touch()
        path.chmod(0o644)
    fits, shown = _FILE_TESTS[kind]
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise ValueError(f"hostPath {volume.path} does not exist, and type is {kind}") from None
    if not fits(mode):
        raise ValueError(f"hostPath {volume.path} is not {shown}")
    return volume.path


def _check_sub_paths(paths: Sequence[str], roots: set[str]) -> None:
    for path in paths:
        volume = max((r for r in roots if path.startswith(f"{r.rstrip('/')}/")), key=len)
        real_volume, real = os.path.realpath(volume), os.path.realpath(path)
        if real != real_volume and not real.startswith(real_volume.rstrip("/") + "/"):
            raise VolumeError(f"subPath {path} leads out of its volume through a link")
        if not os.path.lexists(path):
            try:
                directories.make(Path(path))
            except OSError as error:
                raise VolumeError(f"cannot make subPath {path}: {error}") from error
