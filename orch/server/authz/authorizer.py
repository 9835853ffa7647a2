"""Authorization: a pure decision over the request's attributes, taken before any work.

A chain: the group that may do everything, self reviews, nodes (which may access only their own
objects), roles. The first that allows ends it; if none does, the refusal lists every reason. What a
node writes is checked again in `admission`, which sees bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from orch.server.authz.node_graph import NodeGraph
from orch.server.request.attributes import RequestInfo
from orch.wire.errors import ApiError
from orch.wire.names import (
    AUTHENTICATION_GROUP,
    AUTHORIZATION_GROUP,
    CERTIFICATES_GROUP,
    COORDINATION_GROUP,
    EVENTS_GROUP,
    GROUP_AUTHENTICATED,
    GROUP_MASTERS,
    NODE_GROUP,
    NODE_LEASE_NAMESPACE,
)
from orch.wire.records.authentication import Identity, node_name_of
from orch.wire.records.authorization import NonResourceRule, ResourceRule
from orch.wire.records.kinds import (
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    SELF_RULES_REVIEWS,
    SIGNING_REQUESTS,
)
from orch.wire.selectors import parse_field_selector

# Namespace and name of a pod → the node it is bound to ("" when to none); None when there is none.
NodeOfPod = Callable[[str, str], str | None]
# Name of a request for a certificate → who asked; "" when there is no such request.
AskerOf = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Decision:
    """`allowed` False means no opinion: another authorizer may still allow it, unless `denied`."""

    allowed: bool
    reason: str = ""
    denied: bool = False


_READ = ("get", "list", "watch")
NO_OPINION = Decision(False)
_ALLOWED = Decision(True)
_SELF_REVIEWS = {
    (r.group, r.plural) for r in (SELF_ACCESS_REVIEWS, SELF_RULES_REVIEWS, SELF_REVIEWS)
}


@dataclass(frozen=True, slots=True)
class RuleList:
    """The rights of an identity; `incomplete` when an authorizer cannot express them as rules."""

    resources: tuple[ResourceRule, ...] = ()
    paths: tuple[NonResourceRule, ...] = ()
    incomplete: bool = False
    errors: tuple[str, ...] = ()


class Authorizer(Protocol):
    def decide(self, identity: Identity, info: RequestInfo) -> Decision: ...

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        """The rights of the identity in a namespace, as far as they can be listed."""


NO_RULES = RuleList()
_EVERYTHING = RuleList(
    (ResourceRule(verbs=["*"], apiGroups=["*"], resources=["*"]),),
    (NonResourceRule(verbs=["*"], nonResourceURLs=["*"]),),
)
_SELF_RULES = RuleList(
    tuple(
        ResourceRule(verbs=["create"], apiGroups=[group], resources=[plural])
        for group, plural in sorted(_SELF_REVIEWS)
    )
)
_NODE_RULES = RuleList(
    incomplete=True, errors=("the rights of a node depend on the pods bound to it: not listed",)
)


class Chain:
    """The first decision that allows or denies; else no opinion, with all reasons, one per line.

    Some authorizers raise `asking.Unanswered` where they have to ask elsewhere first.
    """

    def __init__(self, *authorizers: Authorizer) -> None:
        self._authorizers = authorizers

    def follow(self, other: Chain) -> None:
        """Decide as another from now on."""
        self._authorizers = other._authorizers

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        reasons = []
        for authorizer in self._authorizers:
            decision = authorizer.decide(identity, info)
            if decision.allowed or decision.denied:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return Decision(False, "\n".join(reasons)) if reasons else NO_OPINION

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        lists = [authorizer.rules(identity, namespace) for authorizer in self._authorizers]
        return RuleList(
            tuple(rule for rules in lists for rule in rules.resources),
            tuple(rule for rules in lists for rule in rules.paths),
            any(rules.incomplete for rules in lists),
            tuple(error for rules in lists for error in rules.errors),
        )


class PrivilegedGroup:
    """Members may do everything, so that a cluster can always be repaired."""

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        return _ALLOWED if GROUP_MASTERS in identity.groups else NO_OPINION

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        return _EVERYTHING if GROUP_MASTERS in identity.groups else NO_RULES


class SelfReviews:
    """Every authenticated caller may ask about its own rights, whatever roles say."""

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        if info.verb != "create" or (info.group, info.resource) not in _SELF_REVIEWS:
            return NO_OPINION
        return Decision(GROUP_AUTHENTICATED in identity.groups and not info.subresource)

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        return _SELF_RULES if GROUP_AUTHENTICATED in identity.groups else NO_RULES


class OwnRequests:
    """Who asked for a certificate may read that request, and so fetch the certificate."""

    def __init__(self, asker_of: AskerOf) -> None:
        self._asker_of = asker_of

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        asked = (info.group, info.resource, info.subresource) == _REQUESTS
        if not (asked and info.verb in _READ and info.name):
            return NO_OPINION
        known = GROUP_AUTHENTICATED in identity.groups
        return Decision(known and self._asker_of(info.name) == identity.name)

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        return NO_RULES


_REQUESTS = (SIGNING_REQUESTS.group, SIGNING_REQUESTS.plural, "")


class Always:
    """Everything is allowed, or nothing: for experiments."""

    def __init__(self, *, allow: bool) -> None:
        self._decision = Decision(allow, "" if allow else "everything is forbidden.")
        self._rules = _EVERYTHING if allow else NO_RULES

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        return self._decision

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        return self._rules


class NodeAuthorizer:
    """A node: its own Node and Lease, the pods bound to it and what they need, events."""

    def __init__(self, node_of_pod: NodeOfPod, graph: NodeGraph) -> None:
        self._node_of_pod = node_of_pod
        self._graph = graph
        reviews = partial(_only, ("create",), "reviews")
        self._rules: Mapping[tuple[str, str], Callable[[str, RequestInfo], str]] = {
            ("", "nodes"): _own_node,
            ("", "pods"): self._own_pods,
            ("", "events"): partial(_only, ("create", "update", "patch"), "events"),
            (EVENTS_GROUP, "events"): partial(_only, ("create", "update", "patch"), "events"),
            ("", "secrets"): self._needed,
            ("", "configmaps"): self._needed,
            ("", "serviceaccounts"): self._accounts,
            (COORDINATION_GROUP, "leases"): _own_lease,
            (NODE_GROUP, "runtimeclasses"): partial(_only, _READ, "runtimeclasses"),
            (CERTIFICATES_GROUP, "certificatesigningrequests"): partial(
                _only, ("create",), "requests for certificates, and read its own"
            ),
            # An agent asks on behalf of its callers.
            (AUTHORIZATION_GROUP, "subjectaccessreviews"): reviews,
            (AUTHORIZATION_GROUP, "localsubjectaccessreviews"): reviews,
            (AUTHENTICATION_GROUP, "tokenreviews"): reviews,
        }

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        node = node_name_of(identity)
        if node is None or not info.is_resource:
            return NO_OPINION
        rule = self._rules.get((info.group, info.resource))
        refusal = rule(node, info) if rule else "a node may not use this resource"
        return Decision(True) if not refusal else Decision(False, refusal)

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        return NO_RULES if node_name_of(identity) is None else _NODE_RULES

    def _own_pods(self, node: str, info: RequestInfo) -> str:
        match info.subresource, info.verb:
            case "", "create":
                return ""  # only mirror pods of itself: admission sees the body
            case "", "list" | "watch":  # by name alone: others' pods that had it, or will have it
                return _selects_own_pods(node, info)
            case ("", "get" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                # The handler answers 404 for a missing pod, which its node needs to know.
                if self._node_of_pod(info.namespace, info.name) in (node, None):
                    return ""
                return "the pod is not bound to this node"
        return "a node may not do this with pods"

    def _needed(self, node: str, info: RequestInfo) -> str:
        if info.subresource or info.verb not in ("get", "list", "watch"):
            return f"a node may only read {info.resource}"
        if not info.name:
            return f"a node can only read an individual object of {info.resource}, by its name"
        return self._reached(node, info)

    def _accounts(self, node: str, info: RequestInfo) -> str:
        if (info.subresource, info.verb) not in (("", "get"), ("token", "create")):
            return "a node may only get service accounts and create their tokens"
        return self._reached(node, info)

    def _reached(self, node: str, info: RequestInfo) -> str:
        if self._graph.reaches(node, info.resource, info.namespace, info.name):
            return ""
        return f"no relationship found between node {node!r} and this object"


def _own_node(node: str, info: RequestInfo) -> str:
    match info.subresource, info.verb:
        case "", "create":
            return ""  # the name is in the body: admission
        case ("", "get" | "list" | "watch" | "update" | "patch") | ("status", "update" | "patch"):
            if info.name == node:
                return ""
            return f"node {node!r} can only use its own Node, named in the path or by metadata.name"
    return "a node may not do this with nodes"


def _own_lease(node: str, info: RequestInfo) -> str:
    if info.namespace != NODE_LEASE_NAMESPACE:
        return f"a node may use leases in the namespace {NODE_LEASE_NAMESPACE!r} only"
    if info.subresource or info.verb == "deletecollection":
        return "a node may not do this with leases"
    if info.verb == "create" or info.name == node:
        return ""  # the name of a new one is in the body: admission
    return f"node {node!r} can only use its own Lease"


def _only(verbs: Sequence[str], what: str, _node: str, info: RequestInfo) -> str:
    if not info.subresource and info.verb in verbs:
        return ""
    return f"a node may only {', '.join(verbs)} {what}"


def _selects_own_pods(node: str, info: RequestInfo) -> str:
    try:
        selected = parse_field_selector(info.field_selector).exact("spec.nodeName")
    except ValueError:
        selected = None
    return "" if selected == node else f"can only list and watch pods with spec.nodeName={node}"


WEBHOOK = "Webhook"
MODES = ("Node", "RBAC", WEBHOOK, "AlwaysAllow", "AlwaysDeny")


def chain_of(
    modes: Sequence[str],
    nodes: Authorizer,
    roles: Authorizer,
    asker_of: AskerOf,
    webhooks: Sequence[Authorizer] = (),
) -> Chain:
    """The authorizers of these modes, after those that are always there; of each `Webhook` mode the
    next of `webhooks`.
    """
    left = iter(webhooks)
    parts: Mapping[str, Callable[[], Authorizer]] = {
        "Node": lambda: nodes,
        "RBAC": lambda: roles,
        WEBHOOK: lambda: next(left),
        "AlwaysAllow": lambda: Always(allow=True),
        "AlwaysDeny": lambda: Always(allow=False),
    }
    own = OwnRequests(asker_of)
    return Chain(PrivilegedGroup(), SelfReviews(), own, *(parts[mode]() for mode in modes))


def forbidden(identity: Identity, info: RequestInfo, reason: str) -> ApiError:
    """403 in the words clients know (reference/apiserver.md §3.2), with the reason appended."""
    user = _escape(identity.name)
    suffix = f": {_escape(reason)}" if reason else ""
    if not info.is_resource:
        text = f'forbidden: User "{user}" cannot {info.verb} path "{_escape(info.path)}"{suffix}'
        return ApiError(403, "Forbidden", text)
    qualified = f"{info.resource}.{info.group}" if info.group else info.resource
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    scope = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    name = f' "{info.name}"' if info.name else ""
    text = _escape(f'{qualified}{name} is forbidden: User "') + user
    text += _escape(f'" cannot {info.verb} resource "{resource}" in API group "{info.group}" ')
    return ApiError(
        403,
        "Forbidden",
        text + _escape(scope) + suffix,
        name=info.name,
        group=info.group,
        kind=info.resource,
    )


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
