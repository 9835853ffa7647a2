"""Roles, bindings and requests for tests: the defaults, and small worlds made by hypothesis."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from orch.server.authz import defaults, reconcile
from orch.server.authz.index import RbacIndex
from orch.server.authz.rules import Binding, RoleKey, Rule, Subject, binding_of, rules_of
from orch.server.request.attributes import RequestInfo
from orch.wire.records.authentication import Identity

VERBS = ("get", "list", "create")
GROUPS = ("", "apps.io")
RESOURCES = ("pods", "nodes")
SUBRESOURCES = ("", "status", "scale")
NAMES = ("", "a", "b")
NAMESPACES = ("", "red", "blue")
PATHS = ("/", "/healthz", "/healthz/etcd", "/metrics")
USERS = ("ann", "system:serviceaccount:red:bot")
TEAMS = ("devs", "system:authenticated")
ROLE_NAMES = ("r1", "r2", "r3")


@cache
def default_index() -> RbacIndex:
    """The index of a cluster to which nothing was added."""
    index = RbacIndex()
    roles: list[dict[str, Any]] = [dict(role) for role in defaults.ROLES]
    for _ in range(3):  # admin is made of edit, which is made of view
        for role in roles:
            if reconcile.is_aggregated(role):
                role["rules"] = reconcile.aggregated_rules(role, roles)
    for role in roles:
        index.put_role(RoleKey("", role["metadata"]["name"]), rules_of(role))
    for binding in defaults.BINDINGS:
        index.put_binding(binding_of(binding))
    return index


def some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True).map(tuple)


resource_rules = st.builds(
    Rule,
    some((*VERBS, "*")),
    some((*GROUPS, "*")),
    some((*RESOURCES, "*", "pods/status", "nodes/scale", "*/scale", "pods/*")),
    st.one_of(st.just(()), some(NAMES[1:])),
)
path_rules = st.builds(
    Rule, some((*VERBS, "*")), urls=some(("/", "/healthz", "/healthz/*", "*", "/m**"))
)
rules = st.one_of(resource_rules, resource_rules, path_rules)
role_keys = st.builds(RoleKey, st.sampled_from(NAMESPACES), st.sampled_from(ROLE_NAMES))
roles = st.tuples(role_keys, st.lists(rules, max_size=3).map(tuple))
subjects = st.one_of(
    st.builds(Subject, st.just("User"), st.sampled_from(USERS)),
    st.builds(Subject, st.just("Group"), st.sampled_from(TEAMS)),
    st.builds(Subject, st.just("ServiceAccount"), st.just("bot"), st.sampled_from(NAMESPACES[1:])),
)


@st.composite
def bindings(draw: st.DrawFn) -> Binding:
    namespace = draw(st.sampled_from(NAMESPACES))
    in_namespace = bool(namespace) and draw(st.booleans())
    role = RoleKey(namespace if in_namespace else "", draw(st.sampled_from(ROLE_NAMES)))
    given_to = tuple(draw(st.lists(subjects, max_size=3)))
    return Binding(namespace, draw(st.sampled_from(("b1", "b2"))), role, given_to)


identities = st.builds(
    Identity,
    st.sampled_from((*USERS, "nobody")),
    st.lists(st.sampled_from((*TEAMS, "others")), max_size=2, unique=True).map(tuple),
)
requests = st.one_of(
    st.builds(
        RequestInfo,
        verb=st.sampled_from((*VERBS, "delete", "*")),
        path=st.just("/x"),
        is_resource=st.just(True),
        group=st.sampled_from((*GROUPS, "*")),
        namespace=st.sampled_from(NAMESPACES),
        resource=st.sampled_from((*RESOURCES, "*")),
        name=st.sampled_from(NAMES),
        subresource=st.sampled_from((*SUBRESOURCES, "*")),
    ),
    st.builds(RequestInfo, verb=st.sampled_from(VERBS), path=st.sampled_from(PATHS)),
)
