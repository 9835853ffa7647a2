"""The compiled grants of one subject in one scope; pure.

A grant is one rule as one binding gives it. Grants lie under the resource they are about, so that a
request looks at few of them; they are compiled on first use and again once stale. With many
subjects a decision costs the memory it has to fetch: so few objects lie between a name and its
grants, and equal sets are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from orch.server.authz.authorizer import Decision
from orch.server.authz.rules import ALL, MAX_TEXTS, Binding, RoleKey, Rule, Subject, url_matches
from orch.server.request.attributes import RequestInfo

_SHARED_MAX, _SHARED_CHARS = 32, 1024  # of a set

BindingKey = tuple[str, str]  # namespace ("" everywhere), name


class Grant(NamedTuple):
    """`verbs` and `groups` None: any; no `names`: any object. `decision` is the result."""

    verbs: frozenset[str] | None
    groups: frozenset[str] | None
    names: frozenset[str]
    urls: tuple[str, ...]
    decision: Decision


# By entry of a rule: a resource (`pods`), a subresource (`pods/status`, `*/scale`), or `*`.
Grants = dict[str, tuple[Grant, ...]]


@dataclass(slots=True, eq=False)
class Table:
    """One subject of a scope: its bindings, and their grants on paths."""

    subjects: dict[BindingKey, Subject] = field(default_factory=dict)
    paths: tuple[Grant, ...] = ()

    def compile(
        self, bindings: Mapping[BindingKey, Binding], roles: Mapping[RoleKey, Sequence[Rule]]
    ) -> Grants:
        """The grants on resources by entry; sets `paths` as well."""
        size = 0
        grants: dict[str, list[Grant]] = {}
        paths = []
        compiled: set[RoleKey] = set()  # a further binding of a role grants nothing new
        for key in sorted(self.subjects):
            binding = bindings[key]
            if binding.role in compiled:
                continue
            compiled.add(binding.role)
            decision = Decision(True, binding.reason(self.subjects[key]))
            for rule in roles.get(binding.role, ()):
                size += rule.size
                if size > MAX_TEXTS:
                    break
                grant = _grant(rule, decision)
                if rule.urls:
                    paths.append(grant)
                for entry in dict.fromkeys(rule.resources):
                    grants.setdefault(entry, []).append(grant)
        self.paths = tuple(paths)
        return {entry: tuple(found) for entry, found in grants.items()}

    def find_path(self, info: RequestInfo) -> Decision | None:
        for grant in self.paths:
            if (grant.verbs is None or info.verb in grant.verbs) and any(
                url_matches(pattern, info.path) for pattern in grant.urls
            ):
                return grant.decision
        return None


def entries_for(info: RequestInfo) -> tuple[str, ...]:
    """The entries that match a request: its resource or subresource, then the wider ones."""
    if not info.subresource:
        return (info.resource, ALL)
    return (f"{info.resource}/{info.subresource}", ALL, f"*/{info.subresource}")


def find(grants: Grants, info: RequestInfo, entries: Sequence[str]) -> Decision | None:
    """The decision of the first grant whose verbs, groups and names fit the request."""
    for entry in entries:
        for verbs, groups, names, _, decision in grants.get(entry, ()):
            if (
                (verbs is None or info.verb in verbs)
                and (groups is None or info.group in groups)
                and (not names or info.name in names)
            ):
                return decision
    return None


def _grant(rule: Rule, decision: Decision) -> Grant:
    return Grant(
        None if ALL in rule.verbs else _set_of(rule.verbs),
        None if ALL in rule.groups else _set_of(rule.groups),
        _set_of(rule.names),
        rule.urls,
        decision,
    )


def _set_of(values: Sequence[str]) -> frozenset[str]:
    """The same object for equal sets, unless they are large: it outlives its role."""
    found = frozenset(values)
    is_small = len(found) <= _SHARED_MAX and sum(map(len, found)) <= _SHARED_CHARS
    return _shared(found) if is_small else found


@lru_cache(maxsize=4096)
def _shared(values: frozenset[str]) -> frozenset[str]:
    return values
