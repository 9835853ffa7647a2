"""The files of volumes made of ConfigMaps, Secrets and the pod's own fields; pure.

Rules of the reference agent (pkg/volume/configmap, secret, projected): without `items` every key
is a file; with them only those, and each must be there unless the volume is optional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodeagent.pods.spec import env, references
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.references import NotThere, Objects, Reference
from orch.wire.podrules.references import CONFIG_MAP, SECRET
from orch.wire.records.pods import KeyToPath, Pod, ProjectedSource, ProjectedVolume, Volume

DEFAULT_MODE = 0o644
_MODES = range(0o1000)


@dataclass(frozen=True, slots=True)
class VolumeFile:
    path: str  # below the volume
    content: bytes
    mode: int


def is_made_of_files(volume: Volume) -> bool:
    """Whether the agent writes what is in the volume."""
    return any((volume.configMap, volume.secret, volume.projected, volume.downwardAPI))


def files(
    pod: Pod, volume: Volume, objects: Objects, allocatable: Mapping[str, str]
) -> list[VolumeFile]:
    """The files of a volume; NotThere and SpecError name what is missing or cannot be."""
    if volume.configMap is not None:
        source = ProjectedSource(configMap=volume.configMap)
        return _unique(_projected(pod, source, volume.configMap.defaultMode, objects, allocatable))
    if volume.secret is not None:
        wanted = volume.secret
        found = _object_files(
            Reference(SECRET, wanted.secretName),
            wanted.items,
            objects,
            mode=wanted.defaultMode,
            optional=bool(wanted.optional),
        )
        return _unique(found)
    if volume.downwardAPI is not None:
        source = ProjectedSource(downwardAPI=volume.downwardAPI)
        return _unique(
            _projected(pod, source, volume.downwardAPI.defaultMode, objects, allocatable)
        )
    projected = volume.projected or ProjectedVolume()
    return _unique(
        [
            file
            for source in projected.sources or ()
            for file in _projected(pod, source, projected.defaultMode, objects, allocatable)
        ]
    )


def _projected(
    pod: Pod,
    source: ProjectedSource,
    mode: int | None,
    objects: Objects,
    allocatable: Mapping[str, str],
) -> list[VolumeFile]:
    if source.downwardAPI is not None:
        shown = source.downwardAPI.model_copy(update={"defaultMode": mode})
        made = env.files(pod, shown, allocatable)
        return [VolumeFile(file.path, file.content.encode(), _mode(file.mode)) for file in made]
    for kind, wanted in ((CONFIG_MAP, source.configMap), (SECRET, source.secret)):
        if wanted is not None:
            optional = bool(wanted.optional)
            reference = Reference(kind, wanted.name)
            return _object_files(reference, wanted.items, objects, mode=mode, optional=optional)
    asked = ", ".join(source.to_wire()) or "nothing"
    raise SpecError(
        f"projected source {asked} is not supported; use configMap, secret or downwardAPI"
    )


def _object_files(
    reference: Reference,
    items: Sequence[KeyToPath] | None,
    objects: Objects,
    *,
    mode: int | None,
    optional: bool,
) -> list[VolumeFile]:
    values = references.look_up(objects, reference, optional=optional)
    if values is None:
        return []
    if not items:
        items = [KeyToPath(key=key, path=key) for key in sorted(values)]
    made = []
    for item in items:
        if item.key in values:
            chosen = item.mode if item.mode is not None else mode
            made.append(VolumeFile(_path(item.path), values[item.key], _mode(chosen)))
        elif not optional:
            raise NotThere(f"{reference} references non-existent key: {item.key}")
    return made


def _path(text: str) -> str:
    path = PurePosixPath(text)
    if not text or path.is_absolute() or ".." in path.parts or text.startswith(".."):
        raise SpecError(f"path {text!r} must be relative, without '..', and not begin with it")
    return str(path)


def _mode(mode: int | None) -> int:
    if mode is not None and mode not in _MODES:
        raise SpecError(f"mode {mode} is not between 0 and 0777 (511)")
    return DEFAULT_MODE if mode is None else mode


def _unique(made: Sequence[VolumeFile]) -> list[VolumeFile]:
    """The last of several files for one path wins; a file cannot lie in another."""
    chosen = {file.path: file for file in made}
    for path in chosen:
        for parent in PurePosixPath(path).parents:
            if str(parent) in chosen:
                raise SpecError(f"path {path!r} lies below {str(parent)!r}, which is a file")
    return list(chosen.values())
