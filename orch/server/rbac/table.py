"""What one subject may do in one scope, ready to be asked; pure.

A grant is one rule as one binding gives it; grants lie under the resource they are about, so that
a request looks at few of them. Compiled when first asked for, and again when it was made stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orch.server.authorizer import Decision
from orch.server.rbac.rules import ALL, Binding, RoleKey, Rule, Subject, url_matches
from orch.server.requestinfo import RequestInfo

BindingKey = tuple[str, str]  # namespace ("" everywhere), name
_ANY_SUBRESOURCE = "*/"


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """`verbs` and `groups` None: any; no `names`: any object. `decision` is what it leads to."""

    verbs: frozenset[str] | None
    groups: frozenset[str] | None
    names: frozenset[str]
    urls: tuple[str, ...]
    decision: Decision


@dataclass(slots=True, eq=False)
class Table:
    """The grants of one subject by resource (`pods`, `pods/status`); `subjects` by binding."""

    subjects: dict[BindingKey, Subject] = field(default_factory=dict)
    stale: bool = True
    wild: bool = False  # has grants that are not found under the resource itself
    by_resource: dict[str, list[Grant]] = field(default_factory=dict)
    by_subresource: dict[str, list[Grant]] = field(default_factory=dict)  # of `*/scale`
    any_resource: list[Grant] = field(default_factory=list)
    paths: list[Grant] = field(default_factory=list)

    def compile(
        self,
        bindings: Mapping[BindingKey, Binding],
        roles: Mapping[RoleKey, Sequence[Rule]],
    ) -> None:
        self.by_resource, self.by_subresource, self.any_resource, self.paths = {}, {}, [], []
        for key in sorted(self.subjects):
            binding = bindings[key]
            decision = Decision(True, binding.reason(self.subjects[key]))
            for rule in roles.get(binding.role, ()):
                self._place(rule, _grant(rule, decision))
        self.wild = bool(self.any_resource or self.by_subresource)
        self.stale = False

    def find(self, info: RequestInfo, key: str) -> Decision | None:
        """The grant of a request for the resource `key` (with its subresource), if any."""
        grants = self.by_resource.get(key)
        if grants is not None:
            found = first(grants, info)
            if found is not None:
                return found
        if self.any_resource:
            found = first(self.any_resource, info)
            if found is not None:
                return found
        if self.by_subresource and info.subresource:
            return first(self.by_subresource.get(info.subresource, ()), info)
        return None

    def find_path(self, info: RequestInfo) -> Decision | None:
        for grant in self.paths:
            if (grant.verbs is None or info.verb in grant.verbs) and any(
                url_matches(pattern, info.path) for pattern in grant.urls
            ):
                return grant.decision
        return None

    def _place(self, rule: Rule, grant: Grant) -> None:
        if rule.urls:
            self.paths.append(grant)
        if ALL in rule.resources:
            self.any_resource.append(grant)
            return
        for entry in dict.fromkeys(rule.resources):
            if entry.startswith(_ANY_SUBRESOURCE):
                self.by_subresource.setdefault(entry[len(_ANY_SUBRESOURCE) :], []).append(grant)
            self.by_resource.setdefault(entry, []).append(grant)


def first(grants: Iterable[Grant], info: RequestInfo) -> Decision | None:
    """The decision of the first grant whose verbs, groups and names fit the request."""
    verb, group = info.verb, info.group
    for grant in grants:
        if (
            (grant.verbs is None or verb in grant.verbs)
            and (grant.groups is None or group in grant.groups)
            and (not grant.names or info.name in grant.names)
        ):
            return grant.decision
    return None


def _grant(rule: Rule, decision: Decision) -> Grant:
    return Grant(
        None if ALL in rule.verbs else frozenset(rule.verbs),
        None if ALL in rule.groups else frozenset(rule.groups),
        frozenset(rule.names),
        rule.urls,
        decision,
    )
