"""The types of the served kinds: which lists and objects are merged, and how; pure.

Fields and their forms are read from the records; what is here is how the reference's OpenAPI
document has its lists and objects merged (`x-kubernetes-list-type`, `-list-map-keys`, `-map-type`).
Lists that are not named are atomic. Fields that records leave out merge as their values show.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from orch.wire.managed.typed import (
    SCALAR,
    UNKNOWN,
    Type,
    atomic_list,
    list_of,
    map_of,
    record,
)
from orch.wire.records import (
    admission,
    authentication,
    configuration,
    core,
    meta,
    placement,
    pods,
    rbac,
    variables,
)
from orch.wire.records.fields import Shape, fields_beyond, shapes_of
from orch.wire.records.meta import WireModel


class Listed(NamedTuple):
    """How a list is merged: by the values of key fields, or as a set; () and False: atomic."""

    keys: tuple[str, ...] = ()
    is_set: bool = False


_ATOMIC = Listed()
_SET = Listed(is_set=True)


def _by(*keys: str) -> Listed:
    return Listed(keys)


_CONDITIONS = {"conditions": _by("type")}
_LISTS: Mapping[type[WireModel], Mapping[str, Listed]] = {
    meta.ObjectMeta: {"ownerReferences": _by("uid"), "finalizers": _SET},
    pods.PodSpec: {
        **dict.fromkeys(
            ("containers", "initContainers", "ephemeralContainers", "volumes",
             "imagePullSecrets", "resourceClaims", "schedulingGates"),
            _by("name"),
        ),
        "hostAliases": _by("ip"),
        "topologySpreadConstraints": _by("topologyKey", "whenUnsatisfiable"),
    },
    pods.Container: {
        "env": _by("name"),
        "ports": _by("containerPort", "protocol"),
        "volumeMounts": _by("mountPath"),
        "volumeDevices": _by("devicePath"),
    },
    pods.ExitCodes: {"values": _SET},
    pods.ResourceRequirements: {"claims": _by("name")},
    pods.PodStatus: {
        **_CONDITIONS,
        "podIPs": _by("ip"),
        "resourceClaimStatuses": _by("name"),
    },
    core.NodeSpec: {"podCIDRs": _SET},
    core.NodeStatus: {**_CONDITIONS, "addresses": _by("type")},
    core.NamespaceStatus: _CONDITIONS,
    authentication.CertificateSigningRequestStatus: _CONDITIONS,
    configuration.ServiceAccount: {"secrets": _by("name")},
    configuration.DefinitionStatus: _CONDITIONS,
    admission.MutatingWebhookConfiguration: {"webhooks": _by("name")},
    admission.ValidatingWebhookConfiguration: {"webhooks": _by("name")},
    admission.MutatingWebhook: {"matchConditions": _by("name")},
    admission.ValidatingWebhook: {"matchConditions": _by("name")},
}  # fmt: skip
_ATOMIC_RECORDS: frozenset[type[WireModel]] = frozenset(
    (
        meta.OwnerReference, meta.LocalObjectReference, core.ObjectReference,
        placement.NodeSelector, placement.NodeSelectorTerm,
        variables.FieldRef, variables.ResourceFieldRef, variables.KeySelector,
        variables.FileKeySelector, configuration.ScopeSelector,
        rbac.LabelSelector, rbac.RoleRef, rbac.Subject,
    )
)  # fmt: skip
_ATOMIC_MAPS = frozenset(
    ((pods.PodSpec, "nodeSelector"), (configuration.Scheduling, "nodeSelector"))
)
_DEFAULTS: Mapping[type[WireModel], Mapping[str, Any]] = {
    pods.ContainerPort: {"containerPort": 0, "protocol": "TCP"},
}


def list_type(model: type[WireModel], name: str) -> Listed:
    """How a list in this field of a record is merged."""
    return _LISTS.get(model, {}).get(name, _ATOMIC)


def is_atomic(model: type[WireModel], name: str = "") -> bool:
    """Whether a record, or the map in one of its fields, is replaced whole."""
    return (model, name) in _ATOMIC_MAPS if name else model in _ATOMIC_RECORDS


@cache
def type_of(model: type[WireModel]) -> Type:
    """The type of a record."""
    made = record({}, atomic=is_atomic(model), defaults=_DEFAULTS.get(model))
    if made.map is not None:
        for name, shape in shapes_of(model).items():
            made.map.fields[name] = _field(model, name, shape)
        for name in (*(fields_beyond(model) or ()), *_LISTS.get(model, ())):
            made.map.fields.setdefault(name, _beyond(model, name))
    return made


def _field(model: type[WireModel], name: str, shape: Shape) -> Type:
    match shape.kind:
        case "record" if shape.model is not None:
            return type_of(shape.model)
        case "array":
            return _list(list_type(model, name), _element(shape.item))
        case "map":
            return map_of(_element(shape.item), atomic=is_atomic(model, name))
        case "any":
            return UNKNOWN
    return SCALAR


def _element(shape: Shape | None) -> Type:
    if shape is None or shape.kind == "any":
        return UNKNOWN
    if shape.kind == "record" and shape.model is not None:
        return type_of(shape.model)
    if shape.kind == "array":
        return atomic_list(_element(shape.item))
    return map_of(_element(shape.item)) if shape.kind == "map" else SCALAR


def _list(listed: Listed, element: Type) -> Type:
    if listed == _ATOMIC:
        return atomic_list(element)
    return list_of(element, listed.keys)


def _beyond(model: type[WireModel], name: str) -> Type:
    listed = list_type(model, name)
    return _list(listed, UNKNOWN) if listed != _ATOMIC else UNKNOWN
