"""What must be right about a pod before the agent tries to run it; pure.

The checks an API server would make (apis/core/validation), for pods that never passed one: each
problem comes with the path of its field.

What a manifest says that nobody will act upon: misspelt fields, and fields not supported; pure.

The reference agent reads static manifests leniently, and so does this one: an old manifest goes on
working. But a field that does nothing is said, because a misspelt `securityContext` would
otherwise be silently no security context.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orch.component.yaml_file import FieldPath
from orch.wire import quantity, validation
from orch.wire.records.meta import ObjectMeta, WireModel
from orch.wire.records.pods import (
    Container,
    Pod,
    PodSecurityContext,
    PodSpec,
    ResourceRequirements,
    SecurityContext,
    Volume,
)

Problem = tuple[FieldPath, str]

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("TCP", "UDP", "SCTP")


def pod_problems(pod: Pod) -> list[Problem]:
    """Every problem, in the order of the fields; [] for a pod that can be run."""
    problems = list(_metadata(pod))
    spec = pod.spec
    if not spec.containers:
        problems.append((("spec", "containers"), "at least one container is needed"))
    volumes = [volume.name for volume in spec.volumes or ()]
    problems += _names(("spec", "volumes"), volumes)
    names: list[str] = []
    for field, listed in (
        ("initContainers", spec.initContainers or ()),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeralContainers or ()),
    ):
        for index, container in enumerate(listed):
            place: FieldPath = ("spec", field, index)
            problems += _container(place, container, volumes)
            if container.name in names:
                problems.append(((*place, "name"), f"{container.name!r} is used twice"))
            names.append(container.name)
    if (grace_s := spec.terminationGracePeriodSeconds) is not None and grace_s < 0:
        problems.append((("spec", "terminationGracePeriodSeconds"), "must not be negative"))
    return problems


def static_problems(pod: Pod) -> list[Problem]:
    """What a pod that no API server knows cannot ask for (reference: HasAPIObjectReference)."""
    problems: list[Problem] = [
        (("spec", "volumes", index), f"a static pod cannot refer to a {kind}")
        for index, volume in enumerate(pod.spec.volumes or ())
        for kind in ("configMap", "secret")
        if getattr(volume, kind) is not None or _projects(volume, kind)
    ]
    for field, listed in (
        ("initContainers", pod.spec.initContainers or ()),
        ("containers", pod.spec.containers),
    ):
        for index, container in enumerate(listed):
            place: FieldPath = ("spec", field, index)
            problems += [((*place, *at), text) for at, text in _environment_problems(container)]
    if pod.spec.serviceAccountName:
        text = "a static pod cannot refer to a ServiceAccount"
        problems.append((("spec", "serviceAccountName"), text))
    return problems


def _projects(volume: Volume, kind: str) -> bool:
    sources = (volume.projected and volume.projected.sources) or ()
    return any(getattr(source, kind) is not None for source in sources)


def _environment_problems(container: Container) -> Iterator[Problem]:
    for index, variable in enumerate(container.env or ()):
        source = variable.valueFrom
        if source and (source.configMapKeyRef or source.secretKeyRef):
            text = "a static pod cannot refer to a ConfigMap or a Secret"
            yield ("env", index, "valueFrom"), text
    if container.envFrom:
        yield ("envFrom",), "a static pod cannot refer to a ConfigMap or a Secret"


def _metadata(pod: Pod) -> Iterator[Problem]:
    meta = pod.metadata
    for message in validation.dns1123_subdomain_problems(meta.name):
        yield ("metadata", "name"), f"{meta.name!r}: {message}"
    for message in validation.dns1123_label_problems(meta.namespace or ""):
        yield ("metadata", "namespace"), f"{meta.namespace!r}: {message}"
    uid = meta.uid or ""
    if not validation.is_dns1123_label(uid.lower()):
        yield ("metadata", "uid"), f"{uid!r} is not a uid: use letters, digits and '-'"


def _container(place: FieldPath, container: Container, volumes: list[str]) -> Iterator[Problem]:
    for message in validation.dns1123_label_problems(container.name):
        yield (*place, "name"), f"{container.name!r}: {message}"
    if not container.image.strip():
        yield (*place, "image"), "an image is needed"
    if container.imagePullPolicy and container.imagePullPolicy not in _PULL_POLICIES:
        yield (*place, "imagePullPolicy"), f"must be one of {', '.join(_PULL_POLICIES)}"
    yield from _ports(place, container)
    yield from _amounts(place, container)
    yield from _mounts(place, container, volumes)
    for index, variable in enumerate(container.env or ()):
        if not variable.name or "=" in variable.name:
            yield (*place, "env", index, "name"), f"{variable.name!r} is no variable's name"


def _ports(place: FieldPath, container: Container) -> Iterator[Problem]:
    for index, port in enumerate(container.ports or ()):
        here = (*place, "ports", index)
        if not 1 <= port.containerPort <= 65535:
            yield (*here, "containerPort"), "must be between 1 and 65535"
        if port.hostPort is not None and not 0 <= port.hostPort <= 65535:
            yield (*here, "hostPort"), "must be between 0 and 65535"
        if port.protocol and port.protocol not in _PROTOCOLS:
            yield (*here, "protocol"), f"must be one of {', '.join(_PROTOCOLS)}"


def _amounts(place: FieldPath, container: Container) -> Iterator[Problem]:
    resources = container.resources
    for field in ("limits", "requests"):
        amounts = (resources and getattr(resources, field)) or {}
        for name, amount in amounts.items():
            here = (*place, "resources", field, name)
            try:
                if quantity.parse_quantity(amount) < 0:
                    yield here, f"{amount!r} must not be negative"
            except ValueError as error:
                yield here, str(error)


def _mounts(place: FieldPath, container: Container, volumes: list[str]) -> Iterator[Problem]:
    for index, mount in enumerate(container.volumeMounts or ()):
        here = (*place, "volumeMounts", index)
        if mount.name not in volumes:
            yield (*here, "name"), f"{mount.name!r} is not in spec.volumes"
        if not mount.mountPath.startswith("/") or ":" in mount.mountPath:
            yield (*here, "mountPath"), f"{mount.mountPath!r} must be an absolute path without ':'"
        if mount.subPath and (mount.subPath.startswith("/") or ".." in mount.subPath.split("/")):
            yield (*here, "subPath"), f"{mount.subPath!r} must be relative and without '..'"


def _names(place: FieldPath, names: Iterable[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        for message in validation.dns1123_label_problems(name):
            yield (*place, index, "name"), f"{name!r}: {message}"
        if name in seen:
            yield (*place, index, "name"), f"{name!r} is used twice"
        seen.add(name)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of the reference that do nothing on a node without their machinery, or that only others
# read: saying each time that they are ignored would only teach people to overlook it.
_OF_OTHERS: Mapping[type[WireModel], frozenset[str]] = {
    ObjectMeta: _words("managedFields selfLink creationTimestamp"),
    PodSpec: _words(
        "schedulerName affinity topologySpreadConstraints priorityClassName preemptionPolicy"
        " enableServiceLinks automountServiceAccountToken serviceAccount schedulingGates"
    ),
    Container: _words("stdinOnce"),
}
# Fields of the reference that change what a pod does there and not here.
_NOT_SUPPORTED: Mapping[type[WireModel], frozenset[str]] = {
    PodSpec: _words(
        "activeDeadlineSeconds dnsPolicy dnsConfig shareProcessNamespace imagePullSecrets"
        " subdomain hostAliases readinessGates runtimeClassName overhead setHostnameAsFQDN os"
        " hostUsers resourceClaims resources hostnameOverride"
    ),
    Container: _words("targetContainerName resizePolicy restartPolicyRules volumeDevices"),
    PodSecurityContext: _words(
        "fsGroupChangePolicy seLinuxOptions seLinuxChangePolicy supplementalGroupsPolicy"
        " appArmorProfile windowsOptions"
    ),
    SecurityContext: _words("procMount seLinuxOptions appArmorProfile windowsOptions"),
    ResourceRequirements: _words("claims"),
    Volume: _words(
        "awsElasticBlockStore azureDisk azureFile cephfs cinder csi ephemeral fc flexVolume flocker"
        " gcePersistentDisk gitRepo glusterfs image iscsi nfs persistentVolumeClaim"
        " photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
    ),
}


def unknown_fields(pod: Pod) -> list[Problem]:
    """The path of every field that does nothing, with what is said of it."""
    found: list[Problem] = []
    for path, model, name in _extras(pod, ()):
        if name in _OF_OTHERS.get(type(model), ()):
            continue
        if name in _NOT_SUPPORTED.get(type(model), ()):
            text = "this agent does not support it; it is ignored"
        else:
            text = f"there is no such field; it is ignored{_guess(type(model), name)}"
        found.append(((*path, name), text))
    return found


def _extras(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, WireModel, str]]:
    if isinstance(value, WireModel):
        for name in value.model_extra or ():
            yield path, value, name
        for name in type(value).model_fields:
            if name != "status":
                yield from _extras(getattr(value, name), (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _extras(item, (*path, index))


def _guess(model: type[WireModel], name: str) -> str:
    known = [*model.model_fields, *_NOT_SUPPORTED.get(model, ())]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""
