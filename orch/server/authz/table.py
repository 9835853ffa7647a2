"""The rights of roles, compiled, and which roles a subject of a scope holds; pure.

Grants lie under the resource they are about, so that a request looks at few of them; they are
compiled on first use, once for all who hold the role: for each of 300 groups it took 10 ms and 400
kB. With many subjects a decision costs the memory it has to fetch: so few objects lie between a
name and its grants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orch.server.authz.authorizer import Decision
from orch.server.authz.rules import ALL, Binding, RoleKey, Rule, Subject, url_matches
from orch.server.request.attributes import RequestInfo

BindingKey = tuple[str, str]  # namespace ("" everywhere), name


# By entry of a rule: a resource (`pods`), a subresource (`pods/status`, `*/scale`), or `*`.
Grants = dict[str, tuple[Rule, ...]]


class Role:
    """A role that exists or is bound; `rules` None: it does not exist."""

    def __init__(self) -> None:
        self.put(None)

    def put(self, rules: tuple[Rule, ...] | None) -> None:
        self.rules = rules
        self.size = sum(rule.size for rule in rules or ())
        self._grants: Grants | None = None

    @property
    def grants(self) -> Grants:
        """Those on resources."""
        if self._grants is None:
            grants: dict[str, list[Rule]] = {}
            for rule in self.rules or ():
                for entry in dict.fromkeys(rule.resources):
                    grants.setdefault(entry, []).append(rule)
            self._grants = {entry: tuple(found) for entry, found in grants.items()}
        return self._grants

    def allows_path(self, info: RequestInfo) -> bool:
        return any(
            (info.verb in rule.verbs or ALL in rule.verbs)
            and any(url_matches(pattern, info.path) for pattern in rule.urls)
            for rule in self.rules or ()
        )


# Each role once, with the decision that it leads to.
Roles = tuple[tuple[Role, Decision], ...]


@dataclass(slots=True, eq=False)
class Table:
    """One subject of a scope, by its bindings."""

    subjects: dict[BindingKey, Subject] = field(default_factory=dict)

    def compile(
        self, bindings: Mapping[BindingKey, Binding], roles: Mapping[RoleKey, Role]
    ) -> Roles:
        """The roles in the order of bindings; a further binding of a role grants nothing new."""
        held: dict[Role, Decision] = {}
        for key in sorted(self.subjects):
            binding = bindings[key]
            role = roles[binding.role]
            if role not in held:
                held[role] = Decision(True, binding.reason(self.subjects[key]))
        return tuple(held.items())


def entries_for(info: RequestInfo) -> tuple[str, ...]:
    """The entries that match a request: its resource or subresource, then the wider ones."""
    if not info.subresource:
        return (info.resource, ALL)
    return (f"{info.resource}/{info.subresource}", ALL, f"*/{info.subresource}")


def allow(grants: Grants, info: RequestInfo, entries: Sequence[str]) -> bool:
    """Whether there is a grant whose verbs, groups and names fit the request."""
    for entry in entries:
        for rule in grants.get(entry, ()):
            if (
                (info.verb in rule.verbs or ALL in rule.verbs)
                and (info.group in rule.groups or ALL in rule.groups)
                and (not rule.names or info.name in rule.names)
            ):
                return True
    return False
