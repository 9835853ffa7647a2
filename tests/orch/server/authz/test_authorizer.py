"""Who may do what, as tables: identity, method and path → allowed or the reason why not."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from orch.server.authn.credentials import ANONYMOUS
from orch.server.authz.authorizer import Decision, NodeAuthorizer, chain_of, forbidden
from orch.server.authz.index import RbacIndex
from orch.server.authz.node_graph import NodeGraph
from orch.server.request.attributes import RequestInfo, parse_request
from orch.wire.records.authentication import Identity
from tests.orch.server.authz.worlds import default_index

BOUND = {("default", "mine"): "n1", ("default", "other"): "n2", ("default", "unbound"): ""}

ADMIN = Identity("admin", ("system:masters", "system:authenticated"))
NODE = Identity("system:node:n1", ("system:nodes", "system:authenticated"))
CONTROLLER = Identity("system:controller-manager", ("system:authenticated",))
MONITOR = Identity("prometheus", ("system:monitoring", "system:authenticated"))
STRANGER = Identity("stranger", ("system:authenticated",))

P = "/api/v1/namespaces/default/pods"
D = "/api/v1/namespaces/default"
RC = "/apis/node.orch.io/v1/runtimeclasses"
N = "/api/v1/nodes"
L = "/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases"
E = "/api/v1/namespaces/default/events"
MINE = "fieldSelector=spec.nodeName%3Dn1"
SELF = "fieldSelector=metadata.name%3Dn1"


def node_of_pod(namespace: str, name: str) -> str | None:
    return BOUND.get((namespace, name))


GRAPH = NodeGraph()
GRAPH.put(
    "/pods/default/mine",
    {
        "metadata": {"namespace": "default"},
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": "bot",
            "volumes": [{"secret": {"secretName": "s"}}, {"configMap": {"name": "c"}}],
        },
    },
)
NODES_RULE = NodeAuthorizer(node_of_pod, GRAPH)


def decide(identity: Identity, request: str, modes: tuple[str, ...] = ("Node", "RBAC")) -> Decision:
    """With the roles that every cluster begins with."""
    method, url = request.split(" ")
    path, _, query = url.partition("?")
    chain = chain_of(modes, NODES_RULE, default_index(), lambda _name: "")
    return chain.decide(identity, parse_request(method, path, dict(parse_qsl(query))))


NODE_MAY = [
    f"POST {N}", f"GET {N}/n1", f"PUT {N}/n1", f"PATCH {N}/n1",
    f"PATCH {N}/n1/status", f"PUT {N}/n1/status", f"GET {N}?{SELF}", f"GET {N}?watch=1&{SELF}",
    f"POST {L}", f"GET {L}/n1", f"PUT {L}/n1", f"PATCH {L}/n1", f"DELETE {L}/n1",
    f"GET /api/v1/pods?{MINE}", f"GET /api/v1/pods?watch=1&{MINE}", f"GET {P}?{MINE}",
    f"GET /api/v1/pods?{MINE}%2Cstatus.phase!%3DFailed",
    f"GET {P}/mine", f"DELETE {P}/mine", f"PATCH {P}/mine/status", f"PUT {P}/mine/status",
    f"GET {P}/gone", f"PATCH {P}/gone/status", f"DELETE {P}/gone",
    f"GET {P}?{MINE}%2Cmetadata.name%3Dmine", f"POST {P}",
    f"POST {E}", f"PATCH {E}/e1", f"PUT {E}/e1",
    f"POST {P}/mine/eviction", f"POST {P}/gone/eviction",
    f"GET {D}/secrets/s", f"GET {D}/configmaps/c", f"GET {D}/serviceaccounts/bot",
    f"GET {D}/secrets?fieldSelector=metadata.name%3Ds",
    f"GET {D}/configmaps?watch=1&fieldSelector=metadata.name%3Dc",
    f"POST {D}/serviceaccounts/bot/token", f"GET {RC}", f"GET {RC}/vm", f"GET {RC}?watch=1",
    "GET /api", "GET /apis", "GET /apis/coordination.orch.io/v1", "GET /version", "GET /healthz",
    "GET /openapi/v3",
]  # fmt: skip
NODE_MAY_NOT = [
    f"GET {N}", f"GET {N}?watch=1", f"GET {N}/n2", f"PATCH {N}/n2", f"PUT {N}/n2/status",
    f"DELETE {N}/n1", f"DELETE {N}", f"GET {N}/n1/proxy/x", f"POST {N}/n1/proxy/x",
    f"GET {N}?fieldSelector=metadata.name%3Dn2",
    f"GET {L}", f"GET {L}/n2", f"PATCH {L}/n2", f"DELETE {L}", f"GET {L}?watch=1",
    "POST /apis/coordination.orch.io/v1/namespaces/default/leases",
    "GET /apis/coordination.orch.io/v1/namespaces/default/leases/n1",
    "GET /apis/coordination.orch.io/v1/leases",
    f"GET {P}", "GET /api/v1/pods", "GET /api/v1/pods?watch=1",
    "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn2",
    "GET /api/v1/pods?fieldSelector=spec.nodeName!%3Dn2",
    "GET /api/v1/pods?fieldSelector=nonsense",
    "GET /api/v1/pods?labelSelector=spec.nodeName%3Dn1",
    f"GET {P}/other", f"DELETE {P}/other", f"PATCH {P}/other/status", f"PATCH {P}/mine",
    f"GET {P}/mine/status", f"GET {P}/gone/status", f"GET {N}/n1/status", f"DELETE {N}/n1/status",
    f"GET {P}?fieldSelector=metadata.name%3Dother", f"GET {P}?fieldSelector=metadata.name%3Dgone",
    # Of that name there may have been, or come to be, pods of other nodes.
    f"GET {P}?fieldSelector=metadata.name%3Dmine",
    f"GET {P}?watch=1&fieldSelector=metadata.name%3Dmine",
    f"GET {P}/mine/log", f"GET {P}/mine/ephemeralcontainers", f"PATCH {P}/mine/ephemeralcontainers",
    f"GET {P}/mine/eviction", f"DELETE {P}/mine/status", f"GET {D}/secrets/s/status",
    f"POST {RC}", f"DELETE {RC}/vm",
    f"GET {D}/serviceaccounts/bot/token", f"GET {D}/resourcequotas", f"GET {L}/n1/status",
    "GET /api/v1/namespaces/default", "GET /apis/scheduling.orch.io/v1/priorityclasses",
    f"PUT {P}/mine", f"GET {P}/unbound", f"DELETE {P}?{MINE}", f"POST {P}/mine/binding",
    f"GET {E}", f"GET {E}/e1", f"DELETE {E}/e1", f"POST {P}/other/eviction",
    f"GET {D}/secrets/other", f"GET {D}/secrets", f"GET {D}/secrets?watch=1",
    "GET /api/v1/secrets", "GET /api/v1/namespaces/orch-system/secrets/s",
    f"PUT {D}/secrets/s", f"PATCH {D}/configmaps/c", f"DELETE {D}/secrets/s",
    f"GET {D}/serviceaccounts", f"POST {D}/serviceaccounts", f"GET {D}/serviceaccounts/default",
    f"POST {D}/serviceaccounts/default/token",
    "GET /api/v1/namespaces", "POST /api/v1/namespaces", "DELETE /api/v1/namespaces/default",
    "PUT /api/v1/namespaces/default/finalize",
    "GET /metrics", "GET /flagz", "GET /apis/other.io/v1/things",
]  # fmt: skip
CONTROLLER_MAY = [
    f"GET {N}", f"GET {N}?watch=1", f"GET {N}/n1", f"PATCH {N}/n1", f"PUT {N}/n1",
    f"PATCH {N}/n1/status", f"PUT {N}/n1/status", "GET /api/v1/pods", "GET /api/v1/pods?watch=1",
    f"GET {P}/mine", f"PATCH {P}/mine/status", f"PUT {P}/mine/status", f"DELETE {P}/mine",
    f"GET {L}", f"GET {L}?watch=1", f"GET {L}/n1", f"POST {L}", f"PUT {L}/n1", f"DELETE {L}/n1",
    "POST /apis/coordination.orch.io/v1/namespaces/orch-system/leases",
    "PUT /apis/coordination.orch.io/v1/namespaces/orch-system/leases/leader",
    f"POST {E}", f"PATCH {E}/e1", f"POST {P}/mine/binding", "GET /api",
]  # fmt: skip
CONTROLLER_MAY_NOT = [
    f"POST {N}", f"DELETE {N}/n1", f"GET {N}/n1/proxy/x", f"POST {P}", f"PATCH {P}/mine",
    f"DELETE {P}", "POST /api/v1/namespaces", f"GET {E}", "GET /metrics",
]  # fmt: skip
MONITOR_MAY = [
    "GET /metrics", "GET /metrics/slis", "GET /healthz", "GET /readyz/etcd", "HEAD /livez",
    "GET /statusz", "GET /flagz", f"GET {N}/n1/metrics", f"GET {N}", f"GET {N}?watch=1",
]  # fmt: skip
MONITOR_MAY_NOT = [
    "POST /metrics",
    f"PATCH {N}/n1",
    "GET /api/v1/pods",
    f"GET {N}/n1/proxy/metrics",
    "GET /configz",
]
STRANGER_MAY = ["GET /api", "GET /apis/", "GET /version", "GET /readyz", "GET /openapi/v2"]
STRANGER_MAY_NOT = [
    f"GET {N}",
    f"GET {P}",
    "GET /metrics",
    "GET /readyz/etcd",
    "GET /",
    "POST /api",
]
ANYBODY_MAY = ["GET /healthz", "GET /livez", "GET /readyz", "GET /version"]
ANYBODY_MAY_NOT = ["GET /api", "GET /metrics", f"GET {N}", "GET /healthz/etcd", "POST /healthz"]


@pytest.mark.parametrize(
    ("identity", "request_text", "allowed"),
    [
        (identity, text, allowed)
        for identity, allowed, texts in (
            (ADMIN, True, [*NODE_MAY_NOT, *CONTROLLER_MAY_NOT, "GET /anything"]),
            (NODE, True, NODE_MAY),
            (NODE, False, NODE_MAY_NOT),
            (CONTROLLER, True, CONTROLLER_MAY),
            (CONTROLLER, False, CONTROLLER_MAY_NOT),
            (MONITOR, True, MONITOR_MAY),
            (MONITOR, False, MONITOR_MAY_NOT),
            (STRANGER, True, STRANGER_MAY),
            (STRANGER, False, STRANGER_MAY_NOT),
            (ANONYMOUS, True, ANYBODY_MAY),
            (ANONYMOUS, False, ANYBODY_MAY_NOT),
        )
        for text in texts
    ],
)
def test_the_decision(identity: Identity, request_text: str, allowed: bool) -> None:
    assert decide(identity, request_text).allowed is allowed


@pytest.mark.parametrize(
    ("modes", "identity", "allowed"),
    [
        (("AlwaysAllow",), STRANGER, True),
        (("RBAC", "AlwaysAllow"), STRANGER, True),
        (("AlwaysDeny",), STRANGER, False),
        (("AlwaysDeny",), ADMIN, True),
        (("RBAC",), NODE, False),
        (("Node",), NODE, True),
        (("Node",), CONTROLLER, False),
    ],
)
def test_modes_are_asked_in_their_order(modes, identity, allowed) -> None:
    assert decide(identity, f"GET {N}/n1", modes).allowed is allowed


def test_the_rules_of_all_modes_are_listed() -> None:
    everything = chain_of(("AlwaysAllow",), NODES_RULE, RbacIndex(), lambda _name: "").rules(
        STRANGER, "default"
    )
    assert ["*"] in [rule.verbs for rule in everything.resources]
    node = chain_of(("Node", "RBAC"), NODES_RULE, default_index(), lambda _name: "").rules(
        NODE, "default"
    )
    assert node.incomplete
    assert node.errors
    assert [url for rule in node.paths for url in rule.nonResourceURLs or ()] != ["/api"]
    nothing = chain_of(("AlwaysDeny",), NODES_RULE, RbacIndex(), lambda _name: "").rules(
        ANONYMOUS, "default"
    )
    assert nothing.resources == nothing.paths == ()


@pytest.mark.parametrize(
    "identity",
    [
        Identity("system:node:n1", ("system:authenticated",)),
        Identity("n1", ("system:nodes",)),
        Identity("system:node:", ("system:nodes",)),
    ],
)
def test_half_a_node_identity_is_none(identity: Identity) -> None:
    assert not decide(identity, f"GET {N}/n1").allowed
    assert not decide(identity, f"GET {N}/").allowed


def test_reasons_are_collected_when_nobody_allows() -> None:
    assert "only use its own Node" in decide(NODE, f"GET {N}/n2").reason
    assert "spec.nodeName=n1" in decide(NODE, "GET /api/v1/pods").reason


def resource(**attributes: str) -> RequestInfo:
    return RequestInfo(path="/x", is_resource=True, **attributes)


@pytest.mark.parametrize(
    ("info", "reason", "message"),
    [  # AS:endpoints/handlers/responsewriters/errors_test.go
        (
            resource(verb="get", resource="pods", name="a", namespace="ns"),
            "",
            'pods "a" is forbidden: User "u" cannot get resource "pods" in API group ""'
            ' in the namespace "ns"',
        ),
        (
            resource(verb="list", group="g.io", resource="leases"),
            "why",
            'leases.g.io is forbidden: User "u" cannot list resource "leases" in API group "g.io"'
            " at the cluster scope: why",
        ),
        (
            resource(verb="patch", resource="nodes", subresource="status", name="n"),
            "",
            'nodes "n" is forbidden: User "u" cannot patch resource "nodes/status" in API group ""'
            " at the cluster scope",
        ),
        (
            RequestInfo("get", "/metrics"),
            "",
            'forbidden: User "u" cannot get path "/metrics"',
        ),
        (
            RequestInfo("get", "/<script>&"),
            "",
            'forbidden: User "u" cannot get path "/&lt;script&gt;&amp;"',
        ),
    ],
)
def test_a_refusal_says_who_may_not_do_what_where(
    info: RequestInfo, reason: str, message: str
) -> None:
    error = forbidden(Identity("u"), info, reason)
    assert (error.code, error.reason, error.message) == (403, "Forbidden", message)
    assert error.kind == info.resource
