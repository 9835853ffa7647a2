"""The volumes of pods on this host: created before the containers, removed after them.

`<root>/pods/<uid>/volumes/<kind>/<name>`; a Memory emptyDir is a tmpfs mounted there, and so is a
secret where the agent may mount. A hostPath is checked, and created if its type says so. Blocking
work runs in one thread per call, and in one of its own where a server may not answer. The
containers' mounts are in `spec.mounts`, the content of files in `spec.volume_files`.
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
from typing import Any, TypeVar

from nodeagent import descriptors
from nodeagent.pods.spec import env_files, policy, volume_files
from nodeagent.pods.spec.env import NO_FILES, EnvFile, Files, SpecError
from nodeagent.pods.spec.references import NotThere, Objects
from nodeagent.pods.volumes import directories, kernel_mounts, mounts, nfs, subpaths
from nodeagent.pods.volumes.mounts import MountDenied, MountError, Mounts, OwnMounts
from nodeagent.pods.volumes.nfs import NoAnswer, Share
from nodeagent.pods.volumes.subpaths import SubPathError
from nodeagent.runtime.base import Mount
from orch.component.http.fair_queue import Bounds, Turns
from orch.component.process import loops
from orch.component.process.threads import run_in_thread
from orch.wire import quantity
from orch.wire.podrules.podspec import all_containers
from orch.wire.records.isolation import PodSecurityContext
from orch.wire.records.pods import (
    Container,
    EmptyDirVolume,
    HostPathVolume,
    NFSVolume,
    Pod,
    Volume,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_FILE_TESTS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
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
        found = fits(path.stat().st_mode)
    except FileNotFoundError:
        found = False
    if not found:
        raise ValueError(f"hostPath type check failed: {volume.path} is not {shown}")
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
    "nfs": nfs.KIND,
}
_SUB_PATHS = "volume-subpaths"
_SETGID_DIRECTORY = 0o2777
_REMOVALS = 2  # at once: a million files take long, and others need the agent's few threads
_MAKING = Bounds(seats=4, seats_per_flow=2, wait_s=60.0)  # so do 20,000; a flow is a namespace
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

    What a cancelled caller began is finished before a removal, which would run into it.
    """

    def __init__(self, root_dir: str, mounting: Mounts | None = None) -> None:
        self._root = Path(root_dir)
        self._mounting = mounting or OwnMounts()
        self._secrets_on_disk = False
        self._shares = volume_files.MemoryShares()
        self._turns = Turns(_MAKING)
        self._removals = asyncio.Semaphore(_REMOVALS)
        self._under_way: dict[str, set[asyncio.Task[Any] | None]] = {}  # by uid of the pod

    def pod_dir(self, uid: str) -> Path:
        return self._root / "pods" / uid

    async def prepare(self, pod: Pod, data: ProjectedData | None = None) -> dict[str, str]:
        """Create missing volumes, update files; volume name → path on the host. VolumeError."""
        work = functools.partial(self._prepare, pod, data or ProjectedData())
        name, uid = f"make the volumes of {pod.key}", pod.metadata.uid or ""
        shares = [volume for volume in pod.spec.volumes or () if volume.nfs is not None]
        others = [volume for volume in pod.spec.volumes or () if volume.nfs is None]
        try:
            async with self._turns.hold(pod.metadata.namespace):
                places = await self._in_thread(uid, lambda: work(others), name, waits=False)
        except TimeoutError:
            text = f"too many volumes are made in namespace {pod.metadata.namespace}, retrying"
            raise VolumeError(text) from None
        if shares:  # without a turn, which a server that does not answer would keep
            places |= await self._in_thread(uid, lambda: work(shares), name, waits=True)
        return places

    async def bind_sub_paths(
        self, uid: str, container: str, mounts: Sequence[Mount], volumes: Mapping[str, str]
    ) -> tuple[Mount, ...]:
        """The mounts for the runtime; VolumeError when a link leads out of a volume."""
        if all(mount.image or mount.host_path in volumes.values() for mount in mounts):
            return tuple(mounts)
        work = functools.partial(self._bind, uid, container, mounts, set(volumes.values()))
        waits = any(f"/volumes/{nfs.KIND}/" in path for path in volumes.values())
        return await self._in_thread(uid, work, f"bind the sub-paths of pod {uid}", waits=waits)

    async def _in_thread(self, uid: str, work: Callable[[], T], name: str, *, waits: bool) -> T:
        """`waits`: it may wait for a server, and must take no thread from others meanwhile. Such
        work may outlast the patience of its cancelled caller.
        """

        async def run() -> T:
            tasks, own = self._under_way.setdefault(uid, set()), asyncio.current_task()
            tasks.add(own)
            try:
                return await (run_in_thread(work, name=name) if waits else asyncio.to_thread(work))
            finally:
                tasks.discard(own)
                if not tasks:
                    self._under_way.pop(uid, None)

        return await loops.finish(run(), name=name)

    async def env_files(self, pod: Pod, container: Container) -> Files:
        """What init containers wrote for the container's environment."""
        if not (wanted := env_files.wanted(container)):
            return NO_FILES
        volumes = {v.name for v in pod.spec.volumes or () if v.emptyDir is not None}
        many = f"a container's variables come from {env_files.MAX_FILES} files at most"
        found = dict.fromkeys(wanted, EnvFile(problem=many))
        for volume, path in wanted[: env_files.MAX_FILES]:
            found[volume, path] = (
                await loops.finish_in_thread(
                    functools.partial(self._env_file, pod.metadata.uid or "", volume, path),
                    name=f"environment of {pod.key}",
                )
                if volume in volumes
                else EnvFile(problem="the volume is not an emptyDir of the pod")
            )
        return found

    def _env_file(self, uid: str, volume: str, path: str) -> EnvFile:
        """Read without following links: containers have written the volume."""
        top = volume_path(str(self._root), uid, "emptyDir", volume)
        try:
            *above, name = env_files.names(path)
            with contextlib.ExitStack() as held:
                root = descriptors.reach_path(os.path.realpath(top))
                held.callback(os.close, root)
                parent = descriptors.reach(root, above)
                held.callback(os.close, parent)
                file = held.enter_context(os.fdopen(descriptors.open_file(name, parent), "rb"))
                text = file.read(env_files.MAX_BYTES + 1)
            if len(text) > env_files.MAX_BYTES:
                return EnvFile(problem=f"it has more than {env_files.MAX_BYTES} bytes")
            return EnvFile(env_files.parse(text.decode()))
        except FileNotFoundError:
            return EnvFile(absent=True)
        except OSError as error:
            return EnvFile(problem=error.strerror or str(error))
        except (SpecError, UnicodeDecodeError) as error:
            return EnvFile(problem=str(error))

    async def remove(self, uid: str) -> None:
        """Unmount and delete everything of a pod; VolumeError when that fails."""
        work = functools.partial(self._remove, uid)
        while tasks := self._under_way.get(uid):
            await asyncio.wait([task for task in tasks if task])
        async with self._removals:
            await loops.finish_in_thread(work, name=f"remove the volumes of pod {uid}")

    async def uids(self) -> list[str]:
        """Pods that have a directory here."""
        return await asyncio.to_thread(self._uids)

    def _prepare(self, pod: Pod, data: ProjectedData, volumes: Sequence[Volume]) -> dict[str, str]:
        places: dict[str, str] = {}
        room = volume_files.FileRoom()
        _require_few_mounts(pod)
        try:
            # Created first and removed last: it shows that something of the pod is left.
            directories.make(self.pod_dir(pod.metadata.uid or ""))
        except OSError as error:
            raise VolumeError(f"the directory of the pod: {error}") from error
        for volume in volumes:
            if volume.image is not None:
                continue  # the runtime mounts it
            try:
                places[volume.name] = self._make(pod, volume, data, room)
            except (OSError, ValueError, SpecError, NotThere, MountError, NoAnswer) as error:
                text = f'MountVolume.SetUp failed for volume "{volume.name}" : {error}'
                raise VolumeError(text) from error
        return places

    def _make(
        self, pod: Pod, volume: Volume, data: ProjectedData, room: volume_files.FileRoom
    ) -> str:
        if volume.hostPath is not None:
            return prepare(volume.hostPath)
        kind = next((key for key in _KINDS if getattr(volume, key) is not None), "")
        if not kind:
            given = ", ".join(key for key in volume.to_wire() if key != "name") or "nothing"
            supported = ", ".join(["hostPath", "image", *_KINDS])
            raise ValueError(f"the source {given} is not supported; use one of {supported}")
        uid = pod.metadata.uid or ""
        path = Path(volume_path(str(self._root), uid, kind, volume.name))
        group = (pod.spec.securityContext or PodSecurityContext()).fsGroup
        if volume.emptyDir is not None:
            return self._empty_dir(path, volume.emptyDir, pod, group)
        if volume.nfs is not None:
            return self._share(path, volume.nfs)
        files = volume_files.files(pod, volume, data.objects, data.allocatable, room)
        if volume.secret is not None or volume.projected is not None:
            room.in_memory_bytes += volume_files.in_memory_bytes(files)
            self._shares.hold(uid, pod.metadata.namespace or "", room.in_memory_bytes)
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

    def _empty_dir(self, path: Path, volume: EmptyDirVolume, pod: Pod, group: int | None) -> str:
        medium = volume.medium or ""
        page_bytes = policy.volume_page_bytes(pod, medium)
        directories.make(path.parent)
        directories.make(path, 0o777)
        size = quantity.to_bytes(volume.sizeLimit) if volume.sizeLimit else None
        if page_bytes and not os.path.ismount(path):
            self._mounting.hugepages(path, page_bytes, size)
        elif medium:
            self._mount_tmpfs(path, size)
        sticky = stat.S_ISVTX if medium else 0  # as memory is
        directories.chgrp(path, group, _SETGID_DIRECTORY | sticky)  # new files inherit the group
        return str(path)

    def _share(self, path: Path, volume: NFSVolume) -> str:
        """Mount a share, or look whether the server of one that is mounted answers."""
        place = Path(os.path.realpath(self._root), path.relative_to(self._root))
        if nfs.mounted_shares([str(place)]):
            nfs.require_answer(str(place))
            return str(path)
        directories.make(place)
        share = Share(nfs.address_of(volume.server), volume.path, bool(volume.readOnly))
        self._mounting.nfs(place, share)
        return str(path)

    def _mount_tmpfs(self, path: Path, size_bytes: int | None) -> None:
        if not os.path.ismount(path):  # the mounts of all pods make a long list
            self._mounting.tmpfs(path, size_bytes)

    def _bind(
        self, uid: str, container: str, mounts: Sequence[Mount], roots: set[str]
    ) -> tuple[Mount, ...]:
        made, known = [], kernel_mounts.table()
        for index, mount in enumerate(mounts):
            if mount.image or mount.host_path in roots:
                made.append(mount)
                continue
            path = mount.host_path
            volume = max((r for r in roots if path.startswith(f"{r.rstrip('/')}/")), key=len)
            place = self.pod_dir(uid) / _SUB_PATHS / container / str(index)
            try:
                bound = subpaths.bind(volume, path, place, self._mounting, known)
                made.append(replace(mount, host_path=bound))
            except (OSError, SubPathError) as error:
                raise VolumeError(str(error)) from error
        return tuple(made)

    def _remove(self, uid: str) -> None:
        if not uid or "/" in uid or uid in (".", ".."):
            raise VolumeError(f"{uid!r} is not a pod uid")
        directory = self.pod_dir(uid)
        try:
            real = Path(os.path.realpath(directory))
            left = mounts.clear(directory, self._mounting, functools.partial(_is_own, real))
            if left:
                raise VolumeError(
                    f"{left[0].path} has a {left[0].filesystem} mounted on it that the agent did "
                    "not mount; unmount it, and the pod's directory is removed"
                )
            subpaths.remove(directory / _SUB_PATHS)
            if directory.exists():
                descriptors.remove_tree(directory)
            self._shares.release(uid)
        except (OSError, MountError) as error:
            raise VolumeError(f"cannot remove {directory}: {error}") from error

    def _uids(self) -> list[str]:
        try:
            return sorted(os.listdir(self._root / "pods"))
        except FileNotFoundError:
            return []


def _is_own(pod_dir: Path, mount: kernel_mounts.MountPoint) -> bool:
    """Whether the agent mounted it: sub-paths are of any file system."""
    below = Path(mount.path).relative_to(pod_dir).parts
    kinds = nfs.FILESYSTEMS if below[1:2] == (nfs.KIND,) else ("tmpfs", "hugetlbfs")
    is_volume = mount.filesystem in kinds and below[:1] == ("volumes",) and len(below) == 3
    return is_volume or (below[:1] == (_SUB_PATHS,) and len(below) in (2, 3))


def _require_few_mounts(pod: Pod) -> None:
    mounted = [mount for c in all_containers(pod) for mount in c.volumeMounts or ()]
    volumes = sum(is_in_memory(v) or v.nfs is not None for v in pod.spec.volumes or ())
    sub_paths = sum(bool(mount.subPath or mount.subPathExpr) for mount in mounted)
    if volumes + sub_paths > MAX_MOUNTS:
        raise VolumeError(
            f"{volumes} mounted volumes and {sub_paths} sub-paths are more than the "
            f"{MAX_MOUNTS} that may be mounted for one pod; use fewer"
        )


def volume_path(root_dir: str, uid: str, kind: str, name: str) -> str:
    """The directory of a volume; `kind` is the field of its source."""
    return f"{root_dir}/pods/{uid}/volumes/{_KINDS.get(kind, kind)}/{name}"


def is_in_memory(volume: Volume) -> bool:
    """Whether it is a tmpfs, as secrets are and an emptyDir may be."""
    secrets = volume.secret is not None or volume.projected is not None
    return secrets or (volume.emptyDir is not None and bool(volume.emptyDir.medium))
