"""The environment of a container: values, `$(VAR)`, fields of the pod, keys of objects; pure.

Expansion follows the reference (third_party/forked/golang/expansion): an undefined name stays as
written. Fields and amounts serve downwardAPI volumes as well: an unset limit is the node's
allocatable amount, and amounts are rounded up to whole divisors (pkg/fieldpath, api/v1/resource).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from urllib.parse import urlsplit

from nodeagent.pods.spec import references
from nodeagent.pods.spec.references import NotThere, Objects, Reference
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.references import CONFIG_MAP, SECRET
from orch.wire.records.pods import Container, Pod
from orch.wire.records.variables import (
    EnvVar,
    EnvVarSource,
    FileKeySelector,
    KeySelector,
    ResourceFieldRef,
)

MAX_BYTES = 2 * 1024 * 1024  # the kernel takes a quarter of the stack's limit, usually 8 MiB
_EACH = 9  # bytes that the kernel takes for a text beside it: its end, and where it is
_HTTPS = 443
_VARIABLE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class SpecError(Exception):
    """The pod's spec cannot be fulfilled; the text names the field and the reason."""


@dataclass(frozen=True, slots=True)
class EnvFile:
    """`problem`: why it could not be read; `absent`: it does not exist."""

    values: Mapping[str, str] = field(default_factory=dict)
    absent: bool = False
    problem: str = ""


Files = Mapping[tuple[str, str], EnvFile]  # by volume, and path there
NO_FILES: Files = MappingProxyType({})


class Room:
    """What command, arguments and variables of one container may still take, names included.

    Each may refer to earlier ones, so that a short text can become a very long one; one prefix is
    part of the names of a whole object's keys.
    """

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._left = most

    def take(self, text: str, beside: int = _EACH) -> str:
        """The text; SpecError when there is no room for it."""
        self._left -= len(text.encode(errors="replace")) + beside
        if self._left < 0:
            raise SpecError(
                f"command, args and env take more than {MAX_BYTES} bytes, which no container can "
                "be started with; pass large values as files"
            )
        return text


def expand(text: str, values: Mapping[str, str], room: Room | None = None) -> str:
    """Replace every `$(NAME)` that `values` has, and `$$` by a dollar sign. SpecError when what
    they stand for has no room, as large as a container's unless given.
    """
    room = room or Room()

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] is None else room.take(values.get(found[1], found[0]), 0)

    end = text.rfind(")") + 1  # beyond it no name ends, and the search for its end would be long
    return _VARIABLE.sub(value, text[:end]) + text[end:].replace("$$", "$")


def api_server_variables(url: str) -> dict[str, str]:
    """By which clients in pods find the API server, as those of the Service `kubernetes` in the
    reference; none for a server that they could not use: without TLS, or below a path.
    """
    found = urlsplit(url)
    if found.scheme != "https" or not found.hostname or found.path.strip("/"):
        return {}
    host, port = found.hostname, str(found.port or _HTTPS)
    address = f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
    tcp = f"KUBERNETES_PORT_{port}_TCP"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": address,
        tcp: address,
        f"{tcp}_PROTO": "tcp",
        f"{tcp}_PORT": port,
        f"{tcp}_ADDR": host,
    }


def environment(
    container: Container,
    value_from: Callable[[EnvVarSource], str | None],
    objects: Objects = references.NO_OBJECTS,
    room: Room | None = None,
    given: Mapping[str, str] = MappingProxyType({}),
    files: Files = NO_FILES,
) -> tuple[tuple[str, str], ...]:
    """Names and values in order, `given` and `envFrom` first; the last of a repeated name wins.

    A value can refer to those before it. `value_from` returns the value of a field, None for a
    source it does not know. SpecError, also for a required object that is missing from `objects`,
    or a file from `files`.
    """
    room = room or Room()
    try:
        values = {**given, **_whole_objects(container, objects, room)}
        for variable in container.env or ():
            if variable.valueFrom is not None and variable.valueFrom.fileKeyRef is not None:
                value = _of_file(variable.valueFrom.fileKeyRef, files)
            else:
                value = _value(container, variable, values, value_from, objects)
            if value is not None:
                values[room.take(variable.name)] = room.take(value)
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
                    values[room.take(name)] = room.take(value.decode(errors="replace"))
    return values


def _of_key(reference: Reference, wanted: KeySelector, objects: Objects) -> str | None:
    """None for an optional key that is absent."""
    data = references.look_up(objects, reference, optional=bool(wanted.optional)) or {}
    if wanted.key not in data and not wanted.optional:
        raise NotThere(f"couldn't find key {wanted.key} in {reference}")
    return data[wanted.key].decode(errors="replace") if wanted.key in data else None


def _of_file(wanted: FileKeySelector, files: Files) -> str | None:
    """None for an optional key, or file, that is absent."""
    place = f"file {wanted.path!r} of volume {wanted.volumeName!r}"
    found = files.get((wanted.volumeName, wanted.path), EnvFile(problem="it was not read"))
    if found.problem:
        raise SpecError(f"{place}: {found.problem}")
    value = found.values.get(wanted.key)
    if value is None and not wanted.optional:
        what = "it does not exist" if found.absent else f"it has no key {wanted.key!r}"
        raise SpecError(f"{place}: {what}")
    return value


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
        "use fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef or a literal "
        "value"
    )


def resource_field(
    pod: Pod, container: Container, reference: ResourceFieldRef, allocatable: Mapping[str, str]
) -> str:
    """The amount as a whole number of divisors. Whatever the number of a container's resources, it
    takes as long: thousands of variables may ask for it.
    """
    kind, _, resource = reference.resource.partition(".")
    if kind not in ("limits", "requests") or resource not in _RESOURCES:
        raise SpecError(f"resourceFieldRef.resource {reference.resource!r} is not known")
    if kind == "requests":
        amount = quantity.parse_quantity(podspec.request(container, resource) or 0)
    elif (limit := podspec.limits(container).get(resource)) is not None:
        amount = quantity.parse_quantity(limit)
    else:
        amount = _most(pod, resource, allocatable)
    divisor = quantity.parse_quantity(reference.divisor or 1) or quantity.parse_quantity(1)
    return str(math.ceil(amount / divisor))


def _most(pod: Pod, resource: str, allocatable: Mapping[str, str]) -> Decimal:
    """What a container without a limit may use: the node's amount, or the pod's where less."""
    amounts = (podspec.pod_level(pod, "limits").get(resource), allocatable.get(resource))
    known = [quantity.parse_quantity(amount) for amount in amounts if amount is not None]
    return min(known, default=Decimal(0))
