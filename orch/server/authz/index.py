"""Every role and binding, indexed by subject and resource: a decision takes a few look-ups; pure.

The index is updated on each change: one of a binding makes the tables of its subjects stale, but no
others. No decision scans anything, or looks at a role twice, however many groups hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orch.server.authz.authorizer import NO_OPINION, Decision, RuleList
from orch.server.authz.rules import ALL, MAX_TEXTS, Binding, RoleKey, Rule, Subject
from orch.server.authz.table import BindingKey, Role, Roles, Table, allow, entries_for
from orch.server.request.attributes import RequestInfo
from orch.wire.records.authentication import Identity
from orch.wire.records.authorization import NonResourceRule, ResourceRule

_ERRORS_SHOWN = 20
_TEXTS_SHOWN = 10_000
_STALE: Roles = ((Role(), NO_OPINION),)  # stands for what has to be compiled


@dataclass(slots=True, eq=False)
class Holders:
    """Users, or groups, by name: their tables, and the roles that most questions need."""

    tables: dict[str, Table] = field(default_factory=dict)
    roles: dict[str, Roles] = field(default_factory=dict)

    def drop(self, name: str) -> None:
        del self.tables[name]
        del self.roles[name]


@dataclass(slots=True, eq=False)
class Scope:
    """The holders of rights in one namespace, or by cluster-wide bindings."""

    users: Holders = field(default_factory=Holders)
    groups: Holders = field(default_factory=Holders)

    def held(self, identity: Identity) -> Iterator[tuple[Holders, str]]:
        """The tables of the identity: where they are, and under which name."""
        if identity.name in self.users.tables:
            yield self.users, identity.name
        for group in identity.groups:
            if group in self.groups.tables:
                yield self.groups, group

    def of(self, subject: Subject) -> tuple[Holders, str]:
        """The table of a subject: where it is, and under which name."""
        return (self.users, subject.user) if subject.user else (self.groups, subject.name)


@dataclass(frozen=True, slots=True)
class Held:
    """The rules of every role an identity has, and the roles that are bound but do not exist."""

    roles: tuple[tuple[Rule, ...], ...]
    errors: tuple[str, ...]

    @property
    def rules(self) -> list[Rule]:
        return [rule for role in self.roles for rule in role]


class RbacIndex:
    """An authorizer; call `put_*` and `drop_*` as stored objects change."""

    def __init__(self) -> None:
        self._roles: dict[RoleKey, Role] = {}  # those that exist or are bound
        self._bindings: dict[BindingKey, Binding] = {}
        self._bindings_of_role: dict[RoleKey, set[BindingKey]] = {}
        self._everywhere = Scope()
        self._namespaces: dict[str, Scope] = {}
        self._missing: set[RoleKey] = set()  # bound, but do not exist

    def put_role(self, key: RoleKey, rules: tuple[Rule, ...]) -> None:
        self._roles.setdefault(key, Role()).put(rules)
        self._note_missing(key)

    def drop_role(self, key: RoleKey) -> None:
        if key in self._roles:
            self._roles[key].put(None)
        self._note_missing(key)

    def role(self, key: RoleKey) -> tuple[Rule, ...] | None:
        """The rules of a role; None when there is none."""
        found = self._roles.get(key)
        return None if found is None else found.rules

    def put_binding(self, binding: Binding) -> None:
        key = (binding.namespace, binding.name)
        self.drop_binding(key)
        self._bindings[key] = binding
        self._roles.setdefault(binding.role, Role())
        self._bindings_of_role.setdefault(binding.role, set()).add(key)
        scope = self._scope(binding.namespace) or self._namespaces.setdefault(
            binding.namespace, Scope()
        )
        for subject in binding.subjects:
            holders, name = scope.of(subject)
            table = holders.tables.setdefault(name, Table())
            table.subjects.setdefault(key, subject)
            holders.roles[name] = _STALE
        self._note_missing(binding.role)

    def drop_binding(self, key: BindingKey) -> None:
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        users = self._bindings_of_role[binding.role]
        users.discard(key)
        if not users:
            del self._bindings_of_role[binding.role]
            self._note_missing(binding.role)
        scope = self._scope(binding.namespace) or Scope()
        for subject in binding.subjects:
            holders, name = scope.of(subject)
            table = holders.tables.get(name)
            if table is not None and table.subjects.pop(key, None) is not None:
                holders.roles[name] = _STALE
                if not table.subjects:
                    holders.drop(name)
        if binding.namespace and not (scope.users.tables or scope.groups.tables):
            self._namespaces.pop(binding.namespace, None)

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        """Allowed, naming the binding; else no opinion, naming missing roles."""
        if not info.is_resource:
            return self._decide_path(identity, info)
        entries = entries_for(info)
        found = self._search(self._everywhere, identity, info, entries)
        if found is None and info.namespace:
            scope = self._namespaces.get(info.namespace)
            if scope is not None:
                found = self._search(scope, identity, info, entries)
        if found is not None:
            return found
        return self._refusal(identity, info.namespace) if self._missing else NO_OPINION

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        """The rules of every role the identity holds, in the order of its bindings; incomplete when
        there are very many.
        """
        held = self.held(identity, namespace)
        rules = held.rules
        shown = list(_first(rules))
        return RuleList(
            tuple(_resource_rule(rule) for rule in shown if rule.resources),
            tuple(
                NonResourceRule(verbs=list(rule.verbs), nonResourceURLs=list(rule.urls))
                for rule in shown
                if rule.urls
            ),
            incomplete=len(shown) < len(rules),
            errors=held.errors,
        )

    def held(self, identity: Identity, namespace: str) -> Held:
        """The rights of the identity everywhere and in the namespace, in the order of bindings."""
        roles: list[tuple[Rule, ...]] = []
        errors: list[str] = []
        keys = self._held_bindings(identity, namespace)
        for role in dict.fromkeys(self._bindings[key].role for key in keys):
            rules = self._roles[role].rules
            if rules is None:
                errors.append(role.missing)
            else:
                roles.append(rules)
        return Held(tuple(roles), tuple(errors[:_ERRORS_SHOWN]))

    def _search(
        self, scope: Scope, identity: Identity, info: RequestInfo, entries: Sequence[str]
    ) -> Decision | None:
        entry, is_part = entries[0], len(entries) > 2
        for role, decision in self._counted(scope, identity):
            grants = role.grants
            # Most roles grant nothing on the resource: skip the call, which costs the most.
            if (entry in grants or ALL in grants or is_part) and allow(grants, info, entries):
                return decision
        return None

    def _counted(self, scope: Scope, identity: Identity) -> Iterator[tuple[Role, Decision]]:
        """The roles of the user, and each once of those of the groups, as far as they count."""
        for holders, names in ((scope.users, (identity.name,)), (scope.groups, identity.groups)):
            seen: set[Role] = set()
            left = MAX_TEXTS
            for name in names:
                roles = holders.roles.get(name)
                if roles is None:
                    continue
                if roles is _STALE:
                    roles = holders.tables[name].compile(self._bindings, self._roles)
                    holders.roles[name] = roles
                for role, decision in roles:
                    if role not in seen and left >= 0:
                        seen.add(role)
                        left -= role.size
                        if left >= 0:
                            yield role, decision

    def _decide_path(self, identity: Identity, info: RequestInfo) -> Decision:
        for role, decision in self._counted(self._everywhere, identity):
            if role.allows_path(info):
                return decision
        return self._refusal(identity, "") if self._missing else NO_OPINION

    def _refusal(self, identity: Identity, namespace: str) -> Decision:
        errors = self.held(identity, namespace).errors
        if not errors:
            return NO_OPINION
        listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        return Decision(False, f"RBAC: {listed}")

    def _held_bindings(self, identity: Identity, namespace: str) -> list[BindingKey]:
        found: list[BindingKey] = []
        for scope in (self._everywhere, self._namespaces.get(namespace)):
            held = scope.held(identity) if scope is not None else ()
            found += sorted({k for holders, name in held for k in holders.tables[name].subjects})
        return found

    def _scope(self, namespace: str) -> Scope | None:
        return self._namespaces.get(namespace) if namespace else self._everywhere

    def _note_missing(self, role: RoleKey) -> None:
        is_bound, exists = role in self._bindings_of_role, self.role(role) is not None
        if not (is_bound or exists):
            self._roles.pop(role, None)
        if is_bound and not exists:
            self._missing.add(role)
        else:
            self._missing.discard(role)


def _first(rules: Sequence[Rule]) -> Iterator[Rule]:
    """As many rules as a review lists."""
    left = _TEXTS_SHOWN
    for rule in rules:
        left -= rule.size
        if left < 0:
            return
        yield rule


def _resource_rule(rule: Rule) -> ResourceRule:
    return ResourceRule(
        verbs=list(rule.verbs),
        apiGroups=list(rule.groups),
        resources=list(rule.resources),
        resourceNames=list(rule.names) or None,
    )
