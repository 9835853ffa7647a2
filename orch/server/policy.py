"""The rules that hold without any stored role: what each built-in user and group may do.

Pure data and matching. Role-based access control takes over from this table; what a node may do
depends on the node and is in `authorizer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orch.server.requestinfo import RequestInfo
from orch.wire import names
from orch.wire.identity import Identity

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_DISCOVERY_PATHS = (
    "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/",
    *HEALTH_PATHS,
)  # fmt: skip
_MONITORING_PATHS = (
    "/metrics", "/metrics/slis", "/statusz", "/flagz",
    *HEALTH_PATHS, *(f"{path}/*" for path in HEALTH_PATHS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """`resources` are `plural` or `plural/subresource` of one group; or `paths`, `/x/*` below."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...] = ()
    group: str = ""
    paths: tuple[str, ...] = ()

    def allows(self, info: RequestInfo) -> bool:
        if info.verb not in self.verbs:
            return False
        if not info.is_resource:
            return any(_path_matches(pattern, info.path) for pattern in self.paths)
        wanted = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        return info.group == self.group and wanted in self.resources


def _path_matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


Rules = Mapping[str, tuple[Rule, ...]]

_AGENT_PAGES = (
    "proxy", "stats", "log", "spec", "metrics", "checkpoint", "configz", "healthz", "pods",
    "statusz",
)  # fmt: skip

USERS: Rules = {
    names.USER_APISERVER: (  # what it passes on to an agent it has decided on itself
        Rule(("get", *WRITE), tuple(f"nodes/{page}" for page in _AGENT_PAGES)),
    ),
    names.USER_CONTROLLER_MANAGER: (
        Rule((*READ, "patch", "update"), ("nodes",)),
        Rule(("get", "patch", "update"), ("nodes/status", "pods/status")),
        Rule((*READ, "delete"), ("pods",)),
        Rule((*READ, *WRITE), ("leases",), names.COORDINATION_GROUP),
        Rule(("create", "patch", "update"), ("events",)),
    ),
}
GROUPS: Rules = {
    names.GROUP_AUTHENTICATED: (Rule(("get", "head"), paths=_DISCOVERY_PATHS),),
    names.GROUP_MONITORING: (
        Rule(("get", "head"), paths=_MONITORING_PATHS),
        Rule(("get",), ("nodes/metrics", "nodes/stats", "nodes/healthz")),
    ),
}
ANONYMOUS_HEALTH: Rules = {
    names.GROUP_UNAUTHENTICATED: (Rule(("get", "head"), paths=(*HEALTH_PATHS, "/version")),),
}


def rules_of(identity: Identity, users: Rules, groups: Rules) -> list[Rule]:
    """The rules of the user and of each of its groups."""
    rules = list(users.get(identity.name, ()))
    for group in identity.groups:
        rules.extend(groups.get(group, ()))
    return rules


def allows(identity: Identity, info: RequestInfo, users: Rules, groups: Rules) -> bool:
    """Does any rule of the user, or of one of its groups, allow the request?"""
    return any(rule.allows(info) for rule in rules_of(identity, users, groups))
