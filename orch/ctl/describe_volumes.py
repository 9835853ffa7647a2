"""The volumes of a pod in the text of `orchctl describe`; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from orch.ctl import amounts, sheet
from orch.ctl.gotemplate_functions import text as go_text
from orch.wire import raw
from orch.wire.tables.layout import NONE

Record = Mapping[str, Any]
_MAX_ATTRIBUTE = 140  # bytes
_INDENT = "    "
_WITHOUT_COLON = "ISCSIInterface"  # a slip of kubectl's


def lines(volumes: list[Record]) -> list[str]:
    """Each volume with its type and where it comes from."""
    if not volumes:
        return [sheet.field("Volumes", NONE)]
    return ["Volumes:", *(line for volume in volumes for line in _volume(volume))]


def _volume(volume: Record) -> list[str]:
    name = sheet.line(f"{raw.text(volume, 'name')}:", level=1)
    for kind, form in _FORMS.items():
        if isinstance(source := volume.get(kind), Mapping):
            told = [(title, show(source.get(member))) for title, member, show in form.fields]
            lines = [_field(title, value) for title, value in (("Type", form.text), *told)]
            return [name, *lines, *form.more(source)]
    return [name, sheet.line("<unknown>", level=1)]


def _field(title: str, value: str) -> str:
    return sheet.line(title if title == _WITHOUT_COLON else f"{title}:", value, level=2)


def _text(value: Any) -> str:
    return go_text("" if value is None else value)


def _flag(value: Any) -> str:
    return str(value is True).lower()


def _or_none(value: Any) -> str:
    return NONE if value is None else go_text(value)


def _number(value: Any) -> str:
    return go_text(value or 0)


def _words(value: Any) -> str:
    return go_text(value or [])


def _map(value: Any) -> str:
    return go_text(value or {})


def _joined(value: Any) -> str:
    return ", ".join(value or [])


def _reference(value: Any) -> str:
    """A reference to a secret as its record writes itself."""
    return f"&LocalObjectReference{{Name:{raw.text(value, 'name')},}}" if value else "nil"


def _size_limit(value: Any) -> str:
    shown = amounts.canonical(value or 0)
    return "<unset>" if shown == "0" else shown


def _nothing(source: Record) -> list[str]:
    return []


def _items(source: Record) -> list[str]:
    lines = [sheet.line("Items:", level=2)]
    for item in raw.records(source, "items"):
        origin = raw.text(item, "fieldRef", "fieldPath") or raw.text(
            item, "resourceFieldRef", "resource"
        )
        lines.append(sheet.line(f"{origin} -> {raw.text(item, 'path')}", level=3))
    return lines


def _sources(projected: Record) -> list[str]:
    return [line for source in raw.records(projected, "sources") for line in _projection(source)]


def _projection(source: Record) -> list[str]:
    for member, title in (("secret", "SecretName"), ("configMap", "ConfigMapName")):
        if isinstance(part := source.get(member), Mapping):
            optional = sheet.field("Optional", _flag(part.get("optional")), 2)
            return [sheet.field(title, raw.text(part, "name"), 2), optional]
    if "downwardAPI" in source:
        return [sheet.field("DownwardAPI", "true", 2)]
    if isinstance(token := source.get("serviceAccountToken"), Mapping):
        lasts_s = raw.number(token, "expirationSeconds")
        return [sheet.field("TokenExpirationSeconds", str(lasts_s), 2)]
    return []


def _attributes(source: Record) -> list[str]:
    pairs = sorted(raw.mapping(source, "volumeAttributes").items())
    texts = [f"{key}={value}" for key, value in pairs] or [NONE]
    first, *more = (sheet.shortened(text, _MAX_ATTRIBUTE) for text in texts)
    rest = [sheet.line("", f"{_INDENT}{text}", level=2) for text in more]
    shown = f"{_INDENT}{first}" if pairs else first
    return [sheet.field("VolumeAttributes", shown, 2), *rest]


def _claim(source: Record) -> list[str]:
    """The claim that an ephemeral volume is made from; kubectl indents its values as well."""
    template = raw.mapping(source, "volumeClaimTemplate")
    if not template:
        return []
    spec = raw.mapping(template, "spec")
    marks = [line.replace("\t", f"\t{_INDENT}") for line in sheet.marks(template)]
    return [
        sheet.field("StorageClass", raw.text(spec, "storageClassName"), 2),
        sheet.field("Volume", raw.text(spec, "volumeName"), 2),
        *(f"{_INDENT}{line}" for line in marks),
        sheet.field("Capacity", "", 2),
        sheet.field("Access Modes", "", 2),
        *sheet.optional("VolumeMode", raw.text(spec, "volumeMode"), 2),
    ]


class _Form(NamedTuple):
    """How a type of volume is told: its text, then title, member and form of its fields."""

    text: str
    fields: tuple[tuple[str, str, Callable[[Any], str]], ...] = ()
    more: Callable[[Record], list[str]] = _nothing


_READ_ONLY = ("ReadOnly", "readOnly", _flag)
_FS_TYPE = ("FSType", "fsType", _text)
_OPTIONAL = ("Optional", "optional", _flag)
_SECRET = ("SecretRef", "secretRef", _reference)
_FORMS: Mapping[str, _Form] = {
    "hostPath": _Form(
        "HostPath (bare host directory volume)",
        (("Path", "path", _text), ("HostPathType", "type", _or_none)),
    ),
    "emptyDir": _Form(
        "EmptyDir (a temporary directory that shares a pod's lifetime)",
        (("Medium", "medium", _text), ("SizeLimit", "sizeLimit", _size_limit)),
    ),
    "secret": _Form(
        "Secret (a volume populated by a Secret)",
        (("SecretName", "secretName", _text), _OPTIONAL),
    ),
    "configMap": _Form(
        "ConfigMap (a volume populated by a ConfigMap)", (("Name", "name", _text), _OPTIONAL)
    ),
    "downwardAPI": _Form(
        "DownwardAPI (a volume populated by information about the pod)", more=_items
    ),
    "projected": _Form(
        "Projected (a volume that contains injected data from multiple sources)", more=_sources
    ),
    "persistentVolumeClaim": _Form(
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        (("ClaimName", "claimName", _text), _READ_ONLY),
    ),
    "ephemeral": _Form(
        "EphemeralVolume (an inline specification for a volume that gets created and deleted with "
        "the pod)",
        more=_claim,
    ),
    "csi": _Form(
        "CSI (a Container Storage Interface (CSI) volume source)",
        (("Driver", "driver", _text), _FS_TYPE, _READ_ONLY),
        _attributes,
    ),
    "image": _Form(
        "Image (a container image or OCI artifact)",
        (("Reference", "reference", _text), ("PullPolicy", "pullPolicy", _text)),
    ),
    "nfs": _Form(
        "NFS (an NFS mount that lasts the lifetime of a pod)",
        (("Server", "server", _text), ("Path", "path", _text), _READ_ONLY),
    ),
    "iscsi": _Form(
        "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then "
        "exposed to the pod)",
        (
            ("TargetPortal", "targetPortal", _text), ("IQN", "iqn", _text),
            ("Lun", "lun", _number), ("ISCSIInterface", "iscsiInterface", _text), _FS_TYPE,
            _READ_ONLY, ("Portals", "portals", _words),
            ("DiscoveryCHAPAuth", "chapAuthDiscovery", _flag),
            ("SessionCHAPAuth", "chapAuthSession", _flag), _SECRET,
            ("InitiatorName", "initiatorName", _or_none),
        ),
    ),
    "fc": _Form(
        "FC (a Fibre Channel disk)",
        (("TargetWWNs", "targetWWNs", _joined), ("LUN", "lun", _or_none), _FS_TYPE, _READ_ONLY),
    ),
    "rbd": _Form(
        "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
        (
            ("CephMonitors", "monitors", _words), ("RBDImage", "image", _text), _FS_TYPE,
            ("RBDPool", "pool", _text), ("RadosUser", "user", _text),
            ("Keyring", "keyring", _text), _SECRET, _READ_ONLY,
        ),
    ),
    "cephfs": _Form(
        "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
        (
            ("Monitors", "monitors", _words), ("Path", "path", _text), ("User", "user", _text),
            ("SecretFile", "secretFile", _text), _SECRET, _READ_ONLY,
        ),
    ),
    "glusterfs": _Form(
        "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
        (("EndpointsName", "endpoints", _text), ("Path", "path", _text), _READ_ONLY),
    ),
    "gitRepo": _Form(
        "GitRepo (a volume that is pulled from git when the pod is created)",
        (("Repository", "repository", _text), ("Revision", "revision", _text)),
    ),
    "flexVolume": _Form(
        "FlexVolume (a generic volume resource that is provisioned/attached using an exec based "
        "plugin)",
        (("Driver", "driver", _text), _FS_TYPE, _SECRET, _READ_ONLY, ("Options", "options", _map)),
    ),
}  # fmt: skip
