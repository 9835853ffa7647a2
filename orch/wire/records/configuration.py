"""The records of kinds that hold settings: ConfigMaps, Secrets, ServiceAccounts, ResourceQuotas,
Leases, PodTemplates, classes of pods, and definitions of kinds.

Values of `Secret.data` and `ConfigMap.binaryData` are base64 text; `Secret.stringData` is only
ever sent, never stored.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from orch.wire.names import COORDINATION_GROUP, EXTENSIONS_GROUP, NODE_GROUP, SCHEDULING_GROUP
from orch.wire.records.core import ObjectReference
from orch.wire.records.meta import (
    ApiObject,
    Int32,
    LocalObjectReference,
    ObjectMeta,
    Quantity,
    WireModel,
)
from orch.wire.records.pods import PodSpec, Toleration


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"is not base64: {error}") from None
    return text


Base64 = Annotated[str, AfterValidator(_base64)]


class ConfigMap(ApiObject):
    apiVersion: str = "v1"
    kind: str = "ConfigMap"
    data: dict[str, str] | None = None
    binaryData: dict[str, Base64] | None = None
    immutable: bool | None = None


class Secret(ApiObject):
    apiVersion: str = "v1"
    kind: str = "Secret"
    type: str | None = None  # Opaque by default
    data: dict[str, Base64] | None = None
    stringData: dict[str, str] | None = None
    immutable: bool | None = None


class ServiceAccount(ApiObject):
    apiVersion: str = "v1"
    kind: str = "ServiceAccount"
    secrets: list[ObjectReference] | None = None
    imagePullSecrets: list[LocalObjectReference] | None = None
    automountServiceAccountToken: bool | None = None


class LeaseSpec(WireModel):
    holderIdentity: str | None = None
    leaseDurationSeconds: Int32 | None = None
    acquireTime: str | None = None
    renewTime: str | None = None  # MicroTime
    leaseTransitions: Int32 | None = None


class Lease(ApiObject):
    apiVersion: str = f"{COORDINATION_GROUP}/v1"
    kind: str = "Lease"
    spec: LeaseSpec = Field(default_factory=LeaseSpec)


class ScopeRequirement(WireModel):
    scopeName: str
    operator: str  # In | NotIn | Exists | DoesNotExist
    values: list[str] | None = None


class ScopeSelector(WireModel):
    matchExpressions: list[ScopeRequirement] | None = None


class ResourceQuotaSpec(WireModel):
    hard: dict[str, Any] | None = None  # quantity text, or a number as YAML gives it
    scopes: list[str] | None = None
    scopeSelector: ScopeSelector | None = None


class ResourceQuotaStatus(WireModel):
    hard: dict[str, Any] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(ApiObject):
    apiVersion: str = "v1"
    kind: str = "ResourceQuota"
    spec: ResourceQuotaSpec = Field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = Field(default_factory=ResourceQuotaStatus)


class LimitRangeItem(WireModel):
    """Amounts are quantity texts, or numbers as YAML gives them."""

    type: str  # Container, Pod or PersistentVolumeClaim
    max: dict[str, Any] | None = None
    min: dict[str, Any] | None = None
    default: dict[str, Any] | None = None
    defaultRequest: dict[str, Any] | None = None
    maxLimitRequestRatio: dict[str, Any] | None = None


class LimitRangeSpec(WireModel):
    limits: list[LimitRangeItem] = Field(default_factory=list)


class LimitRange(ApiObject):
    """What containers and pods of a namespace get and may ask for."""

    apiVersion: str = "v1"
    kind: str = "LimitRange"
    spec: LimitRangeSpec = Field(default_factory=LimitRangeSpec)


class PriorityClass(ApiObject):
    apiVersion: str = f"{SCHEDULING_GROUP}/v1"
    kind: str = "PriorityClass"
    value: Int32 = 0
    globalDefault: bool | None = None
    description: str | None = None
    preemptionPolicy: str | None = None  # PreemptLowerPriority | Never


class PodTemplateSpec(WireModel):
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: PodSpec = Field(default_factory=PodSpec)


class PodTemplate(ApiObject):
    apiVersion: str = "v1"
    kind: str = "PodTemplate"
    template: PodTemplateSpec = Field(default_factory=PodTemplateSpec)


class Overhead(WireModel):
    podFixed: dict[str, Any] | None = None  # quantity text, or a number as YAML gives it


class Scheduling(WireModel):
    """Where pods of a class can run; added to what they say themselves."""

    nodeSelector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(ApiObject):
    apiVersion: str = f"{NODE_GROUP}/v1"
    kind: str = "RuntimeClass"
    handler: str = ""  # in the runtime's configuration on the nodes
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


# ---- kinds that users define; schemas are raw JSON, which `orch.wire.structural` reads


class CustomObject(ApiObject):
    """An object of a kind that users defined; its definition says what it may have."""


class DefinedNames(WireModel):
    """The names that a kind asks for, or is served by: "" before there are any."""

    plural: str = ""
    singular: str | None = None
    kind: str = ""
    listKind: str | None = None
    shortNames: list[str] | None = None
    categories: list[str] | None = None


class ScaleSubresource(WireModel):
    """The paths of a number of replicas in objects, as `.spec.replicas`."""

    specReplicasPath: str
    statusReplicasPath: str
    labelSelectorPath: str | None = None


class Subresources(WireModel):
    """`status` is {} where the kind has it."""

    status: dict[str, Any] | None = None
    scale: ScaleSubresource | None = None


class PrinterColumn(WireModel):
    name: str
    type: str  # integer | number | string | boolean | date
    jsonPath: str
    format: str | None = None
    description: str | None = None
    priority: Int32 | None = None


class DefinitionSchema(WireModel):
    openAPIV3Schema: dict[str, Any] | None = None


class DefinedVersion(WireModel):
    name: str
    served: bool
    storage: bool
    deprecated: bool | None = None
    deprecationWarning: str | None = None
    schema_: DefinitionSchema | None = Field(default=None, alias="schema")
    subresources: Subresources | None = None
    additionalPrinterColumns: list[PrinterColumn] | None = None


class Conversion(WireModel):
    strategy: str  # None


class DefinitionSpec(WireModel):
    group: str = ""
    names: DefinedNames = Field(default_factory=DefinedNames)
    scope: str = ""  # Namespaced | Cluster
    versions: list[DefinedVersion] = Field(default_factory=list)
    conversion: Conversion | None = None
    preserveUnknownFields: bool | None = None


class DefinitionCondition(WireModel):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None


class DefinitionStatus(WireModel):
    conditions: list[DefinitionCondition] | None = None
    acceptedNames: DefinedNames | None = None
    storedVersions: list[str] | None = None


class CustomResourceDefinition(ApiObject):
    """A kind of objects that users define."""

    apiVersion: str = f"{EXTENSIONS_GROUP}/v1"
    kind: str = "CustomResourceDefinition"
    spec: DefinitionSpec = Field(default_factory=DefinitionSpec)
    status: DefinitionStatus = Field(default_factory=DefinitionStatus)
