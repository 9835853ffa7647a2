"""The records of `rbac.authorization.orch.io/v1`: roles, and bindings that grant them to subjects.

Details that the specification leaves open are as in the reference system.
"""

from __future__ import annotations

from pydantic import Field

from orch.wire.names import RBAC_GROUP
from orch.wire.records.meta import ApiObject, WireModel

_API_VERSION = f"{RBAC_GROUP}/v1"


class PolicyRule(WireModel):
    """Verbs on resources of API groups, or on paths; `*` in a list stands for all."""

    verbs: list[str] | None = None
    apiGroups: list[str] | None = None
    resources: list[str] | None = None
    resourceNames: list[str] | None = None
    nonResourceURLs: list[str] | None = None


class LabelSelectorRequirement(WireModel):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(WireModel):
    matchLabels: dict[str, str] | None = None
    matchExpressions: list[LabelSelectorRequirement] | None = None


class AggregationRule(WireModel):
    """A ClusterRole has the rules of all ClusterRoles that any of the selectors matches."""

    clusterRoleSelectors: list[LabelSelector] | None = None


class RoleRef(WireModel):
    apiGroup: str | None = None
    kind: str = ""
    name: str = ""


class Subject(WireModel):
    """A User, a Group or a ServiceAccount (which alone has a namespace)."""

    kind: str = ""
    apiGroup: str | None = None
    name: str = ""
    namespace: str | None = None


class Role(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "Role"
    rules: list[PolicyRule] | None = None


class ClusterRole(Role):
    kind: str = "ClusterRole"
    aggregationRule: AggregationRule | None = None


class RoleBinding(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "RoleBinding"
    subjects: list[Subject] | None = None
    roleRef: RoleRef = Field(default_factory=RoleRef)


class ClusterRoleBinding(RoleBinding):
    kind: str = "ClusterRoleBinding"
