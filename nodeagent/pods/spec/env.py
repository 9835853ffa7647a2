"""The environment of a container: values, `$(VAR)`, fields of the pod, keys of objects; pure.

Expansion follows the reference (`third_party/forked/golang/expansion`): a name that is not defined
stays as it was written. The pod's own fields serve downwardAPI volumes as well: a limit that is not
set is what the node can give, amounts are rounded up to whole divisors (pkg/fieldpath,
api/v1/resource).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodeagent.pods.spec import references
from nodeagent.pods.spec.references import NotThere, Objects, Reference
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.references import CONFIG_MAP, SECRET
from orch.wire.records.pods import (
    Container,
    DownwardAPIItem,
    DownwardAPIVolume,
    EnvVar,
    EnvVarSource,
    Pod,
    ResourceFieldRef,
)

_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class SpecError(Exception):
    """The pod asks for something that cannot be built; the text names the field and the reason."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace every `$(NAME)` that `values` knows."""
    out: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0 and dollar + 1 < len(text):
        out.append(text[at:dollar])
        piece, length = _reference(text, dollar + 1, values)
        out.append(piece)
        at = dollar + 1 + length
    out.append(text[at:])
    return "".join(out)


def environment(
    container: Container,
    value_from: Callable[[EnvVarSource], str | None],
    objects: Objects = references.NO_OBJECTS,
) -> tuple[tuple[str, str], ...]:
    """Names and values in order; the last of a repeated name wins, earlier ones can be referred to.

    `value_from` gives the value of a field, None for a source it does not know; its SpecError is
    passed on. What `envFrom` gives comes first. SpecError for what is not in `objects` and must be.
    """
    try:
        values = _whole_objects(container, objects)
        for variable in container.env or ():
            value = _value(container, variable, values, value_from, objects)
            if value is not None:
                values[variable.name] = value
    except NotThere as error:
        raise SpecError(str(error)) from None
    return tuple(values.items())


def _whole_objects(container: Container, objects: Objects) -> dict[str, str]:
    values: dict[str, str] = {}
    for source in container.envFrom or ():
        for kind, wanted in ((CONFIG_MAP, source.configMapRef), (SECRET, source.secretRef)):
            if wanted is None:
                continue
            reference = Reference(kind, wanted.name)
            data = references.look_up(objects, reference, optional=bool(wanted.optional))
            for key, value in (data or {}).items():
                name = (source.prefix or "") + key
                if name and "=" not in name and "\0" not in name:
                    values[name] = value.decode(errors="replace")
    return values


def _of_object(source: EnvVarSource, objects: Objects) -> tuple[str | None] | None:
    """The value (None: it need not be there) of a key; None for another kind of source."""
    for kind, wanted in ((CONFIG_MAP, source.configMapKeyRef), (SECRET, source.secretKeyRef)):
        if wanted is None:
            continue
        reference = Reference(kind, wanted.name)
        data = references.look_up(objects, reference, optional=bool(wanted.optional))
        if data is not None and wanted.key in data:
            return (data[wanted.key].decode(errors="replace"),)
        if wanted.optional:
            return (None,)
        raise NotThere(f"couldn't find key {wanted.key} in {reference}")
    return None


def pod_field(pod: Pod, path: str, addresses: Mapping[str, str]) -> str:
    """The value of a downward field; `addresses` holds status.podIP, hostIP and their plurals."""
    if path in addresses:
        return addresses[path]
    meta = pod.metadata
    plain = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace or "",
        "metadata.uid": meta.uid or "",
        "spec.nodeName": pod.spec.nodeName or "",
        "spec.serviceAccountName": pod.spec.serviceAccountName or "",
    }
    if path in plain:
        return plain[path]
    if keyed := _KEYED_FIELD.fullmatch(path):
        held = meta.labels if keyed[1] == "labels" else meta.annotations
        return (held or {}).get(keyed[2], "")
    raise SpecError(f"fieldRef.fieldPath {path!r} is not a field that containers can be given")


def _reference(text: str, at: int, values: Mapping[str, str]) -> tuple[str, int]:
    """What the text after a dollar sign becomes, and how many characters of it are used."""
    if text[at] == "$":
        return "$", 1
    if text[at] != "(":
        return "$" + text[at], 1
    end = text.find(")", at)
    if end < 0:
        return "$(", 1
    name = text[at + 1 : end]
    return values.get(name, f"$({name})"), end - at + 1


def _value(
    container: Container,
    variable: EnvVar,
    values: Mapping[str, str],
    value_from: Callable[[EnvVarSource], str | None],
    objects: Objects,
) -> str | None:
    """None for a variable that is left out."""
    if variable.valueFrom is None:
        return expand(variable.value or "", values)
    if found_object := _of_object(variable.valueFrom, objects):
        return found_object[0]
    if (found := value_from(variable.valueFrom)) is not None:
        return found
    asked = ", ".join(variable.valueFrom.to_wire()) or "nothing"
    raise SpecError(
        f"container {container.name}: env {variable.name}: valueFrom {asked} is not supported; "
        "use fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef or a literal value"
    )


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
    amounts = podspec.limits(container) if kind == "limits" else podspec.requests(container)
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
        return pod_field(pod, path, {})
    if item.resourceFieldRef is None:
        raise SpecError(f"downwardAPI item {item.path!r} has neither fieldRef nor resourceFieldRef")
    name = item.resourceFieldRef.containerName
    every = [*(pod.spec.initContainers or ()), *pod.spec.containers]
    container = next((c for c in every if c.name == name), None)
    if container is None:
        raise SpecError(f"downwardAPI item {item.path!r}: there is no container {name!r}")
    return resource_field(container, item.resourceFieldRef, allocatable)
