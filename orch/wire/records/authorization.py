"""The review records of `authorization.orch.io/v1`: is a request allowed, what may the caller do.

Names are the specification's (`resourceAuthorizationAttributes`); the rest is as in the reference
system. Reviews are answered, never stored.
"""

from __future__ import annotations

from pydantic import Field

from orch.wire.names import AUTHORIZATION_GROUP
from orch.wire.records.meta import ApiObject, WireModel

_API_VERSION = f"{AUTHORIZATION_GROUP}/v1"


class SelectorRequirement(WireModel):
    key: str = ""
    operator: str = ""  # In | NotIn | Exists | DoesNotExist
    values: list[str] = Field(default_factory=list)


class SelectorAttributes(WireModel):
    """A selector as text or taken apart; not both."""

    rawSelector: str = ""
    requirements: list[SelectorRequirement] = Field(default_factory=list)


class ResourceAttributes(WireModel):
    """A request for a resource; empty `namespace` means all, empty `name` any."""

    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    fieldSelector: SelectorAttributes | None = None
    labelSelector: SelectorAttributes | None = None


class NonResourceAttributes(WireModel):
    """A request for a path; `verb` is the HTTP method in lower case."""

    path: str = ""
    verb: str = ""


class SelfSubjectAccessReviewSpec(WireModel):
    """Exactly one of the two must be set."""

    resourceAuthorizationAttributes: ResourceAttributes | None = None
    nonResourceAuthorizationAttributes: NonResourceAttributes | None = None


class SubjectAccessReviewSpec(SelfSubjectAccessReviewSpec):
    """Also the subject: a user, groups, or both. Without groups the user is in none."""

    user: str = ""
    groups: list[str] = Field(default_factory=list)
    uid: str = ""
    extra: dict[str, list[str]] = Field(default_factory=dict)


class SubjectAccessReviewStatus(WireModel):
    """Neither allowed nor denied: no authorizer had an opinion, which is a refusal as well."""

    allowed: bool = False
    denied: bool | None = None
    reason: str | None = None
    evaluationError: str | None = None


class SubjectAccessReview(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "SubjectAccessReview"
    spec: SubjectAccessReviewSpec = Field(default_factory=SubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus | None = None


class LocalSubjectAccessReview(SubjectAccessReview):
    kind: str = "LocalSubjectAccessReview"


class SelfSubjectAccessReview(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "SelfSubjectAccessReview"
    spec: SelfSubjectAccessReviewSpec = Field(default_factory=SelfSubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus | None = None


class SelfSubjectRulesReviewSpec(WireModel):
    namespace: str | None = None


class ResourceRule(WireModel):
    verbs: list[str] = Field(default_factory=list)
    apiGroups: list[str] | None = None
    resources: list[str] | None = None
    resourceNames: list[str] | None = None


class NonResourceRule(WireModel):
    verbs: list[str] = Field(default_factory=list)
    nonResourceURLs: list[str] | None = None


class SubjectRulesReviewStatus(WireModel):
    """`incomplete`: the caller may have more permissions than are listed."""

    resourceRules: list[ResourceRule] = Field(default_factory=list)
    nonResourceRules: list[NonResourceRule] = Field(default_factory=list)
    incomplete: bool = False
    evaluationError: str | None = None


class SelfSubjectRulesReview(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "SelfSubjectRulesReview"
    spec: SelfSubjectRulesReviewSpec = Field(default_factory=SelfSubjectRulesReviewSpec)
    status: SubjectRulesReviewStatus | None = None
