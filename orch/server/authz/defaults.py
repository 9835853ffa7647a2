"""The roles and bindings that every cluster starts with; pure data. As apiserver §3.4.

Named as in the reference where it has them. `system:nodeagent-api-admin` is bound to the API
server, which proxies to node agents; `system:node` is bound to no subject: the rights of a node
depend on the node, and the node authorizer knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orch.wire import names
from orch.wire.names import (
    AUTHENTICATION_GROUP,
    AUTHORIZATION_GROUP,
    CERTIFICATES_GROUP,
    COORDINATION_GROUP,
    EVENTS_GROUP,
    NODE_GROUP,
)
from orch.wire.names import RBAC_GROUP as RBAC
from orch.wire.records.aliases import UPSTREAM_BY_OWN
from orch.wire.records.usage import GROUP as USAGE_GROUP

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
LABELS = {names.LABEL_BOOTSTRAPPING: "rbac-defaults"}
ANNOTATIONS = {names.ANNOTATION_AUTOUPDATE: "true"}
HEALTH = ("/healthz", "/livez", "/readyz")
_VERSION = ("/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *HEALTH, *_VERSION)
_MONITORING = (
    "/metrics", "/metrics/slis", "/statusz", "/flagz", *HEALTH, *(f"{path}/*" for path in HEALTH),
)  # fmt: skip
_ISSUER = (
    "/.well-known/openid-configuration", "/.well-known/openid-configuration/",
    "/openid/v1/jwks", "/openid/v1/jwks/",
)  # fmt: skip
_REQUESTS = "certificatesigningrequests"
_POD_ACCESS = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy")

Document = dict[str, Any]


def _on(verbs: Sequence[str], *resources: str, group: str = "") -> Document:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}


def _at(*paths: str) -> Document:
    return {"verbs": ["get", "head"], "nonResourceURLs": list(paths)}


def _role(name: str, *rules: Document, aggregate_to: str = "", made_of: str = "") -> Document:
    labels = dict(LABELS)
    if aggregate_to:
        labels[names.LABEL_AGGREGATE_PREFIX + aggregate_to] = "true"
    role: Document = {
        "kind": "ClusterRole",
        "apiVersion": f"{RBAC}/v1",
        "metadata": {"name": name, "labels": labels, "annotations": dict(ANNOTATIONS)},
        "rules": list(rules),
    }
    if made_of:
        selector = {"matchLabels": {names.LABEL_AGGREGATE_PREFIX + made_of: "true"}}
        role["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return role


def _binding(name: str, *subjects: tuple[str, str], role: str = "") -> Document:
    return {
        "kind": "ClusterRoleBinding",
        "apiVersion": f"{RBAC}/v1",
        "metadata": {"name": name, "labels": dict(LABELS), "annotations": dict(ANNOTATIONS)},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role or name},
        "subjects": [
            {"kind": kind, "apiGroup": RBAC, "name": subject} for kind, subject in subjects
        ],
    }


_ADMIN = (
    _on(("create",), "localsubjectaccessreviews", group=AUTHORIZATION_GROUP),
    _on((*READ, *WRITE), "roles", "rolebindings", group=RBAC),
)
_EDIT = (
    _on(READ, *_POD_ACCESS, "secrets", "services/proxy"),
    _on(("impersonate",), "serviceaccounts"),
    _on(WRITE, "pods", *_POD_ACCESS),
    _on(("create",), "pods/eviction"),
    _on(("get", "patch", "update"), "pods/resize"),
    _on(WRITE, "configmaps", "events", "secrets", "serviceaccounts", "services"),
    _on(("create",), "serviceaccounts/token"),
    _on(WRITE, "events", group=EVENTS_GROUP),
    _on((*READ, *WRITE), "leases", group=COORDINATION_GROUP),
)
_VIEW = (
    _on(READ, "configmaps", "endpoints", "pods", "serviceaccounts", "services"),
    _on(READ, "bindings", "events", "limitranges", "namespaces/status", "pods/log"),
    _on(READ, "pods/status", "resourcequotas", "resourcequotas/status", "namespaces"),
    _on(READ, "events", group=EVENTS_GROUP),
)
_NODE = (
    _on(("create",), "tokenreviews", group=AUTHENTICATION_GROUP),
    _on(
        ("create",), "subjectaccessreviews", "localsubjectaccessreviews",
        group=AUTHORIZATION_GROUP,
    ),
    _on(("create", *READ), "nodes"),
    _on(("patch", "update"), "nodes", "nodes/status", "pods/status"),
    _on(("create", "patch", "update"), "events"),
    _on(("create", "patch", "update"), "events", group=EVENTS_GROUP),
    _on((*READ, "create", "delete"), "pods"),
    _on(("create",), "pods/eviction", "serviceaccounts/token"),
    _on(READ, "configmaps", "secrets"),
    _on(("get",), "serviceaccounts"),
    _on(READ, "runtimeclasses", group=NODE_GROUP),
    _on(("create",), _REQUESTS, group=CERTIFICATES_GROUP),  # its own it may read
    _on(("create", "delete", "get", "patch", "update"), "leases", group=COORDINATION_GROUP),
)  # fmt: skip
_NODEAGENT_API = (
    _on(READ, "nodes"),
    _on(("proxy",), "nodes"),
    _on(
        ("*",), "nodes/checkpoint", "nodes/configz", "nodes/healthz", "nodes/log", "nodes/metrics",
        "nodes/pods", "nodes/proxy", "nodes/spec", "nodes/stats", "nodes/statusz",
    ),
)  # fmt: skip
_DELEGATOR = (
    _on(("create",), "tokenreviews", group=AUTHENTICATION_GROUP),
    _on(("create",), "subjectaccessreviews", group=AUTHORIZATION_GROUP),
)
_CONTROLLER_MANAGER = (
    _on((*READ, "patch", "update"), "nodes"),
    _on(("get", "patch", "update"), "nodes/status", "pods/status"),
    _on((*READ, "delete"), "pods"),
    _on(("create",), "pods/binding"),
    _on((*READ, *WRITE), "leases", group=COORDINATION_GROUP),
    _on(("create", "patch", "update"), "events"),
    _on((*READ, "delete"), _REQUESTS, group=CERTIFICATES_GROUP),
    _on(
        ("patch", "update"), f"{_REQUESTS}/approval", f"{_REQUESTS}/status",
        group=CERTIFICATES_GROUP,
    ),
    {
        **_on(("approve", "sign"), "signers", group=CERTIFICATES_GROUP),
        "resourceNames": [
            names.SIGNER_CLIENT, names.SIGNER_NODE_CLIENT, names.SIGNER_NODE_SERVING,
            *names.SIGNERS_UPSTREAM,
        ],
    },
    *_DELEGATOR,
)  # fmt: skip
# What the controller manager approves by itself: for whoever may create these, which are no paths.
NODE_CLIENT, SELF_NODE_CLIENT, SELF_NODE_SERVER = "nodeclient", "selfnodeclient", "selfnodeserver"
_APPROVED = f"system:{CERTIFICATES_GROUP}:{_REQUESTS}"


def roles(*, upstream: bool) -> tuple[Document, ...]:
    """`upstream`: aggregated roles also select the reference's labels."""
    return tuple(map(_aggregating_upstream, ROLES)) if upstream else ROLES


def _aggregating_upstream(role: Document) -> Document:
    if "aggregationRule" not in role:
        return role
    own = role["aggregationRule"]["clusterRoleSelectors"]
    theirs = [
        {"matchLabels": {key.replace(RBAC, UPSTREAM_BY_OWN[RBAC]): value}}
        for selector in own
        for key, value in selector["matchLabels"].items()
    ]
    return {**role, "aggregationRule": {"clusterRoleSelectors": [*own, *theirs]}}


ROLES: tuple[Document, ...] = (
    _role(
        "cluster-admin",
        _on(("*",), "*", group="*"),
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ),
    _role("admin", made_of="admin"),
    _role("edit", made_of="edit", aggregate_to="admin"),
    _role("view", made_of="view", aggregate_to="edit"),
    _role("system:aggregate-to-admin", *_ADMIN, aggregate_to="admin"),
    _role("system:aggregate-to-edit", *_EDIT, aggregate_to="edit"),
    _role("system:aggregate-to-view", *_VIEW, aggregate_to="view"),
    _role(
        "system:basic-user",
        _on(
            ("create",), "selfsubjectaccessreviews", "selfsubjectrulesreviews",
            group=AUTHORIZATION_GROUP,
        ),
        _on(("create",), "selfsubjectreviews", group=AUTHENTICATION_GROUP),
    ),
    _role("system:discovery", _at(*_DISCOVERY)),
    _role("system:public-info-viewer", _at(*HEALTH, *_VERSION)),
    _role(
        "system:monitoring",
        _at(*_MONITORING),
        _on(("get",), "nodes/metrics", "nodes/stats", "nodes/healthz"),
        _on(READ, "nodes"),  # for a scraper that finds its targets by itself
    ),
    _role("system:service-account-issuer-discovery", _at(*_ISSUER)),
    _role("system:nodeagent-api-admin", *_NODEAGENT_API),
    _role("system:node", *_NODE),
    _role("system:auth-delegator", *_DELEGATOR),
    _role("system:node-bootstrapper", _on(("create",), _REQUESTS, group=CERTIFICATES_GROUP)),
    *(
        _role(
            f"{_APPROVED}:{kind}",
            _on(("create",), f"{_REQUESTS}/{kind}", group=CERTIFICATES_GROUP),
        )
        for kind in (NODE_CLIENT, SELF_NODE_CLIENT, SELF_NODE_SERVER)
    ),
    _role(
        "system:node-problem-detector",
        _on(("get",), "nodes"),
        _on(("patch",), "nodes/status"),
        _on(("create", "patch", "update"), "events"),
    ),
    _role(
        "system:aggregated-metrics-reader",
        _on(READ, "nodes", "pods", group=USAGE_GROUP),
        aggregate_to="view",
    ),
    _role(names.USER_CONTROLLER_MANAGER, *_CONTROLLER_MANAGER),
)  # fmt: skip
BINDINGS: tuple[Document, ...] = (
    _binding("cluster-admin", ("Group", names.GROUP_MASTERS)),
    _binding("system:basic-user", ("Group", names.GROUP_AUTHENTICATED)),
    _binding("system:discovery", ("Group", names.GROUP_AUTHENTICATED)),
    _binding(
        "system:public-info-viewer",
        ("Group", names.GROUP_AUTHENTICATED),
        ("Group", names.GROUP_UNAUTHENTICATED),
    ),
    _binding("system:monitoring", ("Group", names.GROUP_MONITORING)),
    _binding("system:service-account-issuer-discovery", ("Group", names.GROUP_SERVICE_ACCOUNTS)),
    _binding("system:nodeagent-api-admin", ("User", names.USER_APISERVER)),
    _binding("system:node"),
    _binding("system:node-bootstrapper", ("Group", names.GROUP_BOOTSTRAPPERS)),
    _binding(f"{_APPROVED}:{NODE_CLIENT}", ("Group", names.GROUP_BOOTSTRAPPERS)),
    _binding(f"{_APPROVED}:{SELF_NODE_CLIENT}", ("Group", names.GROUP_NODES)),
    _binding(f"{_APPROVED}:{SELF_NODE_SERVER}", ("Group", names.GROUP_NODES)),
    _binding(names.USER_CONTROLLER_MANAGER, ("User", names.USER_CONTROLLER_MANAGER)),
)
