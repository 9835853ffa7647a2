"""The records of ConfigMaps, Secrets, ServiceAccounts, ResourceQuotas, Leases and PriorityClasses.

Values of `Secret.data` and `ConfigMap.binaryData` are base64 text; `Secret.stringData` is only
ever sent, never stored.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from orch.wire.names import COORDINATION_GROUP, SCHEDULING_GROUP
from orch.wire.quantity import Quantity
from orch.wire.records.core import ObjectReference
from orch.wire.records.meta import ApiObject, LocalObjectReference, WireModel


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
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None  # MicroTime
    leaseTransitions: int | None = None


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


class PriorityClass(ApiObject):
    apiVersion: str = f"{SCHEDULING_GROUP}/v1"
    kind: str = "PriorityClass"
    value: int = 0
    globalDefault: bool | None = None
    description: str | None = None
    preemptionPolicy: str | None = None  # PreemptLowerPriority | Never
