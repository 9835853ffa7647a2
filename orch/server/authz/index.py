"""Every role and binding, indexed by subject and resource: a decision takes a few look-ups; pure.

The index is updated on each change: one of a binding makes the tables of its subjects stale, but no
others. No decision scans anything, or looks at a role twice, however many groups hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orch.server.authz.authorizer import NO_OPINION, Decision, RuleList
from orch.server.authz.rules import MAX_TEXTS, Binding, RoleKey, Rule, Subject
from orch.server.authz.table import BindingKey, Bound, Role, Table, entries_for
from orch.server.request.attributes import RequestInfo
from orch.wire.records.authentication import Identity
from orch.wire.records.authorization import NonResourceRule, ResourceRule

_ERRORS_SHOWN = 20
_TEXTS_SHOWN = 10_000
_STALE: tuple[Bound, ...] = ()  # to be compiled: who has a table holds something


@dataclass(slots=True, eq=False)
class Holders:
    """Users, or groups, by name: their tables, and what most questions need of them."""

    tables: dict[str, Table] = field(default_factory=dict)
    bound: dict[str, tuple[Bound, ...]] = field(default_factory=dict)

    def drop(self, name: str) -> None:
        del self.tables[name]
        del self.bound[name]


@dataclass(slots=True, eq=False)
class Scope:
    """The holders of rights in one namespace, or by cluster-wide bindings."""

    users: Holders = field(default_factory=Holders)
    groups: Holders = field(default_factory=Holders)

    def held(self, identity: Identity) -> list[tuple[Holders, str]]:
        """The tables of the identity: where they are, and under which name; of its groups in the
        order of names, as how a client sorts them must not matter.
        """
        users, groups = self.users, self.groups
        found = [(users, identity.name)] if identity.name in users.bound else []
        if not groups.bound.keys().isdisjoint(identity.groups):
            found += [(groups, name) for name in sorted(groups.bound.keys() & identity.groups)]
        return found

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
        self._bindings: dict[BindingKey, Bound] = {}
        self._bindings_of_role: dict[RoleKey, set[BindingKey]] = {}
        self._everywhere = Scope()
        self._namespaces: dict[str, Scope] = {}

    def put_role(self, key: RoleKey, rules: tuple[Rule, ...]) -> None:
        self._roles.setdefault(key, Role()).put(rules)

    def drop_role(self, key: RoleKey) -> None:
        if key in self._roles:
            self._roles[key].put(None)
        self._forget(key)

    def role(self, key: RoleKey) -> tuple[Rule, ...] | None:
        """The rules of a role; None when there is none."""
        found = self._roles.get(key)
        return None if found is None else found.rules

    def put_binding(self, binding: Binding) -> None:
        key = (binding.namespace, binding.name)
        self.drop_binding(key)
        self._bindings[key] = (binding, self._roles.setdefault(binding.role, Role()))
        self._bindings_of_role.setdefault(binding.role, set()).add(key)
        scope = self._scope(binding.namespace) or self._namespaces.setdefault(
            binding.namespace, Scope()
        )
        for subject in binding.subjects:
            holders, name = scope.of(subject)
            table = holders.tables.setdefault(name, Table())
            table.subjects.setdefault(key, subject)
            holders.bound[name] = _STALE

    def drop_binding(self, key: BindingKey) -> None:
        if key not in self._bindings:
            return
        binding, _ = self._bindings.pop(key)
        users = self._bindings_of_role[binding.role]
        users.discard(key)
        if not users:
            del self._bindings_of_role[binding.role]
            self._forget(binding.role)
        scope = self._scope(binding.namespace) or Scope()
        for subject in binding.subjects:
            holders, name = scope.of(subject)
            table = holders.tables.get(name)
            if table is not None and table.subjects.pop(key, None) is not None:
                holders.bound[name] = _STALE
                if not table.subjects:
                    holders.drop(name)
        if binding.namespace and not (scope.users.tables or scope.groups.tables):
            self._namespaces.pop(binding.namespace, None)

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        """Allowed, naming the binding; else no opinion, naming missing roles."""
        entries = entries_for(info) if info.is_resource else ()
        missing: dict[Role, RoleKey] = {}
        for scope in (self._everywhere, self._namespaces.get(info.namespace)):
            if scope is not None and (named := scope.held(identity)):
                found = self._search(named, info, entries, missing)
                if found is not None:
                    return found
        return _refusal(list(missing.values())[:_ERRORS_SHOWN]) if missing else NO_OPINION

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
        for role in dict.fromkeys(self._bindings[key][0].role for key in keys):
            rules = self._roles[role].rules
            if rules is None:
                errors.append(role.missing)
            else:
                roles.append(rules)
        return Held(tuple(roles), tuple(errors[:_ERRORS_SHOWN]))

    def _search(
        self,
        named: list[tuple[Holders, str]],
        info: RequestInfo,
        entries: Sequence[str],
        missing: dict[Role, RoleKey],
    ) -> Decision | None:
        """What the first role leads to that allows, of those that count; notes missing ones."""
        seen: set[Role] = set()
        left = MAX_TEXTS
        for holders, name in named:
            held = holders.bound[name]
            if not held:
                held = holders.bound[name] = holders.tables[name].compile(self._bindings)
            for binding, role in held:
                is_new = role not in seen
                left -= role.size if is_new else 1
                if left < 0:
                    return None
                if is_new:
                    seen.add(role)
                    if role.allows(info, entries):
                        subject = holders.tables[name].subjects[binding.namespace, binding.name]
                        return Decision(True, binding.reason(subject))
                    if role.rules is None:
                        missing[role] = binding.role
        return None

    def _held_bindings(self, identity: Identity, namespace: str) -> list[BindingKey]:
        found: list[BindingKey] = []
        for scope in (self._everywhere, self._namespaces.get(namespace)):
            held = scope.held(identity) if scope is not None else ()
            found += sorted({k for holders, name in held for k in holders.tables[name].subjects})
        return found

    def _scope(self, namespace: str) -> Scope | None:
        return self._namespaces.get(namespace) if namespace else self._everywhere

    def _forget(self, role: RoleKey) -> None:
        """Unless the role exists or is bound."""
        if role not in self._bindings_of_role and self.role(role) is None:
            self._roles.pop(role, None)


def _refusal(missing: Sequence[RoleKey]) -> Decision:
    errors = [role.missing for role in missing]
    listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    return Decision(False, f"RBAC: {listed}")


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
