"""The rights of roles, compiled, and which roles a subject of a scope holds; pure.

Grants lie under the resource they are about, so that a request looks at few of them; they are
compiled on first use, once for all who hold the role: for each of 300 groups it took 10 ms and 400
kB. With many subjects a decision costs the memory it has to fetch: so few objects lie between a
name and its grants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orch.server.authz.rules import ALL, Binding, Rule, Subject
from orch.server.request.attributes import RequestInfo

BindingKey = tuple[str, str]  # namespace ("" everywhere), name


# By entry of a rule: a resource (`pods`), a subresource (`pods/status`, `*/scale`), or `*`.
Grants = dict[str, tuple[Rule, ...]]


class Role:
    """A role that exists or is bound; `rules` None: it does not exist."""

    __slots__ = ("_grants", "rules", "size")

    def __init__(self) -> None:
        self.put(None)

    def put(self, rules: tuple[Rule, ...] | None) -> None:
        self.rules = rules
        self.size = max(1, sum(rule.size for rule in rules or ()))  # a look at it costs, too
        self._grants: Grants | None = None

    def allows(self, info: RequestInfo, entries: Sequence[str]) -> bool:
        """`entries`: those for the request; none for a path."""
        if not entries:
            return any(rule.allows(info) for rule in self.rules or ())
        grants = self._grants
        if grants is None:
            grants = self._compile()
        for entry in entries:
            for rule in grants.get(entry, ()):
                if (
                    (info.verb in rule.verbs or ALL in rule.verbs)
                    and (info.group in rule.groups or ALL in rule.groups)
                    and (not rule.names or info.name in rule.names)
                ):
                    return True
        return False

    def _compile(self) -> Grants:
        """Those on resources."""
        grants: dict[str, list[Rule]] = {}
        for rule in self.rules or ():
            for entry in dict.fromkeys(rule.resources):
                grants.setdefault(entry, []).append(rule)
        self._grants = {entry: tuple(found) for entry, found in grants.items()}
        return self._grants


Bound = tuple[Binding, Role]  # one for all who hold it


@dataclass(slots=True, eq=False)
class Table:
    """One subject of a scope, by its bindings."""

    subjects: dict[BindingKey, Subject] = field(default_factory=dict)

    def compile(self, bindings: Mapping[BindingKey, Bound]) -> tuple[Bound, ...]:
        """What it holds in the order of bindings."""
        return tuple(bindings[key] for key in sorted(self.subjects))


def entries_for(info: RequestInfo) -> tuple[str, ...]:
    """The entries that match a request: its resource or subresource, then the wider ones."""
    if not info.subresource:
        return (info.resource, ALL)
    return (f"{info.resource}/{info.subresource}", ALL, f"*/{info.subresource}")
