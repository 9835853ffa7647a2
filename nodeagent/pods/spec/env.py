"""The environment of a container: values, `$(VAR)`, fields of the pod, keys of objects; pure.

Expansion follows the reference (third_party/forked/golang/expansion): an undefined name stays as
written. Fields and amounts serve downwardAPI volumes as well: an unset limit is the node's
allocatable amount, and amounts are rounded up to whole divisors (pkg/fieldpath, api/v1/resource).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from nodeagent.pods.spec import references
from nodeagent.pods.spec.references import NotThere, Objects, Reference
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.references import CONFIG_MAP, SECRET
from orch.wire.records.pods import (
    Container,
    EnvVar,
    EnvVarSource,
    KeySelector,
    Pod,
    ResourceFieldRef,
)

MAX_BYTES = 2 * 1024 * 1024  # the kernel takes a quarter of the stack's limit, usually 8 MiB
_VARIABLE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class SpecError(Exception):
    """The pod's spec cannot be fulfilled; the text names the field and the reason."""


class Room:
    """What command, arguments and variables of one container may still take.

    Each may refer to earlier ones, so that a short text can become a very long one.
    """

    def __init__(self) -> None:
        self._left = MAX_BYTES

    def take(self, text: str) -> str:
        """The text; SpecError when there is no room for it."""
        self._left -= len(text.encode(errors="replace"))
        if self._left < 0:
            raise SpecError(
                f"command, args and env take more than {MAX_BYTES} bytes, which no container can "
                "be started with; pass large values as files"
            )
        return text


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace every `$(NAME)` that `values` has, and `$$` by a dollar sign. SpecError."""
    room = Room()

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] is None else room.take(values.get(found[1], found[0]))

    end = text.rfind(")") + 1  # beyond it no name ends, and the search for its end would be long
    return _VARIABLE.sub(value, text[:end]) + text[end:].replace("$$", "$")


def environment(
    container: Container,
    value_from: Callable[[EnvVarSource], str | None],
    objects: Objects = references.NO_OBJECTS,
    room: Room | None = None,
) -> tuple[tuple[str, str], ...]:
    """Names and values in order, `envFrom` first; the last of a repeated name wins.

    A value can refer to those before it. `value_from` returns the value of a field, None for a
    source it does not know. SpecError, also for a required object that is missing from `objects`.
    """
    room = room or Room()
    try:
        values = _whole_objects(container, objects, room)
        for variable in container.env or ():
            value = _value(container, variable, values, value_from, objects)
            if value is not None:
                values[variable.name] = room.take(value)
    except NotThere as error:
        raise SpecError(str(error)) from None
    return tuple(values.items())


def _whole_objects(container: Container, objects: Objects, room: Room) -> dict[str, str]:
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
                    values[name] = room.take(value.decode(errors="replace"))
    return values


def _of_key(reference: Reference, wanted: KeySelector, objects: Objects) -> str | None:
    """None for an optional key that is absent."""
    data = references.look_up(objects, reference, optional=bool(wanted.optional)) or {}
    if wanted.key not in data and not wanted.optional:
        raise NotThere(f"couldn't find key {wanted.key} in {reference}")
    return data[wanted.key].decode(errors="replace") if wanted.key in data else None


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


def _value(
    container: Container,
    variable: EnvVar,
    values: Mapping[str, str],
    value_from: Callable[[EnvVarSource], str | None],
    objects: Objects,
) -> str | None:
    """None for a variable that is left out."""
    source = variable.valueFrom
    if source is None:
        return expand(variable.value or "", values)
    for kind, wanted in ((CONFIG_MAP, source.configMapKeyRef), (SECRET, source.secretKeyRef)):
        if wanted is not None:
            return _of_key(Reference(kind, wanted.name), wanted, objects)
    if (found := value_from(source)) is not None:
        return found
    given = ", ".join(source.to_wire()) or "nothing"
    raise SpecError(
        f"container {container.name}: env {variable.name}: valueFrom {given} is not supported; "
        "use fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef or a literal value"
    )


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
