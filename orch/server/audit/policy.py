"""The audit policy: which requests are recorded, and in how much detail; its decisions are pure.

The first rule that matches a request decides its level; without a match it is not recorded. A rule
matches when every list it gives matches; lists it leaves out match everything. Rules and file
format are the reference's, so its policies work unchanged: its names of groups, and of the
namespace of Leases, match this service's too.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, model_validator

from orch.component.flags.program_flags import read_file
from orch.server.authz.rules import url_matches
from orch.server.request.attributes import RequestInfo
from orch.wire.records import aliases
from orch.wire.records.authentication import Identity

LevelName = Literal["None", "Metadata", "Request", "RequestResponse"]
Stage = Literal["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]


class Level(IntEnum):
    """Each level includes those before it; in the order of their names."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


LEVEL_NAMES: tuple[LevelName, ...] = get_args(LevelName)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GroupResources(_Record):
    """`resources`: `pods`, `pods/log`, `pods/*` (all its subresources), `*/log`, `*`."""

    group: str = ""
    resources: tuple[str, ...] = ()
    resourceNames: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_need_resources(self) -> GroupResources:
        if self.resourceNames and not self.resources:
            raise ValueError("resourceNames need resources that they are names of")
        return self


class AuditRule(_Record):
    level: LevelName
    users: tuple[str, ...] = ()
    userGroups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    nonResourceURLs: tuple[str, ...] = ()
    omitStages: tuple[Stage, ...] = ()
    omitManagedFields: bool = True

    @model_validator(mode="after")
    def _one_kind_of_request(self) -> AuditRule:
        if self.nonResourceURLs and (self.resources or self.namespaces):
            raise ValueError("a rule is for resources or for nonResourceURLs, not for both")
        for url in self.nonResourceURLs:
            if url != "*" and (not url.startswith("/") or "*" in url[:-1]):
                raise ValueError(f"{url!r} is not a path, a path ending in *, or *")
        return self

    def matches(self, identity: Identity | None, info: RequestInfo) -> bool:
        """`identity` None: authentication failed."""
        return (
            _among("" if identity is None else identity.name, self.users)
            and (
                not self.userGroups
                or (identity is not None and not set(identity.groups).isdisjoint(self.userGroups))
            )
            and _among(info.verb, self.verbs)
            and self._is_about(info)
        )

    def _is_about(self, info: RequestInfo) -> bool:
        if self.resources or self.namespaces:
            return (
                info.is_resource
                and self._is_in(aliases.names_of_namespace(info.namespace))
                and (not self.resources or any(_names(group, info) for group in self.resources))
            )
        if self.nonResourceURLs:
            return not info.is_resource and any(
                url_matches(url, info.path) for url in self.nonResourceURLs
            )
        return True

    def _is_in(self, namespaces: Iterable[str]) -> bool:
        return any(_among(namespace, self.namespaces) for namespace in namespaces)


class Policy(_Record):
    apiVersion: Literal["audit.orch.io/v1", "audit.k8s.io/v1"]
    kind: Literal["Policy"]
    rules: tuple[AuditRule, ...]
    omitStages: tuple[Stage, ...] = ()
    omitManagedFields: bool = True
    metadata: dict[str, Any] = {}

    def decide(
        self, identity: Identity | None, info: RequestInfo
    ) -> tuple[Level, frozenset[Stage]]:
        """The level, and the stages that are omitted."""
        for rule in self.rules:
            if rule.matches(identity, info):
                level = Level(LEVEL_NAMES.index(rule.level))
                return level, frozenset((*self.omitStages, *rule.omitStages))
        return Level.NONE, frozenset()


def read_policy(path: Path) -> Policy:
    """SetupError names the file, the line and the field that is wrong."""
    return read_file("--audit-policy-file", path, Policy)


def _among(value: str, wanted: Iterable[str]) -> bool:
    return not wanted or value in wanted


def _names(wanted: GroupResources, info: RequestInfo) -> bool:
    if wanted.group not in (info.group, aliases.UPSTREAM_BY_OWN.get(info.group)):
        return False
    if not wanted.resources:
        return True
    if wanted.resourceNames and info.name not in wanted.resourceNames:
        return False
    full = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    patterns = {"*", full}
    if info.subresource:
        patterns |= {f"{info.resource}/*", f"*/{info.subresource}"}
    return not patterns.isdisjoint(wanted.resources)
