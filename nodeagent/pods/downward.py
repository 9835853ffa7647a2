"""What a pod may know of itself: its fields and its containers' resources, as text; pure.

For environment variables and for the files of downwardAPI volumes. Rules of the reference agent
(pkg/fieldpath, api/v1/resource): a limit that is not set is what the node can give, amounts are
rounded up to whole divisors, maps are written one `key="value"` a line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodeagent.pods import env, qos
from nodeagent.pods.env import SpecError
from orch.wire import quantity
from orch.wire.pods import Container, DownwardAPIItem, DownwardAPIVolume, Pod, ResourceFieldRef

DEFAULT_MODE = 0o644
_RESOURCES = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class DownwardFile:
    path: str  # below the volume
    content: str
    mode: int


def files(
    pod: Pod, volume: DownwardAPIVolume, allocatable: Mapping[str, str]
) -> list[DownwardFile]:
    """The files of a volume; SpecError names the item that cannot be."""
    made = []
    for item in volume.items or ():
        path = PurePosixPath(item.path)
        if not item.path or path.is_absolute() or ".." in path.parts:
            raise SpecError(f"downwardAPI path {item.path!r} must be relative and without '..'")
        mode = item.mode if item.mode is not None else volume.defaultMode
        content = _content(pod, item, allocatable)
        made.append(DownwardFile(str(path), content, DEFAULT_MODE if mode is None else mode))
    return made


def resource_field(
    container: Container, reference: ResourceFieldRef, allocatable: Mapping[str, str]
) -> str:
    """The amount as a whole number of divisors."""
    kind, _, resource = reference.resource.partition(".")
    if kind not in ("limits", "requests") or resource not in _RESOURCES:
        raise SpecError(f"resourceFieldRef.resource {reference.resource!r} is not known")
    amounts = qos.limits(container) if kind == "limits" else qos.requests(container)
    default = allocatable.get(resource, "0") if kind == "limits" else "0"
    amount = quantity.parse_quantity(amounts.get(resource, default))
    divisor = quantity.parse_quantity(reference.divisor or 1) or quantity.parse_quantity(1)
    return str(math.ceil(amount / divisor))


def _content(pod: Pod, item: DownwardAPIItem, allocatable: Mapping[str, str]) -> str:
    if item.fieldRef is not None:
        path = item.fieldRef.fieldPath
        if path in ("metadata.labels", "metadata.annotations"):
            held = pod.metadata.labels if path.endswith("labels") else pod.metadata.annotations
            lines = (
                f"{key}={json.dumps(value, ensure_ascii=False)}"
                for key, value in sorted((held or {}).items())
            )
            return "\n".join(lines)
        return env.pod_field(pod, path, {})
    if item.resourceFieldRef is None:
        raise SpecError(f"downwardAPI item {item.path!r} has neither fieldRef nor resourceFieldRef")
    name = item.resourceFieldRef.containerName
    every = [*(pod.spec.initContainers or ()), *pod.spec.containers]
    container = next((c for c in every if c.name == name), None)
    if container is None:
        raise SpecError(f"downwardAPI item {item.path!r}: there is no container {name!r}")
    return resource_field(container, item.resourceFieldRef, allocatable)
