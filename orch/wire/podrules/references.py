"""The API objects that a pod refers to, in variables, volumes and its service account.

Nodes may read exactly those of their pods, the agent fetches them, and a static pod may have none
(reference: podutil.HasAPIObjectReference). Works on specs that are documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from orch.wire import raw
from orch.wire.podrules.podspec import document_places

CONFIG_MAP, SECRET = "ConfigMap", "Secret"
SERVICE_ACCOUNT = "ServiceAccount"
_OF_KEYS = {"configMapKeyRef": CONFIG_MAP, "secretKeyRef": SECRET}
_OF_WHOLES = {"configMapRef": CONFIG_MAP, "secretRef": SECRET}
_OF_VOLUMES = {
    "configMap": (CONFIG_MAP, "name"),
    "secret": (SECRET, "secretName"),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"),
}
_OF_PROJECTIONS = {"configMap": CONFIG_MAP, "secret": SECRET}
_OF_THE_POD_ITSELF = "downwardAPI"


class ApiReference(NamedTuple):
    """`name` is "" where none is given; objects are in the pod's own namespace."""

    kind: str
    name: str
    path: str  # of the field that refers to it
    holder: str = ""  # the volume or container with the field


def api_references(spec: Mapping[str, Any]) -> Iterator[ApiReference]:
    """All references; an unknown projected source has its field's name as kind."""
    if account := raw.text(spec, "serviceAccountName"):
        yield ApiReference(SERVICE_ACCOUNT, account, "spec.serviceAccountName")
    for path, container in document_places(spec):
        yield from _of_container(container, path)
    yield from volume_references(spec)


def volume_references(spec: Mapping[str, Any]) -> Iterator[ApiReference]:
    """The references of volumes."""
    for index, volume in enumerate(raw.records(spec, "volumes")):
        path, holder = f"spec.volumes[{index}]", f"volume {raw.text(volume, 'name')}"
        for source, (kind, field) in _OF_VOLUMES.items():
            if volume.get(source) is not None:
                yield ApiReference(kind, raw.text(volume, source, field), path, holder)
        for projection in raw.records(volume, "projected", "sources"):
            for source in projection:
                if source != _OF_THE_POD_ITSELF:
                    kind = _OF_PROJECTIONS.get(source, source)
                    yield ApiReference(kind, raw.text(projection, source, "name"), path, holder)


def _of_container(container: Mapping[str, Any], path: str) -> Iterator[ApiReference]:
    holder = f"container {raw.text(container, 'name')}"
    sources = [
        (raw.mapping(variable, "valueFrom"), _OF_KEYS, f"{path}.env[{index}].valueFrom")
        for index, variable in enumerate(raw.records(container, "env"))
    ]
    sources += [
        (whole, _OF_WHOLES, f"{path}.envFrom") for whole in raw.records(container, "envFrom")
    ]
    for source, kinds, at in sources:
        for field, kind in kinds.items():
            if source.get(field) is not None:
                yield ApiReference(kind, raw.text(source, field, "name"), at, holder)
