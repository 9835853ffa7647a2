"""The records of `admissionregistration.orch.io/v1`: webhooks that are asked about requests.

A webhook is an HTTPS server elsewhere; the API server asks those whose rules and selectors match a
request before it carries that out.
"""

from __future__ import annotations

from orch.wire.names import ADMISSION_GROUP
from orch.wire.records.configuration import Base64
from orch.wire.records.meta import ApiObject, Int32, WireModel
from orch.wire.records.rbac import LabelSelector

_API_VERSION = f"{ADMISSION_GROUP}/v1"


class ServiceReference(WireModel):
    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: Int32 | None = None


class WebhookClientConfig(WireModel):
    """Either a `url` or a `service`; without `caBundle` (PEM) the system's authorities count."""

    url: str | None = None
    service: ServiceReference | None = None
    caBundle: Base64 | None = None


class RuleWithOperations(WireModel):
    """Which requests a webhook is asked about: those that fit one of each."""

    operations: list[str] | None = None  # CREATE | UPDATE | DELETE | CONNECT | *
    apiGroups: list[str] | None = None
    apiVersions: list[str] | None = None
    resources: list[str] | None = None  # pods, pods/status, pods/*, */status, *, */*
    scope: str | None = None  # Cluster | Namespaced | *


class MatchCondition(WireModel):
    name: str = ""
    expression: str = ""


class ValidatingWebhook(WireModel):
    name: str = ""
    clientConfig: WebhookClientConfig | None = None
    rules: list[RuleWithOperations] | None = None
    failurePolicy: str | None = None  # Fail | Ignore: what a webhook that fails means
    matchPolicy: str | None = None  # Equivalent | Exact: which names of a group count
    namespaceSelector: LabelSelector | None = None
    objectSelector: LabelSelector | None = None
    sideEffects: str | None = None  # None | NoneOnDryRun
    timeoutSeconds: Int32 | None = None
    admissionReviewVersions: list[str] | None = None
    matchConditions: list[MatchCondition] | None = None


class MutatingWebhook(ValidatingWebhook):
    reinvocationPolicy: str | None = None  # Never | IfNeeded: after others changed the object


class ValidatingWebhookConfiguration(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "ValidatingWebhookConfiguration"
    webhooks: list[ValidatingWebhook] | None = None


class MutatingWebhookConfiguration(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "MutatingWebhookConfiguration"
    webhooks: list[MutatingWebhook] | None = None
