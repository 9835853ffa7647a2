"""The fields of records and their types, for field validation and the OpenAPI documents; pure.

Types are read from the annotations of the classes. Beside them are the fields of the reference
system's OpenAPI document (release 1.35) that no program here acts on, which are stored and returned
unchanged. A name leaves those lists only for its class: a missing one would refuse valid objects.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from orch.wire.records import configuration, core, handlers, meta, pods
from orch.wire.records.meta import WireModel

_SCALARS: dict[Any, str] = {str: "string", int: "integer", bool: "boolean", float: "number"}
INT_OR_STRING = "int-or-string"


@dataclass(frozen=True, slots=True)
class Shape:
    """`kind`: a JSON type, "map" (of `item`), "record" (`model`), INT_OR_STRING or "any"."""

    kind: str
    item: Shape | None = None
    model: type[WireModel] | None = None
    choices: tuple[str, ...] = ()

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
        return _shape(arguments[0])
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
    return Shape(INT_OR_STRING) if set(members) == {int, str} else ANY


# Of these modules, only records that are listed below are completely known.
_PARTLY_MODELLED = (core.__name__, pods.__name__)

_FIELDS: Mapping[type[WireModel], str] = {
    meta.ObjectMeta: "selfLink managedFields",
    core.NodeSpec: "configSource externalID preemptionPolicy",
    core.NodeSystemInfo: "swap",
    configuration.LeaseSpec: "strategy preferredHolder",
    pods.PodSpec: (
        "affinity automountServiceAccountToken"
        " enableServiceLinks hostUsers hostnameOverride os overhead"
        " preemptionPolicy priorityClassName resourceClaims resources"
        " schedulerName schedulingGates schedulingGroup serviceAccount"
        " topologySpreadConstraints workloadRef"
    ),
    pods.Container: "resizePolicy restartPolicyRules stdinOnce volumeDevices",
    pods.PodSecurityContext: (
        "fsGroupChangePolicy seLinuxChangePolicy seLinuxOptions windowsOptions"
    ),
    pods.SecurityContext: "procMount seLinuxOptions windowsOptions",
    pods.EnvVarSource: "fileKeyRef",
    pods.ResourceRequirements: "claims",
    pods.Volume: (
        "awsElasticBlockStore azureDisk azureFile cephfs cinder csi ephemeral fc flexVolume flocker"
        " gcePersistentDisk gitRepo glusterfs iscsi nfs persistentVolumeClaim photonPersistentDisk"
        " portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
    ),
    handlers.Lifecycle: "stopSignal",
    **dict.fromkeys(
        (
            core.ObjectReference, core.Taint, core.NodeAddress, core.DaemonEndpoint,
            core.Node, core.Namespace, core.NamespaceSpec, core.Event, core.EventSource,
            core.EventSeries, pods.Pod,
            pods.SeccompProfile, pods.AppArmorProfile, pods.Capabilities, pods.Sysctl,
            pods.FieldRef, pods.ResourceFieldRef, pods.EnvVar, pods.ContainerPort, pods.VolumeMount,
            pods.HostPathVolume, pods.HostAlias, pods.EmptyDirVolume, pods.DownwardAPIItem,
            pods.DownwardAPIVolume, pods.Toleration, pods.PodDNSConfig,
            pods.PodDNSConfigOption, pods.PodReadinessGate,
        ),
        "",
    ),
}  # fmt: skip


def fields_beyond(model: type[WireModel]) -> tuple[str, ...] | None:
    """The fields of a record beside those of its class; None when they are not all known."""
    if model in _FIELDS:
        return tuple(_FIELDS[model].split())
    return None if model.__module__ in _PARTLY_MODELLED else ()
