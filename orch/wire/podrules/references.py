"""The API objects and fields that a pod refers to, in variables, volumes and its service account.

Nodes may read exactly those objects of their pods, the agent fetches them, and a static pod may
have none (reference: podutil.HasAPIObjectReference). Which references are mistakes follows the
reference's rules (K:pkg/apis/core/validation). Works on specs that are documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from orch.wire import causes, quantity, raw
from orch.wire.errors import Cause
from orch.wire.podrules.podspec import document_places
from orch.wire.validation import (
    config_key_problems,
    dns1123_subdomain_problems,
    local_path_problems,
    qualified_name_problems,
    variable_name_problems,
)

CONFIG_MAP, SECRET = "ConfigMap", "Secret"
SERVICE_ACCOUNT = "ServiceAccount"
TOKEN_S = 3600  # the life of a projected token that names none
FILE_KEY_MAX = 128  # characters of a name in a file of variables
PULL_SECRETS = 64  # so many of a pod are read; the reference has no bound
# Without one of these, in the spec or in a container, a pod refers to nothing.
FIELDS = ("serviceAccountName", "imagePullSecrets", "volumes", "env", "envFrom")
_OF_KEYS = {"configMapKeyRef": CONFIG_MAP, "secretKeyRef": SECRET}
_OF_WHOLES = {"configMapRef": CONFIG_MAP, "secretRef": SECRET}
_OF_VOLUMES = {
    "configMap": (CONFIG_MAP, "name"),
    "secret": (SECRET, "secretName"),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"),
}
_OF_PROJECTIONS = {"configMap": CONFIG_MAP, "secret": SECRET}
_OF_THE_POD_ITSELF = "downwardAPI"

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
VARIABLE_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
VOLUME_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations",
    "metadata.uid",
)  # fmt: skip
_OTHER_FIELDS = ("spec.restartPolicy", "spec.schedulerName", "status.phase")  # refused as a choice
_WITH_KEYS = ("metadata.labels", "metadata.annotations")
_AMOUNTS = (
    "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    "requests.cpu", "requests.memory", "requests.ephemeral-storage",
)  # fmt: skip
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS = (Decimal("0.001"), Decimal(1))
_DECIMAL_DIVISORS = tuple(Decimal(1000) ** power for power in range(7))
_BINARY_DIVISORS = tuple(Decimal(1024) ** power for power in range(1, 7))
_BYTES = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are"


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
    for index, secret in enumerate(raw.records(spec, "imagePullSecrets")):
        path = f"spec.imagePullSecrets[{index}]"
        yield ApiReference(SECRET, raw.text(secret, "name"), path, "imagePullSecrets")
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
    for index, variable in enumerate(raw.records(container, "env")):
        source, at = raw.mapping(variable, "valueFrom"), f"{path}.env[{index}].valueFrom"
        yield from _of_source(source, _OF_KEYS, at, holder)
    for source in raw.records(container, "envFrom"):
        yield from _of_source(source, _OF_WHOLES, f"{path}.envFrom", holder)


def _of_source(
    source: Mapping[str, Any], kinds: Mapping[str, str], path: str, holder: str
) -> Iterator[ApiReference]:
    for field, kind in kinds.items():
        if source.get(field) is not None:
            yield ApiReference(kind, raw.text(source, field, "name"), path, holder)


def variable_causes(
    variables: Iterable[Mapping[str, Any]], path: str, volumes: Mapping[str, Mapping[str, Any]]
) -> Iterator[Cause]:
    """What is wrong with the `env` of a container; `volumes` are the pod's by name."""
    for index, variable in enumerate(variables):
        name, at = variable.get("name"), f"{path}[{index}]"
        if not name:
            yield causes.required(f"{at}.name")
        else:
            yield from causes.invalid_values(f"{at}.name", name, variable_name_problems(name))
        if variable.get("valueFrom") is not None:
            yield from _source_causes(variable, f"{at}.valueFrom", volumes)


def _source_causes(
    variable: Mapping[str, Any], path: str, volumes: Mapping[str, Mapping[str, Any]]
) -> Iterator[Cause]:
    source = variable["valueFrom"]
    named = [name for name in _SOURCES if source.get(name) is not None]
    if "fieldRef" in named:
        yield from field_causes(source["fieldRef"], f"{path}.fieldRef", VARIABLE_FIELDS)
    if "resourceFieldRef" in named:
        yield from amount_causes(source["resourceFieldRef"], f"{path}.resourceFieldRef")
    for name in _OF_KEYS:
        if name in named:
            yield from _key_causes(source[name], f"{path}.{name}")
    if "fileKeyRef" in named:
        yield from _file_key_causes(source["fileKeyRef"], f"{path}.fileKeyRef", volumes)
    if not named:
        detail = f"must specify one of: {', '.join(f'`{name}`' for name in _SOURCES)}"
        yield causes.invalid_value(path, "", detail)
    elif variable.get("value"):
        yield causes.invalid_value(path, "", "may not be specified when `value` is not empty")
    elif len(named) > 1:
        yield causes.invalid_value(path, "", "may not have more than one field specified at a time")


def whole_object_causes(sources: Iterable[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    """What is wrong with the `envFrom` of a container."""
    for index, source in enumerate(sources):
        at = f"{path}[{index}]"
        if prefix := source.get("prefix"):
            yield from causes.invalid_values(f"{at}.prefix", prefix, variable_name_problems(prefix))
        named = [name for name in _OF_WHOLES if source.get(name) is not None]
        for field in named:
            name = source[field].get("name")
            if not name:
                yield causes.required(f"{at}.{field}.name")
            else:
                problems = dns1123_subdomain_problems(name)
                yield from causes.invalid_values(f"{at}.{field}.name", name, problems)
        if not named:
            yield causes.invalid_value(path, "", "must specify one of: `configMapRef`, `secretRef`")
        elif len(named) > 1:
            text = "may not have more than one field specified at a time"
            yield causes.invalid_value(path, "", text)


def _key_causes(reference: Mapping[str, Any], path: str) -> Iterator[Cause]:
    name, key = reference.get("name") or "", reference.get("key")
    yield from causes.invalid_values(f"{path}.name", name, dns1123_subdomain_problems(name))
    if not key:
        yield causes.required(f"{path}.key")
    else:
        yield from causes.invalid_values(f"{path}.key", key, config_key_problems(key))


def _file_key_causes(
    reference: Mapping[str, Any], path: str, volumes: Mapping[str, Mapping[str, Any]]
) -> Iterator[Cause]:
    yield from causes.unless_given(reference, path, "volumeName", "path", "key")
    volume, file, key = (raw.text(reference, name) for name in ("volumeName", "path", "key"))
    yield from causes.invalid_values(f"{path}.path", file, local_path_problems(file))
    if key:
        yield from causes.invalid_values(f"{path}.key", key, variable_name_problems(key))
    if len(key) > FILE_KEY_MAX:
        yield causes.too_long(f"{path}.key", f"may not be more than {FILE_KEY_MAX} bytes")
    if volume and volume not in volumes:
        yield causes.not_found(f"{path}.volumeName", volume)
    elif volume and volumes[volume].get("emptyDir") is None:
        text = "must be the name of an emptyDir volume"
        yield causes.invalid_value(f"{path}.volumeName", volume, text)


def field_causes(
    reference: Mapping[str, Any], path: str, fields: tuple[str, ...]
) -> Iterator[Cause]:
    """What is wrong with a `fieldRef`, where some fields may be asked for."""
    name, at = reference.get("fieldPath"), f"{path}.fieldPath"
    version = reference.get("apiVersion") or "v1"
    if not name:
        yield causes.required(at)
        return
    field, bracket, key = name.partition("['")
    if version != "v1":
        unfit = f"unsupported pod version: {version}"
        yield causes.invalid_value(at, name, f"error converting fieldPath: {unfit}")
    elif bracket and field and name.endswith("']"):
        yield from _subscript_causes(field, key.removesuffix("']"), path)
    elif name not in fields and name in (*VARIABLE_FIELDS, *VOLUME_FIELDS, *_OTHER_FIELDS):
        yield causes.not_supported(at, name, fields)
    elif name not in fields:
        text = "error converting fieldPath: field label not supported"
        yield causes.invalid_value(at, name, text)


def _subscript_causes(field: str, key: str, path: str) -> Iterator[Cause]:
    if field not in _WITH_KEYS:
        text = "error converting fieldPath: field label does not support subscript"
        yield causes.invalid_value(f"{path}.fieldPath", field, text)
        return
    checked = key.lower() if field == "metadata.annotations" else key
    yield from causes.invalid_values(path, key, qualified_name_problems(checked))


def amount_causes(
    reference: Mapping[str, Any], path: str, *, of_any_container: bool = False
) -> Iterator[Cause]:
    """What is wrong with a `resourceFieldRef`; a volume's must name the container."""
    resource = reference.get("resource")
    if of_any_container and not reference.get("containerName"):
        yield causes.required(f"{path}.containerName")
    elif not resource:
        yield causes.required(f"{path}.resource")
    elif resource not in _AMOUNTS and not resource.startswith(_HUGE_PAGES):
        yield causes.not_supported(f"{path}.resource", resource, _AMOUNTS)
    else:
        divisor = reference.get("divisor")
        if divisor is not None and not _divides(resource, divisor):
            of_cpu = resource.endswith(".cpu")
            text = "1m and 1 are" if of_cpu else _BYTES
            kind = resource.partition(".")[2]
            text = f"only divisor's values {text} supported with the {kind} resource"
            yield causes.invalid_value(f"{path}.divisor", resource, text)


def _divides(resource: str, divisor: str | int) -> bool:
    try:
        value = quantity.parse_quantity(divisor)
    except ValueError:
        return False
    if resource.endswith(".cpu"):
        return not value or value in _CPU_DIVISORS
    known = _BINARY_DIVISORS if str(divisor).endswith("i") else _DECIMAL_DIVISORS
    return not value or value in known
