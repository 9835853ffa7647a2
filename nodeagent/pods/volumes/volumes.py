"""The volumes of pods on this host: created before the containers, removed after them.

`<root>/pods/<uid>/volumes/<kind>/<name>`; a Memory emptyDir is a tmpfs mounted there, and so is a
secret where the agent may mount. A hostPath is checked, and created if its type says so. Blocking
work runs in one thread per call. The containers' mounts are in `spec.mounts`, the content of files
in `spec.volume_files`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodeagent import descriptors
from nodeagent.pods.spec import volume_files
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.references import NotThere, Objects
from nodeagent.pods.volumes import directories, kernel_mounts, mounts, subpaths
from nodeagent.pods.volumes.mounts import MountDenied, MountError, Mounts, OwnMounts
from nodeagent.pods.volumes.subpaths import SubPathError
from nodeagent.runtime.base import Mount
from orch.component.process import loops
from orch.wire import quantity
from orch.wire.podrules.podspec import all_containers
from orch.wire.records.pods import EmptyDirVolume, HostPathVolume, Pod, PodSecurityContext, Volume

log = logging.getLogger(__name__)

_FILE_TESTS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}

_FORBIDS = (errno.EROFS, errno.EACCES, errno.EPERM)
_FORBIDDEN = "; if the agent's unit forbids it, allow it with a drop-in (docs/systemd.md)"


def prepare(volume: HostPathVolume) -> str:
    """The path, once it is of the given `type`; ValueError, OSError."""
    kind, path = volume.type or "", Path(volume.path)
    if not kind:
        return volume.path
    if kind not in _FILE_TESTS:
        raise ValueError(f"hostPath.type {kind!r} is not one of {', '.join(_FILE_TESTS)}")
    try:
        _create(path, kind)
    except OSError as error:
        cause = error.strerror or error
        advice = _FORBIDDEN if error.errno in _FORBIDS else ""
        raise ValueError(f"hostPath {volume.path} cannot be made: {cause}{advice}") from error
    fits, shown = _FILE_TESTS[kind]
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise ValueError(f"hostPath {volume.path} does not exist, and type is {kind}") from None
    if not fits(mode):
        raise ValueError(f"hostPath {volume.path} is not {shown}")
    return volume.path


def _create(path: Path, kind: str) -> None:
    if kind == "DirectoryOrCreate" and not path.exists():
        directories.make(path)
    if kind == "FileOrCreate" and not path.exists():
        with contextlib.suppress(FileExistsError):
            os.close(descriptors.create_file(path, 0o644))


# Volume source → directory below `volumes`
_KINDS = {
    "emptyDir": "empty-dir",
    "downwardAPI": "downward-api",
    "configMap": "configmap",
    "secret": "secret",
    "projected": "projected",
}
_SUB_PATHS = "volume-subpaths"
_SETGID_DIRECTORY = 0o2777
_REMOVALS = 2  # at once: a million files take long, and others need the agent's few threads
MAX_MOUNTS = 256  # of a pod: the kernel bounds those of the whole node, by 100,000


class VolumeError(Exception):
    """A volume cannot be created or removed; the text names it and the reason."""


@dataclass(frozen=True, slots=True)
class ProjectedData:
    """Data that volumes and variables may show: allocatable amounts, and objects of the API."""

    allocatable: Mapping[str, str] = field(default_factory=dict)
    objects: Objects = field(default_factory=dict)


class VolumeStore:
    """The volumes below one root directory (absolute).

    What a cancelled caller began is finished first: else a removal would run into it.
    """

    def __init__(self, root_dir: str, mounting: Mounts | None = None) -> None:
        self._root = Path(root_dir)
        self._mounting = mounting or OwnMounts()
        self._secrets_on_disk = False
        self._removals = asyncio.Semaphore(_REMOVALS)

    def pod_dir(self, uid: str) -> Path:
        return self._root / "pods" / uid

    async def prepare(self, pod: Pod, data: ProjectedData | None = None) -> dict[str, str]:
        """Create missing volumes, update files; volume name → path on the host. VolumeError."""
        work = functools.partial(self._prepare, pod, data or ProjectedData())
        return await loops.finish_in_thread(work, name=f"make the volumes of {pod.key}")

    async def bind_sub_paths(
        self, uid: str, container: str, mounts: Sequence[Mount], volumes: Mapping[str, str]
    ) -> tuple[Mount, ...]:
        """The mounts for the runtime; VolumeError when a link leads out of a volume."""
        if all(mount.image or mount.host_path in volumes.values() for mount in mounts):
            return tuple(mounts)
        work = functools.partial(self._bind, uid, container, mounts, set(volumes.values()))
        return await loops.finish_in_thread(work, name=f"bind the sub-paths of pod {uid}")

    async def remove(self, uid: str) -> None:
        """Unmount and delete everything of a pod; VolumeError when that fails."""
        work = functools.partial(self._remove, uid)
        async with self._removals:
            await loops.finish_in_thread(work, name=f"remove the volumes of pod {uid}")

    async def uids(self) -> list[str]:
        """Pods that have a directory here."""
        return await asyncio.to_thread(self._uids)

    def _prepare(self, pod: Pod, data: ProjectedData) -> dict[str, str]:
        places: dict[str, str] = {}
        _require_few_mounts(pod)
        try:
            # Created first and removed last: it shows that something of the pod is left.
            directories.make(self.pod_dir(pod.metadata.uid or ""))
        except OSError as error:
            raise VolumeError(f"the directory of the pod: {error}") from error
        for volume in pod.spec.volumes or ():
            if volume.image is not None:
                continue  # the runtime mounts it
            try:
                places[volume.name] = self._make(pod, volume, data)
            except (OSError, ValueError, SpecError, NotThere, MountError) as error:
                text = f'MountVolume.SetUp failed for volume "{volume.name}" : {error}'
                raise VolumeError(text) from error
        return places

    def _make(self, pod: Pod, volume: Volume, data: ProjectedData) -> str:
        if volume.hostPath is not None:
            return prepare(volume.hostPath)
        kind = next((key for key in _KINDS if getattr(volume, key) is not None), "")
        if not kind:
            given = ", ".join(key for key in volume.to_wire() if key != "name") or "nothing"
            supported = ", ".join(["hostPath", "image", *_KINDS])
            raise ValueError(f"the source {given} is not supported; use one of {supported}")
        path = Path(volume_path(str(self._root), pod.metadata.uid or "", kind, volume.name))
        group = (pod.spec.securityContext or PodSecurityContext()).fsGroup
        if volume.emptyDir is not None:
            return self._empty_dir(path, volume.emptyDir, group)
        files = volume_files.files(pod, volume, data.objects, data.allocatable)
        if volume.secret is not None or volume.projected is not None:
            self._mount_in_memory(path)
        directories.write(path, files, group=group)
        return str(path)

    def _mount_in_memory(self, path: Path) -> None:
        """Mount a tmpfs, so that secrets never reach a disk, if the agent may mount.

        Files that are there already stay where they are, since running containers see them there.
        """
        directories.make(path)
        if os.path.lexists(path / directories.DATA):
            return
        try:
            self._mount_tmpfs(path, None)
        except MountDenied as error:
            if not self._secrets_on_disk:
                log.warning("secrets of pods are stored on disk below %s: %s", self._root, error)
            self._secrets_on_disk = True

    def _empty_dir(self, path: Path, volume: EmptyDirVolume, group: int | None) -> str:
        if volume.medium not in (None, "", "Memory"):
            raise ValueError(f'emptyDir.medium {volume.medium!r} is neither "" nor Memory')
        directories.make(path.parent)
        directories.make(path, 0o777)
        if volume.medium == "Memory":
            size = quantity.to_bytes(volume.sizeLimit) if volume.sizeLimit else None
            self._mount_tmpfs(path, size)
        sticky = stat.S_ISVTX if volume.medium == "Memory" else 0  # as the tmpfs is
        directories.chgrp(path, group, _SETGID_DIRECTORY | sticky)  # new files inherit the group
        return str(path)

    def _mount_tmpfs(self, path: Path, size_bytes: int | None) -> None:
        if not os.path.ismount(path):  # the mounts of all pods make a long list
            self._mounting.tmpfs(path, size_bytes)

    def _bind(
        self, uid: str, container: str, mounts: Sequence[Mount], roots: set[str]
    ) -> tuple[Mount, ...]:
        made = []
        for index, mount in enumerate(mounts):
            if mount.image or mount.host_path in roots:
                made.append(mount)
                continue
            path = mount.host_path
            volume = max((r for r in roots if path.startswith(f"{r.rstrip('/')}/")), key=len)
            place = self.pod_dir(uid) / _SUB_PATHS / container / str(index)
            try:
                bound = subpaths.bind(volume, path, place, self._mounting)
                made.append(replace(mount, host_path=bound))
            except (OSError, SubPathError) as error:
                raise VolumeError(str(error)) from error
        return tuple(made)

    def _remove(self, uid: str) -> None:
        if not uid or "/" in uid or uid in (".", ".."):
            raise VolumeError(f"{uid!r} is not a pod uid")
        directory = self.pod_dir(uid)
        try:
            subpaths.unbind(directory / _SUB_PATHS, self._mounting)
            for volume in directory.glob("volumes/*/*"):
                if [m.filesystem for m in kernel_mounts.mounts_on(volume)][:1] == ["tmpfs"]:
                    mounts.clear(volume, self._mounting)
            if left := kernel_mounts.mounts_below(os.path.realpath(directory)):
                raise VolumeError(
                    f"{left[0].path} has a {left[0].filesystem} mounted on it that the agent did "
                    "not mount; unmount it, and the pod's directory is removed"
                )
            if directory.exists():
                descriptors.remove_tree(directory)
        except (OSError, MountError) as error:
            raise VolumeError(f"cannot remove {directory}: {error}") from error

    def _uids(self) -> list[str]:
        try:
            return sorted(os.listdir(self._root / "pods"))
        except FileNotFoundError:
            return []


def _require_few_mounts(pod: Pod) -> None:
    mounted = [mount for c in all_containers(pod) for mount in c.volumeMounts or ()]
    in_memory = sum(map(is_in_memory, pod.spec.volumes or ()))
    sub_paths = sum(bool(mount.subPath or mount.subPathExpr) for mount in mounted)
    if in_memory + sub_paths > MAX_MOUNTS:
        raise VolumeError(
            f"{in_memory} volumes in memory and {sub_paths} sub-paths are more than the "
            f"{MAX_MOUNTS} that may be mounted for one pod; use fewer"
        )


def volume_path(root_dir: str, uid: str, kind: str, name: str) -> str:
    """The directory of a volume; `kind` is the field of its source."""
    return f"{root_dir}/pods/{uid}/volumes/{_KINDS.get(kind, kind)}/{name}"


def is_in_memory(volume: Volume) -> bool:
    """Whether it is a tmpfs, as secrets are and an emptyDir may be."""
    secrets = volume.secret is not None or volume.projected is not None
    return secrets or (volume.emptyDir is not None and volume.emptyDir.medium == "Memory")
