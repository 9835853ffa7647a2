"""The fields of records and their types, for field validation and the OpenAPI documents; pure.

Types are read from the annotations of the classes. Beside them are the fields of the reference
system's OpenAPI document (release 1.35) that no program here acts on, which are stored and returned
unchanged, with their types: clients decode them. A name leaves those lists only for its class: a
missing one would refuse valid objects.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from orch.wire.records import configuration, core, isolation, meta, placement, pods
from orch.wire.records.meta import INT32, LocalObjectReference, ObjectMeta, WireModel

_SCALARS: dict[Any, str] = {str: "string", int: "integer", bool: "boolean", float: "number"}
INT_OR_STRING = "int-or-string"
QUANTITY = "quantity"


@dataclass(frozen=True, slots=True)
class Shape:
    """`kind`: a JSON type, "map" (of `item`), "record" (`model`, or of these `fields`),
    INT_OR_STRING, QUANTITY or "any".
    """

    kind: str
    item: Shape | None = None
    model: type[WireModel] | None = None
    choices: tuple[str, ...] = ()
    is_int32: bool = False
    fields: Mapping[str, Shape] | None = None

    @property
    def record(self) -> type[WireModel] | None:
        """Its own record, or that of a list's items."""
        return self.item.record if self.kind == "array" and self.item else self.model


ANY = Shape("any")


@cache
def shapes_of(model: type[WireModel]) -> dict[str, Shape]:
    """Every field of the class by its name on the wire."""
    hints = get_type_hints(model, include_extras=True)
    return {field.alias or name: _shape(hints[name]) for name, field in model.model_fields.items()}


def _shape(annotation: Any) -> Shape:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        shape = _shape(arguments[0])
        return replace(shape, is_int32=True) if INT32 in arguments[1:] else shape
    if origin in (Union, types.UnionType):
        return _union([member for member in arguments if member is not type(None)])
    if origin is Literal:
        return Shape("string", choices=arguments)
    if origin is list:
        return Shape("array", _shape(arguments[0]))
    if origin is dict:
        return Shape("map", _shape(arguments[1]))
    if annotation in _SCALARS:
        return Shape(_SCALARS[annotation])
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return Shape("record", model=annotation)
    return ANY


def _union(members: list[Any]) -> Shape:
    if len(members) == 1:
        return _shape(members[0])
    shapes = [_shape(member) for member in members]
    if {shape.kind for shape in shapes} != {"integer", "string"}:
        return ANY
    return Shape(INT_OR_STRING, is_int32=any(shape.is_int32 for shape in shapes))


_STRING, _BOOLEAN, _INT32 = Shape("string"), Shape("boolean"), Shape("integer", is_int32=True)
_STRINGS, _TEXTS = Shape("array", _STRING), Shape("map", _STRING)
_AMOUNTS = Shape("map", Shape(QUANTITY))


def _fields(texts: str = "", flags: str = "", **others: Shape) -> dict[str, Shape]:
    fields = dict.fromkeys(texts.split(), _STRING)
    return fields | dict.fromkeys(flags.split(), _BOOLEAN) | others


def _part(texts: str = "", flags: str = "", **others: Shape) -> Shape:
    return Shape("record", fields=_fields(texts, flags, **others))


def _parts(texts: str = "", flags: str = "", **others: Shape) -> Shape:
    return Shape("array", _part(texts, flags, **others))


def _record(model: type[WireModel]) -> Shape:
    return Shape("record", model=model)


_SECRET = _record(LocalObjectReference)
_LABELS = _part(matchLabels=_TEXTS, matchExpressions=_parts("key operator", values=_STRINGS))
_NEIGHBOURS: Mapping[str, Shape] = _fields(
    "topologyKey",
    labelSelector=_LABELS,
    namespaceSelector=_LABELS,
    matchLabelKeys=_STRINGS,
    mismatchLabelKeys=_STRINGS,
    namespaces=_STRINGS,
)
_NEAR = _part(
    requiredDuringSchedulingIgnoredDuringExecution=Shape(
        "array", Shape("record", fields=_NEIGHBOURS)
    ),
    preferredDuringSchedulingIgnoredDuringExecution=_parts(
        podAffinityTerm=Shape("record", fields=_NEIGHBOURS), weight=_INT32
    ),
)
_CLAIM = _part(
    "storageClassName volumeAttributesClassName volumeMode volumeName",
    accessModes=_STRINGS,
    dataSource=_part("apiGroup kind name"),
    dataSourceRef=_part("apiGroup kind name namespace"),
    resources=_part(limits=_AMOUNTS, requests=_AMOUNTS),
    selector=_LABELS,
)
_WINDOWS = _part("gmsaCredentialSpec gmsaCredentialSpecName runAsUserName", "hostProcess")

_VOLUMES: Mapping[str, Shape] = {
    "awsElasticBlockStore": _part("fsType volumeID", "readOnly", partition=_INT32),
    "azureDisk": _part("cachingMode diskName diskURI fsType kind", "readOnly"),
    "azureFile": _part("secretName shareName", "readOnly"),
    "cephfs": _part("path secretFile user", "readOnly", monitors=_STRINGS, secretRef=_SECRET),
    "cinder": _part("fsType volumeID", "readOnly", secretRef=_SECRET),
    "csi": _part(
        "driver fsType", "readOnly", nodePublishSecretRef=_SECRET, volumeAttributes=_TEXTS
    ),
    "ephemeral": _part(volumeClaimTemplate=_part(metadata=_record(ObjectMeta), spec=_CLAIM)),
    "fc": _part("fsType", "readOnly", lun=_INT32, targetWWNs=_STRINGS, wwids=_STRINGS),
    "flexVolume": _part("driver fsType", "readOnly", options=_TEXTS, secretRef=_SECRET),
    "flocker": _part("datasetName datasetUUID"),
    "gcePersistentDisk": _part("fsType pdName", "readOnly", partition=_INT32),
    "gitRepo": _part("directory repository revision"),
    "glusterfs": _part("endpoints path", "readOnly"),
    "iscsi": _part(
        "fsType initiatorName iqn iscsiInterface targetPortal",
        "chapAuthDiscovery chapAuthSession readOnly",
        lun=_INT32,
        portals=_STRINGS,
        secretRef=_SECRET,
    ),
    "persistentVolumeClaim": _part("claimName", "readOnly"),
    "photonPersistentDisk": _part("fsType pdID"),
    "portworxVolume": _part("fsType volumeID", "readOnly"),
    "quobyte": _part("group registry tenant user volume", "readOnly"),
    "rbd": _part(
        "fsType image keyring pool user", "readOnly", monitors=_STRINGS, secretRef=_SECRET
    ),
    "scaleIO": _part(
        "fsType gateway protectionDomain storageMode storagePool system volumeName",
        "readOnly sslEnabled",
        secretRef=_SECRET,
    ),
    "storageos": _part("fsType volumeName volumeNamespace", "readOnly", secretRef=_SECRET),
    "vsphereVolume": _part("fsType storagePolicyID storagePolicyName volumePath"),
}

_KEPT: Mapping[type[WireModel], Mapping[str, Shape]] = {
    meta.ObjectMeta: _fields("selfLink", managedFields=ANY),  # others see to both
    core.NodeSpec: _fields(
        "externalID preemptionPolicy",
        configSource=_part(
            configMap=_part("kubeletConfigKey name namespace resourceVersion uid"),
        ),
    ),
    core.NodeStatus: _fields(
        "phase", volumesInUse=_STRINGS, volumesAttached=_parts("devicePath name")
    ),
    configuration.LeaseSpec: _fields("strategy preferredHolder"),
    pods.PodSpec: _fields(
        "preemptionPolicy priorityClassName schedulerName serviceAccount",
        "automountServiceAccountToken enableServiceLinks",
        os=_part("name"),
        resourceClaims=_parts("name resourceClaimName resourceClaimTemplateName"),
        schedulingGates=_parts("name"),
        schedulingGroup=_part("podGroupName"),
        topologySpreadConstraints=_parts(
            "nodeAffinityPolicy nodeTaintsPolicy topologyKey whenUnsatisfiable",
            labelSelector=_LABELS,
            matchLabelKeys=_STRINGS,
            maxSkew=_INT32,
            minDomains=_INT32,
        ),
        workloadRef=_part("name podGroup podGroupReplicaKey"),
    ),
    pods.PodStatus: _fields(
        "nominatedNodeName resize", resourceClaimStatuses=_parts("name resourceClaimName")
    ),
    placement.Affinity: {"podAffinity": _NEAR, "podAntiAffinity": _NEAR},
    placement.NodeAffinity: {
        "preferredDuringSchedulingIgnoredDuringExecution": _parts(
            preference=_record(placement.NodeSelectorTerm), weight=_INT32
        )
    },
    pods.Container: {"volumeDevices": _parts("devicePath name")},
    isolation.PodSecurityContext: _fields(
        "fsGroupChangePolicy seLinuxChangePolicy", windowsOptions=_WINDOWS
    ),
    isolation.SecurityContext: {"windowsOptions": _WINDOWS},
    pods.ResourceRequirements: {"claims": _parts("name request")},
    pods.Volume: _VOLUMES,
    pods.ProjectedSource: {
        "clusterTrustBundle": _part("name path signerName", "optional", labelSelector=_LABELS)
    },
}

# Of these modules, only records that are listed below are completely known.
_PARTLY_MODELLED = (core.__name__, isolation.__name__, placement.__name__, pods.__name__)

_COMPLETE = frozenset({
    meta.ObjectMeta, configuration.LeaseSpec,
    core.NodeSpec, core.NodeSystemInfo,
    pods.PodSpec, pods.Container, pods.ResourceRequirements, pods.Volume,
    placement.Affinity, placement.NodeAffinity,
    isolation.PodSecurityContext, isolation.SecurityContext,
    core.ObjectReference, core.Taint, core.NodeAddress, core.DaemonEndpoint,
    core.Node, core.Namespace, core.NamespaceSpec, core.Event, core.EventSource,
    core.EventSeries, core.EventReport, pods.Pod,
    isolation.SeccompProfile, isolation.AppArmorProfile, isolation.Capabilities,
    placement.NodeSelector, placement.NodeSelectorTerm,
    placement.NodeSelectorRequirement, isolation.Sysctl, isolation.SELinuxOptions,
    pods.ContainerPort, pods.VolumeMount,
    pods.ContainerResizePolicy,
    pods.HostPathVolume, pods.NFSVolume, pods.HostAlias, pods.EmptyDirVolume,
    pods.DownwardAPIItem, pods.DownwardAPIVolume, pods.Toleration, pods.PodDNSConfig,
    pods.PodDNSConfigOption, pods.PodReadinessGate, pods.ExitCodes,
    pods.ContainerRestartRule,
})  # fmt: skip


def kept_of(model: type[WireModel]) -> Mapping[str, Shape]:
    """The fields that are kept beside those of the class, as far as their types are known."""
    return _KEPT.get(model, {})


def fields_beyond(model: type[WireModel]) -> tuple[str, ...] | None:
    """The fields of a record beside those of its class; None when they are not all known."""
    if model in _COMPLETE:
        return tuple(kept_of(model))
    return None if model.__module__ in _PARTLY_MODELLED else ()
