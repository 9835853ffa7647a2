"""What a manifest says that nobody will act upon: misspelt fields, and fields not supported; pure.

The reference agent reads static manifests leniently, and so does this one: an old manifest goes on
working. But a field that does nothing is said, because a misspelt `securityContext` would
otherwise be silently no security context.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from orch.component.yamlfile import FieldPath
from orch.wire.meta import ObjectMeta, WireModel
from orch.wire.pods import (
    Container,
    Pod,
    PodSecurityContext,
    PodSpec,
    ResourceRequirements,
    SecurityContext,
    Volume,
)

Problem = tuple[FieldPath, str]


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
