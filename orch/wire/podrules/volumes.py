"""The volumes of a pod: mistakes that no agent could make good; pure.

Rules, field paths and texts are the reference's (K:pkg/apis/core/validation), also where its paths
leave out an index. Volumes that agents here do not mount are refused, by the name of their kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orch.wire import causes, quantity, raw
from orch.wire.errors import Cause
from orch.wire.podrules.podspec import PULL_POLICIES
from orch.wire.podrules.references import VOLUME_FIELDS, amount_causes, field_causes
from orch.wire.validation import (
    dns1123_label_problems,
    local_path_problems,
    upward_path_problems,
)

Document = Mapping[str, Any]

_MODE_MAX = 0o777
_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate",
    "Socket",
)  # fmt: skip
_TOKEN_MIN_S, _TOKEN_MAX_S = 10 * 60, 2**32
_SERVER_MAX, _SHARE_MAX = 253, 1024  # bytes of a server's name, and of a path on it
_CONFLICT = "conflicting duplicate paths"
_REQUIRED = {  # of volumes that agents do not make
    "awsElasticBlockStore": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "azureFile": ("secretName", "shareName"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
    "flexVolume": ("driver",),
    "gcePersistentDisk": ("pdName",),
    "gitRepo": ("repository",),
    "glusterfs": ("endpoints", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "persistentVolumeClaim": ("claimName",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "quobyte": ("registry", "volume"),
    "rbd": ("monitors", "image"),
    "scaleIO": ("gateway", "system", "volumeName"),
    "storageos": ("volumeName",),
    "vsphereVolume": ("volumePath",),
}


_BY_HOST = "mount it on the node and use hostPath"
_NOT_OFFERED = {
    **dict.fromkeys(_REQUIRED, f"agents do not mount storage of this kind; {_BY_HOST}"),
    "csi": f"there are no storage drivers; {_BY_HOST}",
    "ephemeral": "there are no claims of storage; use emptyDir",
    "fc": f"agents do not mount storage of this kind; {_BY_HOST}",
    "flocker": f"agents do not mount storage of this kind; {_BY_HOST}",
    "gitRepo": "agents clone nothing; use an init container and emptyDir",
    "persistentVolumeClaim": "there are no claims of storage; use hostPath or emptyDir",
}


def volume_causes(volumes: Iterable[Document], valid: dict[str, Document]) -> Iterator[Cause]:
    """What is wrong with the volumes of a pod; those without mistakes are added to `valid`, even
    if they are of a kind that is not offered.
    """
    for index, volume in enumerate(volumes):
        found = [*_volume_causes(volume, f"spec.volumes[{index}]", valid)]
        yield from found
        if not found:
            valid[volume["name"]] = volume
            yield from _offer_causes(volume, f"spec.volumes[{index}]")


def _volume_causes(volume: Document, path: str, valid: Mapping[str, Document]) -> Iterator[Cause]:
    named = [name for name, source in volume.items() if name != "name" and source is not None]
    for kind in named[:1]:
        yield from _source_causes(kind, volume[kind], f"{path}.{kind}")
    for extra in named[1:]:
        yield causes.forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
    name, at = volume.get("name"), f"{path}.name"
    if not name:
        yield causes.required(at)
    elif name in valid:
        yield causes.duplicate(at, name)
    else:
        yield from causes.invalid_values(at, name, dns1123_label_problems(name))


def _offer_causes(volume: Document, path: str) -> Iterator[Cause]:
    """A kind that the reference mounts, and agents here do not."""
    for kind in _NOT_OFFERED.keys() & volume.keys():
        if volume[kind] is not None:
            yield causes.forbidden(f"{path}.{kind}", f"not offered here: {_NOT_OFFERED[kind]}")


def _source_causes(kind: str, source: Any, path: str) -> Iterable[Cause]:
    if kind in _RULES:
        return _RULES[kind](source, path)
    required = _REQUIRED.get(kind, ()) if isinstance(source, dict) else ()
    return causes.unless_given(source, path, *required)


def _empty_dir_causes(source: Document, path: str) -> Iterator[Cause]:
    size, at = source.get("sizeLimit"), f"{path}.sizeLimit"
    if size is None:
        return
    try:
        if quantity.parse_quantity(size) < 0:
            yield causes.forbidden(at, "SizeLimit field must be a valid resource quantity")
    except ValueError as error:
        yield causes.invalid_value(at, size, str(error))


def _host_path_causes(source: Document, path: str) -> Iterator[Cause]:
    place = source.get("path")
    if not place:
        yield causes.required(f"{path}.path")
        return
    yield from causes.invalid_values(f"{path}.path", place, upward_path_problems(place))
    yield from causes.unless_one_of(source, "type", _HOST_PATH_TYPES, path)


def _nfs_causes(source: Document, path: str) -> Iterator[Cause]:
    yield from causes.unless_given(source, path, "server")
    yield from causes.unless_given(source, path, "path")
    place = raw.text(source, "path")
    if place and not place.startswith("/"):
        yield causes.invalid_value(f"{path}.path", place, "must be an absolute path")
    for name, most in (("server", _SERVER_MAX), ("path", _SHARE_MAX)):
        if len(raw.text(source, name).encode()) > most:
            yield causes.too_long(f"{path}.{name}", f"may not be more than {most} bytes")


def _image_causes(source: Document, path: str) -> Iterator[Cause]:
    yield from causes.unless_given(source, path, "reference")
    yield from causes.unless_one_of(source, "pullPolicy", PULL_POLICIES, path)


def _secret_causes(source: Document, path: str) -> Iterator[Cause]:
    return _object_causes(source, path, "secretName")


def _config_map_causes(source: Document, path: str) -> Iterator[Cause]:
    return _object_causes(source, path, "name")


def _object_causes(source: Document, path: str, name: str) -> Iterator[Cause]:
    yield from causes.unless_given(source, path, name)
    yield from _mode_causes(source, "defaultMode", path)
    for index, item in enumerate(source.get("items") or ()):
        yield from _item_causes(item, f"{path}.items[{index}]")


def _item_causes(item: Document, path: str) -> Iterator[Cause]:
    yield from causes.unless_given(item, path, "key")
    yield from _file_causes(item, path)
    yield from _mode_causes(item, "mode", path)


def _file_causes(item: Document, path: str) -> Iterator[Cause]:
    yield from causes.unless_given(item, path, "path")
    file = item.get("path") or ""
    yield from causes.invalid_values(f"{path}.path", file, local_path_problems(file))


def _mode_causes(record: Document, name: str, path: str) -> Iterator[Cause]:
    mode = record.get(name)
    if mode is not None and not 0 <= mode <= _MODE_MAX:
        yield causes.invalid_value(f"{path}.{name}", mode, _MODE)


def _downward_causes(source: Document, path: str) -> Iterator[Cause]:
    yield from _mode_causes(source, "defaultMode", path)
    for item in source.get("items") or ():
        yield from _fact_causes(item, path)


def _fact_causes(item: Document, path: str) -> Iterator[Cause]:
    """What is wrong with a file of a downwardAPI volume; `path` is the volume's."""
    yield from _file_causes(item, path)
    field, amount = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        yield from field_causes(field, f"{path}.fieldRef", VOLUME_FIELDS)
        if amount is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield causes.invalid_value(path, "resource", text)
    elif amount is not None:
        yield from amount_causes(amount, f"{path}.resourceFieldRef", of_any_container=True)
    else:
        yield causes.required(path, "one of fieldRef and resourceFieldRef is required")
    yield from _mode_causes(item, "mode", path)


def _projected_causes(source: Document, path: str) -> Iterator[Cause]:
    yield from _mode_causes(source, "defaultMode", path)
    taken: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{index}]"
        named = [kind for kind in _PROJECTIONS if projection.get(kind) is not None]
        for kind in named:
            yield from _PROJECTIONS[kind](projection[kind], f"{at}.{kind}", path)
            yield from _conflict_causes(projection[kind], path, taken)
        if len(named) > 1:
            yield causes.forbidden(at, "may not specify more than 1 volume type per source")


def _conflict_causes(projection: Any, path: str, taken: set[str]) -> Iterator[Cause]:
    """Files at one path; `taken` grows."""
    for item in raw.records(projection, "items"):
        file = item.get("path")
        if file and file in taken:
            yield causes.invalid_value(path, raw.text(projection, "name") or file, _CONFLICT)
        taken.add(file or "")


def _projected_object_causes(source: Document, path: str, _volume: str) -> Iterator[Cause]:
    return _object_causes(source, path, "name")


def _projected_facts_causes(source: Document, path: str, _volume: str) -> Iterator[Cause]:
    for item in source.get("items") or ():
        yield from _fact_causes(item, path)


def _token_causes(source: Any, path: str, volume: str) -> Iterator[Cause]:
    lifetime_s = raw.value(source, "expirationSeconds")
    if isinstance(lifetime_s, int) and not _TOKEN_MIN_S <= lifetime_s <= _TOKEN_MAX_S:
        short = lifetime_s < _TOKEN_MIN_S
        text = "less than 10 minutes" if short else "larger than 2^32 seconds"
        text = f"may not specify a duration {text}"
        yield causes.invalid_value(f"{path}.expirationSeconds", lifetime_s, text)
    yield from _file_causes({"path": raw.text(source, "path")}, volume)


def _not_offered_causes(_source: Any, path: str, _volume: str) -> Iterator[Cause]:
    """The kinds that say what to trust, and certificates for pods, are not served."""
    text = "is not offered here; put certificates into a configMap or a secret and project that"
    yield causes.forbidden(path, text)


_RULES: Mapping[str, Callable[[Document, str], Iterator[Cause]]] = {
    "configMap": _config_map_causes,
    "downwardAPI": _downward_causes,
    "emptyDir": _empty_dir_causes,
    "hostPath": _host_path_causes,
    "image": _image_causes,
    "nfs": _nfs_causes,
    "projected": _projected_causes,
    "secret": _secret_causes,
}
_PROJECTIONS: Mapping[str, Callable[[Document, str, str], Iterator[Cause]]] = {
    "secret": _projected_object_causes,
    "configMap": _projected_object_causes,
    "downwardAPI": _projected_facts_causes,
    "serviceAccountToken": _token_causes,
    "clusterTrustBundle": _not_offered_causes,
    "podCertificate": _not_offered_causes,
}
