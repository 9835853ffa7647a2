"""The containers of a pod: mistakes that no agent could make good; pure.

Rules, field paths and texts are the reference's (K:pkg/apis/core/validation), also where its paths
leave out an index. What is empty gets a default, at the API server or in the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules import isolation
from orch.wire.podrules.podspec import DEFAULT_GRACE_S, PULL_POLICIES
from orch.wire.podrules.references import variable_causes, whole_object_causes
from orch.wire.podrules.resources import NOT_NEGATIVE, RESIZED, resource_causes
from orch.wire.validation import (
    descending_path_problems,
    dns1123_label_problems,
    header_name_problems,
    port_name_problems,
    port_problems,
    upward_path_problems,
)

Document = Mapping[str, Any]

_PROTOCOLS = ("TCP", "UDP", "SCTP")
_SCHEMES = ("HTTP", "HTTPS")
_MESSAGE_POLICIES = ("FallbackToLogsOnError", "File")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_RESIZE_POLICIES = _NOT_REQUIRED, _ = ("NotRequired", "RestartContainer")
_PROPAGATIONS = _PRIVATE, _BOTH_WAYS, _ = ("None", "Bidirectional", "HostToContainer")
_RECURSIVE = _WRITABLE, _, _ = ("Disabled", "Enabled", "IfPossible")
_CLAIMED = {"persistentVolumeClaim", "ephemeral"}
_READINESS = "readinessProbe"
_PROBES = ("livenessProbe", _READINESS, "startupProbe")
_HOOKS = ("postStart", "preStop")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_PROBE_NUMBERS = (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
    "failureThreshold",
)  # fmt: skip
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"
_PADDED = "must not have leading or trailing whitespace"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What containers may refer to, and what bounds them: `volumes` by name, names of claims."""

    volumes: Mapping[str, Document] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    grace_s: int = DEFAULT_GRACE_S
    restarts: bool = True


def name_causes(items: Iterable[Document], path: str, seen: set[str]) -> Iterator[Cause]:
    """Names must exist, be labels, and differ from those in `seen`, to which they are added."""
    for index, item in enumerate(items):
        name = item.get("name") or ""
        at = f"{path}[{index}].name"
        if not name:
            yield causes.required(at)
        elif name in seen:
            yield causes.duplicate(at, name)
        else:
            yield from causes.invalid_values(at, name, dns1123_label_problems(name))
        seen.add(name)


def lasting_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    """What is wrong with a regular container or a sidecar, except its name."""
    yield from common_causes(container, path, pod)
    yield from _restart_causes(container, path)
    hooks = container.get("lifecycle") or {}
    for name in _HOOKS:
        if hooks.get(name) is not None:
            at = f"{path}.lifecycle.{name}"
            yield from _handler_causes(hooks[name], at, _HOOK_HANDLERS, pod.grace_s)
    for name in _PROBES:
        if container.get(name) is not None:
            yield from _probe_causes(container[name], f"{path}.{name}", name)


def init_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    """What is wrong with an init container, except its name."""
    if container.get("restartPolicy") == "Always":
        yield from lasting_causes(container, path, pod)
        return
    yield from common_causes(container, path, pod)
    yield from _restart_causes(container, path)
    for name in ("lifecycle", *_PROBES):
        if container.get(name) is not None:
            yield causes.forbidden(f"{path}.{name}", _ONLY_SIDECARS)


def common_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    """What is wrong with a container of any list, except its name."""
    yield from image_causes(container, path)
    yield from causes.unless_one_of(container, "terminationMessagePolicy", _MESSAGE_POLICIES, path)
    if ports := container.get("ports"):
        yield from _port_causes(ports, f"{path}.ports")
    if variables := container.get("env"):
        yield from variable_causes(variables, f"{path}.env")
    if sources := container.get("envFrom"):
        yield from whole_object_causes(sources, f"{path}.envFrom")
    if mounts := container.get("volumeMounts"):
        yield from _mount_causes(mounts, container, f"{path}.volumeMounts", pod)
    if container.get("volumeDevices"):
        yield from _device_causes(container, f"{path}.volumeDevices", pod)
    yield from causes.unless_one_of(container, "imagePullPolicy", PULL_POLICIES, path)
    if resources := container.get("resources"):
        yield from resource_causes(resources, f"{path}.resources", pod.claims)
    if container.get("resizePolicy"):
        yield from _resize_causes(container, f"{path}.resizePolicy", pod)
    yield from isolation.container_causes(container, path)


def image_causes(container: Document, path: str) -> Iterator[Cause]:
    image = container.get("image") or ""
    if not image:
        yield causes.required(f"{path}.image")
    elif image != image.strip():
        yield causes.invalid_value(f"{path}.image", image, _PADDED)


def _restart_causes(container: Document, path: str) -> Iterator[Cause]:
    return causes.unless_one_of(container, "restartPolicy", _RESTART_POLICIES, path)


def host_port_causes(
    containers: Iterable[tuple[str, Document]], *, host_network: bool
) -> Iterator[Cause]:
    """Ports of the host that several of the containers, given with their paths, ask for."""
    taken: set[tuple[str, str, int]] = set()
    for path, container in containers:
        for index, port in enumerate(container.get("ports") or ()):
            number, inner = port.get("hostPort") or 0, port.get("containerPort") or 0
            at = f"{path}.ports[{index}].hostPort"
            if host_network and number not in (0, inner):
                text = "must match `containerPort` when `hostNetwork` is true"
                yield causes.invalid_value(at, number, text)
            number = number or (inner if host_network else 0)
            place = port.get("protocol") or "TCP", port.get("hostIP") or "", number
            if number and place in taken:
                yield causes.duplicate(at, "/".join(map(str, place)))
            taken.add(place)


def _port_causes(ports: Iterable[Document], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{path}[{index}]"
        if name := port.get("name"):
            yield from causes.invalid_values(f"{at}.name", name, port_name_problems(name))
            if name in names:
                yield causes.duplicate(f"{at}.name", name)
            names.add(name)
        yield from causes.unless_given(port, at, "containerPort")
        for kind in ("containerPort", "hostPort"):
            if number := port.get(kind):  # hostPort 0 means none
                yield from causes.invalid_values(f"{at}.{kind}", number, port_problems(number))
        yield from causes.unless_one_of(port, "protocol", _PROTOCOLS, at)


def _mount_causes(
    mounts: Iterable[Document], container: Document, path: str, pod: PodFacts
) -> Iterator[Cause]:
    points: set[str] = set()
    for index, mount in enumerate(mounts):
        at, name, point = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath")
        yield from causes.unless_given(mount, at, "name", "mountPath")
        if name not in pod.volumes:
            yield causes.not_found(f"{at}.name", name)
        if point in points:
            yield causes.invalid_value(f"{at}.mountPath", point, "must be unique")
        points.add(point or "")
        if len(mount) > 2:
            yield from _part_causes(mount, path, at)
            yield from _propagation_causes(mount, container, path)


def _part_causes(mount: Document, path: str, at: str) -> Iterator[Cause]:
    """What is wrong with the part of a volume that is mounted."""
    part, expression = mount.get("subPath"), mount.get("subPathExpr")
    if part:
        yield from causes.invalid_values(f"{path}.subPath", part, descending_path_problems(part))
    if expression and part:
        text = "subPathExpr and subPath are mutually exclusive"
        yield causes.invalid_value(f"{at}.subPathExpr", expression, text)
    if expression:
        problems = descending_path_problems(expression)
        yield from causes.invalid_values(f"{path}.subPathExpr", expression, problems)


def _propagation_causes(mount: Document, container: Document, path: str) -> Iterator[Cause]:
    propagation = mount.get("mountPropagation")
    yield from causes.unless_one_of(mount, "mountPropagation", _PROPAGATIONS, path)
    if propagation == _BOTH_WAYS and not raw.value(container, "securityContext", "privileged"):
        text = "Bidirectional mount propagation is available only to privileged containers"
        yield causes.forbidden(f"{path}.mountPropagation", text)
    yield from causes.unless_one_of(mount, "recursiveReadOnly", _RECURSIVE, path)
    if mount.get("recursiveReadOnly") in (None, "", _WRITABLE):
        return
    at = f"{path}.recursiveReadOnly"
    if not mount.get("readOnly"):
        yield causes.forbidden(at, "may only be specified when readOnly is true")
    if propagation not in (None, "", _PRIVATE):
        text = "may only be specified when mountPropagation is None or not specified"
        yield causes.forbidden(at, text)


def _device_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    mounts = raw.records(container, "volumeMounts")
    mounted = {
        "name": {mount.get("name") for mount in mounts},
        "devicePath": {mount.get("mountPath") for mount in mounts},
    }
    seen: dict[str, set[str]] = {name: set() for name in mounted}
    for index, device in enumerate(raw.records(container, "volumeDevices")):
        at = f"{path}[{index}]"
        yield from causes.unless_given(device, at, *mounted)
        yield from _block_causes(device, at, pod)
        for name, values in seen.items():
            value = raw.text(device, name)
            if value and value in values:
                yield causes.invalid_value(f"{at}.{name}", value, "must be unique")
            if value in mounted[name]:
                text = "must not already exist in volumeMounts"
                yield causes.invalid_value(f"{at}.{name}", value, text)
            values.add(value)


def _block_causes(device: Document, at: str, pod: PodFacts) -> Iterator[Cause]:
    name, place = raw.text(device, "name"), raw.text(device, "devicePath")
    if name not in pod.volumes:
        yield causes.not_found(f"{at}.name", name)
    elif not _CLAIMED & pod.volumes[name].keys():
        text = "can only use volume source type of PersistentVolumeClaim or Ephemeral"
        yield causes.invalid_value(f"{at}.name", name, f"{text} for block mode")
    if upward_path_problems(place):
        yield causes.invalid_value(f"{at}.devicePath", place, "can not contain backsteps ('..')")


def _resize_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate(raw.records(container, "resizePolicy")):
        name, policy = raw.text(item, "resourceName"), raw.text(item, "restartPolicy")
        if name in seen:
            yield causes.duplicate(f"{path}[{index}]", name)
        seen.add(name)
        for value, choices in ((name, RESIZED), (policy, _RESIZE_POLICIES)):
            if not value:
                yield causes.required(path)
            elif value not in choices:
                yield causes.not_supported(path, value, choices)
        if not pod.restarts and policy != _NOT_REQUIRED:
            text = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            yield causes.invalid_value(path, policy, text)


def _probe_causes(probe: Document, path: str, kind: str) -> Iterator[Cause]:
    yield from _handler_causes(probe, path, _PROBE_HANDLERS, 0)
    for name in _PROBE_NUMBERS:
        if (probe.get(name) or 0) < 0:
            yield causes.invalid_value(f"{path}.{name}", probe[name], NOT_NEGATIVE)
    successes, grace_s = probe.get("successThreshold"), probe.get("terminationGracePeriodSeconds")
    at = f"{path}.terminationGracePeriodSeconds"
    if grace_s is not None and grace_s <= 0:
        yield causes.invalid_value(at, grace_s, "must be greater than 0")
    if kind == _READINESS and grace_s is not None:
        yield causes.invalid_value(at, grace_s, "must not be set for readinessProbes")
    if kind != _READINESS and successes not in (None, 0, 1):
        yield causes.invalid_value(f"{path}.successThreshold", successes, "must be 1")


def _handler_causes(
    record: Document, path: str, kinds: tuple[str, ...], grace_s: int
) -> Iterator[Cause]:
    """A probe or a hook has exactly one handler."""
    named = [name for name in kinds if record.get(name) is not None]
    if not named:
        yield causes.required(path, "must specify a handler type")
        return
    for extra in named[1:]:
        yield causes.forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    handler, at = record[named[0]], f"{path}.{named[0]}"
    if named[0] == "sleep":
        yield from _sleep_causes(handler, at, grace_s)
    else:
        yield from _HANDLERS[named[0]](handler, at)


def _exec_causes(handler: Document, path: str) -> Iterator[Cause]:
    return causes.unless_given(handler, path, "command")


def _http_causes(handler: Document, path: str) -> Iterator[Cause]:
    yield from _socket_causes(handler, path)
    yield from causes.unless_one_of(handler, "scheme", _SCHEMES, path)
    for header in handler.get("httpHeaders") or ():
        name, at = header.get("name") or "", f"{path}.httpHeaders"
        yield from causes.invalid_values(at, name, header_name_problems(name))


def _socket_causes(handler: Document, path: str) -> Iterator[Cause]:
    port = handler.get("port", 0)
    return causes.invalid_values(f"{path}.port", port, port_problems(port))


def _sleep_causes(handler: Document, path: str, grace_s: int) -> Iterator[Cause]:
    seconds = handler.get("seconds") or 0
    if not 0 <= seconds <= grace_s:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
        yield causes.invalid_value(path, seconds, text)


_HANDLERS: Mapping[str, Callable[[Document, str], Iterator[Cause]]] = {
    "exec": _exec_causes,
    "grpc": _socket_causes,
    "httpGet": _http_causes,
    "tcpSocket": _socket_causes,
}
