"""Every role and binding, indexed by subject and resource: a decision takes a few look-ups; pure.

The index is updated on each change, which makes the tables of the affected subjects stale, but no
others. No decision scans anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orch.server.authz.authorizer import NO_OPINION, Decision, RuleList
from orch.server.authz.rules import ALL, Binding, RoleKey, Rule, Subject
from orch.server.authz.table import BindingKey, Grants, Table, entries_for, find
from orch.server.request.attributes import RequestInfo
from orch.wire.records.authentication import Identity
from orch.wire.records.authorization import NonResourceRule, ResourceRule

_ERRORS_SHOWN = 20
_TEXTS_SHOWN = 10_000
_SUBJECTS_AT_ONCE = 1_000
_STALE: Grants = {}  # stands for grants that have to be compiled


@dataclass(slots=True, eq=False)
class Holders:
    """Users, or groups, by name: their tables, and the grants that most questions need."""

    tables: dict[str, Table] = field(default_factory=dict)
    grants: dict[str, Grants] = field(default_factory=dict)

    def drop(self, name: str) -> None:
        del self.tables[name]
        del self.grants[name]


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

    def make_stale(self) -> None:
        """The grants of all its holders: quicker than those of very many."""
        for holders in (self.users, self.groups):
            holders.grants = dict.fromkeys(holders.grants, _STALE)

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
        self._roles: dict[RoleKey, tuple[Rule, ...]] = {}
        self._bindings: dict[BindingKey, Binding] = {}
        self._bindings_of_role: dict[RoleKey, set[BindingKey]] = {}
        self._everywhere = Scope()
        self._namespaces: dict[str, Scope] = {}
        self._missing: set[RoleKey] = set()  # bound, but do not exist

    def put_role(self, key: RoleKey, rules: tuple[Rule, ...]) -> None:
        self._roles[key] = rules
        self._touch(key)

    def drop_role(self, key: RoleKey) -> None:
        self._roles.pop(key, None)
        self._touch(key)

    def role(self, key: RoleKey) -> tuple[Rule, ...] | None:
        """The rules of a role; None when there is none."""
        return self._roles.get(key)

    def put_binding(self, binding: Binding) -> None:
        key = (binding.namespace, binding.name)
        self.drop_binding(key)
        self._bindings[key] = binding
        self._bindings_of_role.setdefault(binding.role, set()).add(key)
        scope = self._scope(binding.namespace) or self._namespaces.setdefault(
            binding.namespace, Scope()
        )
        for subject in binding.subjects:
            holders, name = scope.of(subject)
            table = holders.tables.setdefault(name, Table())
            table.subjects.setdefault(key, subject)
            holders.grants[name] = _STALE
        self._note_missing(binding.role)

    def drop_binding(self, key: BindingKey) -> None:
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        users = self._bindings_of_role[binding.role]
        users.discard(key)
        if not users:
            del self._bindings_of_role[binding.role]
            self._missing.discard(binding.role)
        scope = self._scope(binding.namespace) or Scope()
        for subject in binding.subjects:
            holders, name = scope.of(subject)
            table = holders.tables.get(name)
            if table is not None and table.subjects.pop(key, None) is not None:
                holders.grants[name] = _STALE
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
            rules = self._roles.get(role)
            if rules is None:
                errors.append(role.missing)
            else:
                roles.append(rules)
        return Held(tuple(roles), tuple(errors[:_ERRORS_SHOWN]))

    def _search(
        self, scope: Scope, identity: Identity, info: RequestInfo, entries: Sequence[str]
    ) -> Decision | None:
        grants = scope.users.grants.get(identity.name)
        if grants is not None:
            if grants is _STALE:
                grants = self._compiled(scope.users, identity.name)
            found = find(grants, info, entries)
            if found is not None:
                return found
        groups, entry = scope.groups.grants, entries[0]
        for group in identity.groups:
            grants = groups.get(group)
            if grants is None:
                continue
            if grants is _STALE:
                grants = self._compiled(scope.groups, group)
            # Most groups hold nothing on the resource: skip the call, which costs the most.
            if entry in grants or ALL in grants or len(entries) > 2:
                found = find(grants, info, entries)
                if found is not None:
                    return found
        return None

    def _compiled(self, holders: Holders, name: str) -> Grants:
        grants = holders.tables[name].compile(self._bindings, self._roles)
        holders.grants[name] = grants
        return grants

    def _decide_path(self, identity: Identity, info: RequestInfo) -> Decision:
        for holders, name in self._everywhere.held(identity):
            if holders.grants[name] is _STALE:
                self._compiled(holders, name)
            found = holders.tables[name].find_path(info)
            if found is not None:
                return found
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
        if role in self._bindings_of_role and role not in self._roles:
            self._missing.add(role)
        else:
            self._missing.discard(role)

    def _touch(self, role: RoleKey) -> None:
        """A role changed, and with it the grants of all its subjects."""
        self._note_missing(role)
        bindings = [self._bindings[key] for key in self._bindings_of_role.get(role, ())]
        if sum(len(binding.subjects) for binding in bindings) > _SUBJECTS_AT_ONCE:
            for namespace in {binding.namespace for binding in bindings}:
                (self._scope(namespace) or Scope()).make_stale()
            return
        for binding in bindings:
            scope = self._scope(binding.namespace) or Scope()
            for subject in binding.subjects:
                holders, name = scope.of(subject)
                holders.grants[name] = _STALE


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
