"""The files of volumes that show ConfigMaps, Secrets, tokens and the pod's own fields; pure.

Rules of the reference agent (pkg/volume/configmap, secret, projected): without `items` every key
is a file; with them only those, and each key must exist unless the volume is optional. A token
belongs to the user that all containers of the pod run as, if it is one, and nobody else reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath

from nodeagent.pods.spec import env, references
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.references import TOKEN, NotThere, Objects, Reference
from orch.wire.podrules.podspec import find_container, lasting
from orch.wire.podrules.references import CONFIG_MAP, SECRET
from orch.wire.records.isolation import PodSecurityContext, SecurityContext
from orch.wire.records.pods import (
    DownwardAPIItem,
    KeyToPath,
    Pod,
    ProjectedSource,
    ProjectedVolume,
    SecretProjection,
    ServiceAccountTokenProjection,
    Volume,
)

DEFAULT_MODE = 0o644
_MODES = range(0o1000)
_PRIVATE = 0o600  # of a token
MAX_FILES, MAX_BYTES = 20_000, 64 << 20  # of all volumes of a pod
MAX_IN_MEMORY = 128 << 20  # bytes of a namespace's pods on one node
_PATH_MAX = 1024  # bytes
_PAGE_BYTES, _INODE_BYTES = 4096, 2048  # in memory; the latter with its name and the link to it
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class VolumeFile:
    path: str  # below the volume
    content: bytes
    mode: int
    owner: int | None = None  # whose file it is; None: the agent's


class FileRoom:
    """What the volumes of one pod may still show. A key of an object, or the pod's annotations, can
    be shown any number of times, so that a short text would fill a disk, or the agent's memory.
    """

    def __init__(self) -> None:
        self.in_memory_bytes = 0
        self._files, self._bytes = MAX_FILES, MAX_BYTES

    def take(self, files: int, size_bytes: int = 0) -> None:
        """Count more files, or directories. SpecError when there is no room for them."""
        self._files -= files
        self._bytes -= size_bytes
        if self._files < 0 or self._bytes < 0:
            raise SpecError(
                f"the volumes of the pod show more than {MAX_FILES} files and directories,"
                f" or {MAX_BYTES >> 20} MiB of objects, fields and tokens; show fewer"
            )


class MemoryShares:
    """What the pods of each namespace show in memory on this node, at most: it is the agent's own,
    which ends where its unit's memory does. Pods come in threads.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, int]] = {}  # namespace and bytes, by uid of the pod

    def hold(self, uid: str, namespace: str, size_bytes: int) -> None:
        """Count this much of the pod, or what it had if that was more: while its volumes are made
        anew, one by one, the others are there. SpecError when its namespace would have too much.
        """
        _, had_bytes = self._held.get(uid, ("", 0))
        self._held[uid] = namespace, max(size_bytes, had_bytes)  # first: others at once count it
        held = tuple(self._held.values())
        if sum(each for of_namespace, each in held if of_namespace == namespace) > MAX_IN_MEMORY:
            self._held[uid] = namespace, had_bytes
            raise SpecError(
                f"the pods of namespace {namespace} on this node show more than"
                f" {MAX_IN_MEMORY >> 20} MiB in secret and projected volumes, which are in memory"
            )

    def release(self, uid: str) -> None:
        self._held.pop(uid, None)


def is_made_of_files(volume: Volume) -> bool:
    """Whether the agent writes the volume's content."""
    return any((volume.configMap, volume.secret, volume.projected, volume.downwardAPI))


def files(
    pod: Pod,
    volume: Volume,
    objects: Objects,
    allocatable: Mapping[str, str],
    room: FileRoom | None = None,
) -> list[VolumeFile]:
    """The files of a volume; NotThere and SpecError name what is missing or wrong.

    The last of several files with the same path wins; no file can lie below another. `room` is for
    all volumes of the pod.
    """
    projected, room = _as_projected(volume), room or FileRoom()
    chosen, known = dict[str, VolumeFile](), dict[bytes, bytes]()
    for source in projected.sources or ():
        for file in _files_of(pod, source, projected.defaultMode, objects, allocatable):
            room.take(1, len(file.content))
            content = known.setdefault(file.content, file.content)  # held once
            chosen[file.path] = replace(file, content=content)
    _require_apart(chosen)
    room.take(len(_directories(chosen)))
    return list(chosen.values())


def in_memory_bytes(files: Sequence[VolumeFile]) -> int:
    """What they take of memory where that is their disk: whole pages, inodes and names."""
    pages = sum(-(-len(file.content) // _PAGE_BYTES) for file in files)
    inodes = len(files) + len(_directories(file.path for file in files))
    return pages * _PAGE_BYTES + inodes * _INODE_BYTES


def _directories(paths: Iterable[str]) -> set[str]:
    """Those that the files are in; not all where there are more than MAX_FILES: a path has 500."""
    found = set[str]()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
        if len(found) > MAX_FILES:
            break
    return found


def _require_apart(paths: Iterable[str]) -> None:
    """SpecError for a path below another: in the order of their parts it follows that one."""
    for above, path in pairwise(sorted(paths, key=lambda path: path.replace("/", "\0"))):
        if path.startswith(f"{above}/"):
            raise SpecError(f"path {path!r} lies below {above!r}, which is a file")


def _as_projected(volume: Volume) -> ProjectedVolume:
    """The volume as a projected one, of a single source if it is of another kind."""
    if (given := volume.configMap) is not None:
        return _projected(given.defaultMode, ProjectedSource(configMap=given))
    if (wanted := volume.secret) is not None:
        secret = SecretProjection(
            name=wanted.secretName, items=wanted.items, optional=wanted.optional
        )
        return _projected(wanted.defaultMode, ProjectedSource(secret=secret))
    if (fields := volume.downwardAPI) is not None:
        return _projected(fields.defaultMode, ProjectedSource(downwardAPI=fields))
    return volume.projected or ProjectedVolume()


def _projected(mode: int | None, source: ProjectedSource) -> ProjectedVolume:
    return ProjectedVolume(defaultMode=mode, sources=[source])


def _files_of(
    pod: Pod,
    source: ProjectedSource,
    mode: int | None,
    objects: Objects,
    allocatable: Mapping[str, str],
) -> Iterator[VolumeFile]:
    if source.downwardAPI is not None:
        for item in source.downwardAPI.items or ():
            yield _file(item, _downward_content(pod, item, allocatable).encode(), mode)
        return
    if (wanted_token := source.serviceAccountToken) is not None:
        yield _token_file(pod, wanted_token, mode, objects)
        return
    for kind, wanted in ((CONFIG_MAP, source.configMap), (SECRET, source.secret)):
        if wanted is None:
            continue
        reference = Reference(kind, wanted.name)
        values = references.look_up(objects, reference, optional=bool(wanted.optional))
        for key in wanted.items or [KeyToPath(key=key, path=key) for key in sorted(values or ())]:
            if values is not None and key.key in values:
                yield _file(key, values[key.key], mode)
            elif not wanted.optional:
                raise NotThere(f"{reference} references non-existent key: {key.key}")
        return
    given = ", ".join(source.to_wire()) or "nothing"
    raise SpecError(
        f"projected source {given} is not supported; use configMap, secret, downwardAPI or"
        " serviceAccountToken"
    )


def _token_file(
    pod: Pod, wanted: ServiceAccountTokenProjection, mode: int | None, objects: Objects
) -> VolumeFile:
    token = references.look_up(objects, references.token_reference(pod, wanted), optional=False)
    owner = only_user(pod)
    group = (pod.spec.securityContext or PodSecurityContext()).fsGroup
    private = owner is not None or group is not None
    item = KeyToPath(key=TOKEN, path=wanted.path, mode=_PRIVATE if private else None)
    return replace(_file(item, (token or {})[TOKEN], mode), owner=owner)


def only_user(pod: Pod) -> int | None:
    """The user that all its containers run as, ephemeral ones apart; None: several, or not said."""
    default = (pod.spec.securityContext or PodSecurityContext()).runAsUser
    users = set[int | None]()
    for container in lasting(pod):
        own = (container.securityContext or SecurityContext()).runAsUser
        users.add(default if own is None else own)
    return users.pop() if len(users) == 1 else None


def _file(
    item: KeyToPath | DownwardAPIItem, content: bytes, default_mode: int | None
) -> VolumeFile:
    if len(item.path.encode(errors="replace")) > _PATH_MAX:
        raise SpecError(f"path {item.path[:_SHOWN]!r} has more than {_PATH_MAX} bytes")
    path = PurePosixPath(item.path)
    if not path.parts or path.is_absolute() or ".." in path.parts or path.parts[0].startswith(".."):
        raise SpecError(f"path {item.path!r} must be relative, without '..', and not begin with it")
    if "\0" in item.path:
        raise SpecError(f"path {item.path!r} must not contain NUL")
    mode = next((m for m in (item.mode, default_mode) if m is not None), DEFAULT_MODE)
    if mode not in _MODES:
        raise SpecError(f"mode {mode} is not between 0 and 0777 (511)")
    return VolumeFile(str(path), content, mode)


def _downward_content(pod: Pod, item: DownwardAPIItem, allocatable: Mapping[str, str]) -> str:
    if item.fieldRef is not None:
        path = item.fieldRef.fieldPath
        if path not in ("metadata.labels", "metadata.annotations"):
            return env.pod_field(pod, path, {})
        values = pod.metadata.labels if path.endswith("labels") else pod.metadata.annotations
        lines = sorted((values or {}).items())
        return "\n".join(f"{key}={json.dumps(text, ensure_ascii=False)}" for key, text in lines)
    if item.resourceFieldRef is None:
        raise SpecError(f"downwardAPI item {item.path!r} has neither fieldRef nor resourceFieldRef")
    name = item.resourceFieldRef.containerName
    container = find_container(pod, name or "")
    if container is None:
        raise SpecError(f"downwardAPI item {item.path!r}: there is no container {name!r}")
    return env.resource_field(pod, container, item.resourceFieldRef, allocatable)
