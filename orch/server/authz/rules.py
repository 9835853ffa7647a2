"""Roles and bindings as values, and which rule allows which request; pure.

Rules as apiserver §3.2. This is the plain meaning, one rule and one binding at a time; `index`
answers the same questions at speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orch.server.request.attributes import RequestInfo
from orch.wire.names import USER_SERVICE_ACCOUNT_PREFIX
from orch.wire.records.authentication import Identity

ALL = "*"
# Of the rules of one caller, with its groups, in one namespace, or everywhere. Those beyond grant
# nothing: else a decision about somebody with endless rules would take endlessly.
MAX_TEXTS = 30_000
SUBJECT_KINDS = ("User", "Group", "ServiceAccount")
# The fields of a Rule as records name them, in order.
_WIRE_NAMES = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources, or (`urls`) on paths. No `names`: any object."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of its texts."""
        lists = (self.verbs, self.groups, self.resources, self.names, self.urls)
        return sum(map(len, lists))

    def allows(self, info: RequestInfo) -> bool:
        if info.verb not in self.verbs and ALL not in self.verbs:
            return False
        if not info.is_resource:
            return any(url_matches(pattern, info.path) for pattern in self.urls)
        return (
            (info.group in self.groups or ALL in self.groups)
            and any(resource_matches(entry, info) for entry in self.resources)
            and (not self.names or info.name in self.names)
        )


def resource_matches(entry: str, info: RequestInfo) -> bool:
    """`pods` is not `pods/status`; `*` is both; `*/scale` is that subresource of anything."""
    if entry == ALL:
        return True
    if not info.subresource:
        return entry == info.resource
    return entry in (f"{info.resource}/{info.subresource}", f"*/{info.subresource}")


def url_matches(pattern: str, path: str) -> bool:
    """Only a trailing `*` is special: it matches any rest."""
    if pattern in (ALL, path):
        return True
    return pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL))


@dataclass(frozen=True, slots=True)
class Subject:
    """`namespace` is that of a service account; by default the namespace of the binding."""

    kind: str
    name: str
    namespace: str = ""

    @property
    def user(self) -> str:
        """The user name of the subject; "" for a group."""
        if self.kind == "ServiceAccount":
            return f"{USER_SERVICE_ACCOUNT_PREFIX}{self.namespace}:{self.name}"
        return self.name if self.kind == "User" else ""

    def matches(self, identity: Identity) -> bool:
        if self.kind == "Group":
            return self.name in identity.groups
        return bool(self.user) and identity.name == self.user

    def __str__(self) -> str:
        shown = f"{self.name}/{self.namespace}" if self.kind == "ServiceAccount" else self.name
        return f'{self.kind} "{shown}"'


@dataclass(frozen=True, slots=True)
class RoleKey:
    """A Role in a namespace, or a ClusterRole (`namespace` "")."""

    namespace: str
    name: str

    @property
    def kind(self) -> str:
        return "Role" if self.namespace else "ClusterRole"

    @property
    def missing(self) -> str:
        """The error text for a role that does not exist."""
        return f'{self.kind.lower()}.rbac.authorization.orch.io "{self.name}" not found'


@dataclass(frozen=True, slots=True)
class Binding:
    """`namespace` "": cluster-wide (a ClusterRoleBinding), else for that namespace only."""

    namespace: str
    name: str
    role: RoleKey
    subjects: tuple[Subject, ...] = field(default_factory=tuple)

    def reason(self, subject: Subject) -> str:
        shown = f"{self.name}/{self.namespace}" if self.namespace else self.name
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        return (
            f'RBAC: allowed by {kind} "{shown}" of {self.role.kind} "{self.role.name}" to {subject}'
        )


def rules_of(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of a stored Role or ClusterRole."""
    return tuple(rule_of(record) for record in document.get("rules") or ())


def rule_of(record: Mapping[str, Any]) -> Rule:
    return Rule(*(tuple(record.get(name) or ()) for name in _WIRE_NAMES))


def record_of(rule: Rule) -> dict[str, list[str]]:
    """The rule as it is stored, without its empty lists."""
    values = (rule.verbs, rule.groups, rule.resources, rule.names, rule.urls)
    return {name: list(listed) for name, listed in zip(_WIRE_NAMES, values, strict=True) if listed}


def binding_of(document: Mapping[str, Any]) -> Binding:
    """A stored RoleBinding or ClusterRoleBinding."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace") or ""
    subjects = tuple(
        Subject(
            entry.get("kind") or "",
            entry.get("name") or "",
            (entry.get("namespace") or namespace) if entry.get("kind") == "ServiceAccount" else "",
        )
        for entry in document.get("subjects") or ()
        if entry.get("kind") in SUBJECT_KINDS and entry.get("name")
    )
    return Binding(namespace, metadata["name"], role_key_of(document), subjects)


def role_key_of(document: Mapping[str, Any]) -> RoleKey:
    """Which role a binding refers to."""
    reference = document.get("roleRef") or {}
    own = document["metadata"].get("namespace") or ""
    return RoleKey(own if reference.get("kind") == "Role" else "", reference.get("name") or "")
