"""The containers of a pod: mistakes that no agent could make good; pure.

Rules, field paths and texts are the reference's (K:pkg/apis/core/validation), also where its paths
leave out an index. What is empty gets a default, at the API server or in the agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules import isolation, lifecycle
from orch.wire.podrules.podspec import DEFAULT_GRACE_S, PULL_POLICIES
from orch.wire.podrules.references import variable_causes, whole_object_causes
from orch.wire.podrules.resources import RESIZED, resource_causes
from orch.wire.validation import (
    descending_path_problems,
    dns1123_label_problems,
    port_name_problems,
    port_problems,
)

Document = Mapping[str, Any]

_PROTOCOLS = ("TCP", "UDP", "SCTP")
_MESSAGES_FROM = ("FallbackToLogsOnError", "File")
_RESIZE_POLICIES = _NOT_REQUIRED, _ = ("NotRequired", "RestartContainer")
_PROPAGATIONS = _PRIVATE, _BOTH_WAYS, _ = ("None", "Bidirectional", "HostToContainer")
_RECURSIVE = _WRITABLE, _, _ = ("Disabled", "Enabled", "IfPossible")
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"
_PADDED = "must not have leading or trailing whitespace"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What containers may refer to, and what bounds them: `volumes` by name."""

    volumes: Mapping[str, Document] = field(default_factory=dict)
    grace_s: int = DEFAULT_GRACE_S
    restarts: bool = True
    host_users: bool = True
    system: str = ""  # spec.os.name


def pod_facts(spec: Document, volumes: Mapping[str, Document]) -> PodFacts:
    """The facts of a pod that has these volumes."""
    grace_s = spec.get("terminationGracePeriodSeconds")
    system = raw.value(spec, "os", "name") if spec.get("os") else None
    return PodFacts(
        volumes=volumes,
        grace_s=DEFAULT_GRACE_S if grace_s is None else grace_s,
        restarts=spec.get("restartPolicy") != "Never",
        system="" if system is None else system,
        host_users=spec.get("hostUsers") is not False,
    )


def all_causes(spec: Document, pod: PodFacts) -> Iterator[Cause]:
    """What is wrong with the containers of a new pod, of each list and beside each other."""
    if not spec.get("containers"):
        yield causes.required("spec.containers")
    seen: set[str] = set()
    for name, rules in (
        ("containers", _lasting_causes),
        ("initContainers", _init_causes),
        ("ephemeralContainers", common_causes),
    ):
        if items := spec.get(name):
            yield from name_causes(items, f"spec.{name}", seen)
            for index, container in enumerate(items):
                yield from rules(container, f"spec.{name}[{index}]", pod)
    shared, taken = bool(spec.get("hostNetwork")), set[tuple[str, str, int]]()
    for index, container in enumerate(spec.get("containers") or ()):
        path = f"spec.containers[{index}]"
        yield from _host_port_causes(container, path, taken, host_network=shared)
    for index, container in enumerate(spec.get("initContainers") or ()):
        path, own = f"spec.initContainers[{index}]", set[tuple[str, str, int]]()
        yield from _host_port_causes(container, path, own, host_network=shared)  # it runs alone


def name_causes(items: Iterable[Document], path: str, seen: set[str]) -> Iterator[Cause]:
    """Names must exist, be labels, and differ from those in `seen`, to which they are added."""
    for index, item in enumerate(items):
        name = item.get("name") or ""
        at = f"{path}[{index}].name"
        if not name:
            yield causes.required(at)
        elif name in seen:
            yield causes.duplicate(at, name)
        elif problems := dns1123_label_problems(name):
            yield from causes.invalid_values(at, name, problems)
        seen.add(name)


def _lasting_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    """What is wrong with a regular container or a sidecar, except its name."""
    yield from common_causes(container, path, pod)
    if not container.keys().isdisjoint(lifecycle.RESTARTS):
        yield from lifecycle.restart_causes(container, path)
    if hooks := container.get("lifecycle"):
        yield from lifecycle.hook_causes(hooks, f"{path}.lifecycle", pod.grace_s, pod.system)
    for name in lifecycle.PROBES:
        if container.get(name) is not None:
            yield from lifecycle.probe_causes(container[name], f"{path}.{name}", name)


def _init_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    """What is wrong with an init container, except its name."""
    if container.get("restartPolicy") == "Always":
        yield from _lasting_causes(container, path, pod)
        if container.get("restartPolicyRules"):
            text = "restartPolicyRules are not allowed for init containers with restart policy"
            yield causes.forbidden(f"{path}.restartPolicyRules", f"{text} Always")
        return
    yield from common_causes(container, path, pod)
    if not container.keys().isdisjoint(lifecycle.RESTARTS):
        yield from lifecycle.restart_causes(container, path)
    for name in ("lifecycle", *lifecycle.PROBES):
        if container.get(name) is not None:
            yield causes.forbidden(f"{path}.{name}", _ONLY_SIDECARS)


def common_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    """What is wrong with a container of any list, except its name."""
    yield from image_causes(container, path)
    if container.get("terminationMessagePolicy"):
        yield from causes.unless_one_of(container, "terminationMessagePolicy", _MESSAGES_FROM, path)
    if ports := container.get("ports"):
        yield from _port_causes(ports, f"{path}.ports")
    if variables := container.get("env"):
        yield from variable_causes(variables, f"{path}.env", pod.volumes)
    if sources := container.get("envFrom"):
        yield from whole_object_causes(sources, f"{path}.envFrom")
    yield from _storage_causes(container, path, pod)
    if container.get("imagePullPolicy"):
        yield from causes.unless_one_of(container, "imagePullPolicy", PULL_POLICIES, path)
    if resources := container.get("resources"):
        yield from resource_causes(resources, f"{path}.resources")
    if container.get("resizePolicy"):
        yield from _resize_causes(container, f"{path}.resizePolicy", pod)
    if container.get("securityContext"):
        yield from isolation.container_causes(
            container, path, host_users=pod.host_users, system=pod.system
        )


def image_causes(container: Document, path: str) -> Iterator[Cause]:
    image = container.get("image") or ""
    if not image:
        yield causes.required(f"{path}.image")
    elif image != image.strip():
        yield causes.invalid_value(f"{path}.image", image, _PADDED)


def _host_port_causes(
    container: Document, path: str, taken: set[tuple[str, str, int]], *, host_network: bool
) -> Iterator[Cause]:
    """Ports of the host must differ from those `taken`, to which they are added."""
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


def _storage_causes(container: Document, path: str, pod: PodFacts) -> Iterator[Cause]:
    if mounts := container.get("volumeMounts"):
        yield from _mount_causes(mounts, container, f"{path}.volumeMounts", pod)
    if container.get("volumeDevices"):
        text = "agents give containers no block devices; mount the volume instead"
        yield causes.forbidden(f"{path}.volumeDevices", text)


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
