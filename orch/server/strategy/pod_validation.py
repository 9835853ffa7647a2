"""Is a pod spec one an agent could run, and is a change to it allowed? Pure.

Checks what the agent acts on and what most authors get wrong; fields the server does not know
pass. What may change after creation: images, deadlines, further tolerations; ephemeral containers
may be added, by a subresource of their own.

What in a new pod's spec contradicts itself, or says nothing where one thing must be said. Pure.

As in the reference (K:pkg/apis/core/validation/validation.go). A pod that stands for a file of a
node is not asked: it runs already, and is shown as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from orch.server.strategy import causes
from orch.server.strategy.base import Document
from orch.wire import quantity
from orch.wire.errors import Cause
from orch.wire.validation import dns1123_label_problems, dns1123_subdomain_problems

_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
}
_INT32_MAX = 2**31 - 1
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_LASTING = ("initContainers", "containers")
_LISTS = (*_LASTING, "ephemeralContainers")
# K:pkg/apis/core/validation/validation.go allowedEphemeralContainerFields: those it leaves out
_NOT_EPHEMERAL = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
    "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip
_NO_EPHEMERAL = "cannot be set for an Ephemeral Container"
_ONLY_CHANGES = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    " `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations`"
    " (only additions to existing tolerations),"
    " `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def spec_causes(spec: Document) -> Iterator[Cause]:
    """What is wrong with a new pod's spec."""
    if not spec.get("containers"):
        yield causes.required("spec.containers")
    for name, choices in _CHOICES.items():
        if spec.get(name) not in (None, *choices):
            yield causes.not_supported(f"spec.{name}", spec[name], choices)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        yield causes.invalid_value(
            "spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"
        )
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 0 < deadline <= _INT32_MAX:
        yield causes.invalid_value(
            "spec.activeDeadlineSeconds", deadline, f"must be between 1 and {_INT32_MAX}, inclusive"
        )
    for problem in dns1123_subdomain_problems(spec["nodeName"]) if spec.get("nodeName") else ():
        yield causes.invalid_value("spec.nodeName", spec["nodeName"], problem)
    volumes = spec.get("volumes") or []
    yield from _name_causes(volumes, "spec.volumes", set())
    yield from _containers_causes(spec, {volume.get("name") for volume in volumes})


def update_causes(new: Document, old: Document) -> Iterator[Cause]:
    """What an update changed that it may not."""
    for name in ("containers", "initContainers"):
        for index, container in enumerate(new.get(name) or []):
            if not container.get("image"):
                yield causes.required(f"spec.{name}[{index}].image")
    before, after = old.get("tolerations") or [], new.get("tolerations") or []
    if any(toleration not in after for toleration in before):
        yield causes.forbidden("spec.tolerations", "existing tolerations may not be removed")
    deadline, previous = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if previous is not None and (deadline is None or deadline > previous):
        yield causes.invalid_value(
            "spec.activeDeadlineSeconds", deadline, "must be less than or equal to previous value"
        )
    if _fixed_part(new) != _fixed_part(old):
        yield causes.forbidden("spec", _ONLY_CHANGES)


def ephemeral_causes(new: Document, old: Document) -> Iterator[Cause]:
    """What is wrong with the ephemeral containers of a pod that has others (`old`) already."""
    path = "spec.ephemeralContainers"
    containers = new.get("ephemeralContainers") or []
    by_name = {container.get("name"): container for container in containers}
    for before in old.get("ephemeralContainers") or ():
        after = by_name.get(before.get("name"))
        if after != before:
            may_not = "removed" if after is None else "changed"
            name = before.get("name")
            text = f'existing ephemeral containers "{name}" may not be {may_not}'
            yield causes.forbidden(path, text)
    lasting = {c.get("name") or "" for name in _LASTING for c in new.get(name) or ()}
    yield from _name_causes(containers, path, set(lasting))
    volumes = {volume.get("name") for volume in new.get("volumes") or ()}
    for index, container in enumerate(containers):
        at = f"{path}[{index}]"
        yield from _container_causes(container, at, volumes)
        target = container.get("targetContainerName")
        if target and target not in lasting:
            yield causes.not_found(f"{at}.targetContainerName", target)
        yield from _not_ephemeral_causes(container, at)


def _not_ephemeral_causes(container: Document, path: str) -> Iterator[Cause]:
    """What only a part of the workload may have."""
    for name in _NOT_EPHEMERAL:
        if container.get(name):
            yield causes.forbidden(f"{path}.{name}", _NO_EPHEMERAL)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        for name in ("subPath", "subPathExpr"):
            if mount.get(name):
                yield causes.forbidden(f"{path}.volumeMounts[{index}].{name}", _NO_EPHEMERAL)


def _fixed_part(spec: Document) -> Document:
    fixed = copy.deepcopy(spec)
    for name in ("containers", "initContainers"):
        for container in fixed.get(name) or ():
            container.pop("image", None)
    for name in ("activeDeadlineSeconds", "tolerations"):
        fixed.pop(name, None)
    return fixed


def _name_causes(items: list[Document], path: str, seen: set[str]) -> Iterator[Cause]:
    """Names must be there, be labels, and be different from those seen (which grows)."""
    for index, item in enumerate(items):
        name = item.get("name") or ""
        at = f"{path}[{index}].name"
        if not name:
            yield causes.required(at)
        elif name in seen:
            yield causes.duplicate(at, name)
        else:
            for problem in dns1123_label_problems(name):
                yield causes.invalid_value(at, name, problem)
        seen.add(name)


def _containers_causes(spec: Document, volumes: set[Any]) -> Iterator[Cause]:
    seen: set[str] = set()
    for name in _LISTS:
        containers = spec.get(name) or []
        yield from _name_causes(containers, f"spec.{name}", seen)
        for index, container in enumerate(containers):
            yield from _container_causes(container, f"spec.{name}[{index}]", volumes)


def _container_causes(container: Document, path: str, volumes: set[Any]) -> Iterator[Cause]:
    if not container.get("image"):
        yield causes.required(f"{path}.image")
    policy = container.get("imagePullPolicy")
    if policy not in (None, *_PULL_POLICIES):
        yield causes.not_supported(f"{path}.imagePullPolicy", policy, _PULL_POLICIES)
    for index, port in enumerate(container.get("ports") or ()):
        yield from _port_causes(port, f"{path}.ports[{index}]")
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield causes.required(f"{path}.env[{index}].name")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at = f"{path}.volumeMounts[{index}]"
        if mount.get("name") not in volumes:
            yield causes.not_found(f"{at}.name", mount.get("name"))
        if not mount.get("mountPath"):
            yield causes.required(f"{at}.mountPath")
    yield from _resources_causes(container.get("resources") or {}, f"{path}.resources")


def _port_causes(port: Document, path: str) -> Iterator[Cause]:
    for name in ("containerPort", "hostPort"):
        number = port.get(name)
        if number is not None and not 0 < number < 65536:
            yield causes.invalid_value(f"{path}.{name}", number, "must be between 1 and 65535")
    if port.get("protocol") not in (None, *_PROTOCOLS):
        yield causes.not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS)


def _resources_causes(resources: Document, path: str) -> Iterator[Cause]:
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            try:
                negative = quantity.parse_quantity(amount) < 0
            except ValueError as error:
                yield causes.invalid_value(f"{path}.{part}.{name}", amount, str(error))
                continue
            if negative:
                yield causes.invalid_value(
                    f"{path}.{part}.{name}", amount, "must be greater than or equal to 0"
                )


_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_ENDS_A_CONTAINER = ("livenessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def content_causes(spec: Document) -> Iterator[Cause]:
    for name in ("hostname", "subdomain"):
        for problem in dns1123_label_problems(spec[name]) if spec.get(name) else ():
            yield causes.invalid_value(f"spec.{name}", spec[name], problem)
    for index, volume in enumerate(spec.get("volumes") or ()):
        for extra in [name for name in volume if name != "name"][1:]:
            at = f"spec.volumes[{index}].{extra}"
            yield causes.forbidden(at, "may not specify more than 1 volume type")
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield from _podcontents_container_causes(container, f"spec.{part}[{index}]")


def _podcontents_container_causes(container: Document, path: str) -> Iterator[Cause]:
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable_causes(variable, f"{path}.env[{index}]")
    mounted: set[Any] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = mount.get("mountPath")
        if where in mounted:
            at = f"{path}.volumeMounts[{index}].mountPath"
            yield causes.invalid_value(at, where, "must be unique")
        mounted.add(where)
    for name in _PROBES:
        if container.get(name) is not None:
            yield from _handler_causes(container[name], f"{path}.{name}")
    for name in _ENDS_A_CONTAINER:
        successes = (container.get(name) or {}).get("successThreshold")
        if successes not in (None, 1):
            yield causes.invalid_value(f"{path}.{name}.successThreshold", successes, "must be 1")
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            yield from _handler_causes(hook, f"{path}.lifecycle.{name}")
    yield from _limit_causes(container.get("resources") or {}, f"{path}.resources.requests")


def _variable_causes(variable: Document, path: str) -> Iterator[Cause]:
    if "=" in (variable.get("name") or ""):
        yield causes.invalid_value(f"{path}.name", variable["name"], "must not contain '='")
    source = variable.get("valueFrom")
    if source is None:
        return
    if variable.get("value"):
        detail = "may not be specified when `value` is not empty"
        yield causes.invalid_value(f"{path}.valueFrom", "", detail)
    named = [name for name in _SOURCES if source.get(name) is not None]
    if not named:
        detail = f"must specify one of: {', '.join(f'`{name}`' for name in _SOURCES)}"
        yield causes.invalid_value(f"{path}.valueFrom", "", detail)
    elif len(named) > 1:
        detail = "may not have more than one field specified at a time"
        yield causes.invalid_value(f"{path}.valueFrom", "", detail)


def _handler_causes(record: Document, path: str) -> Iterator[Cause]:
    """Of a probe or a hook: exactly one thing is done."""
    named = [name for name in _HANDLERS if record.get(name) is not None]
    if not named:
        yield causes.required(path, "must specify a handler type")
    for extra in named[1:]:
        yield causes.forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")


def _limit_causes(resources: Document, path: str) -> Iterator[Cause]:
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and _exceeds(amount, limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield causes.invalid_value(path, amount, detail)


def _exceeds(amount: Any, limit: Any) -> bool:
    try:
        return quantity.parse_quantity(amount) > quantity.parse_quantity(limit)
    except ValueError:
        return False  # told of where amounts are read
