"""Who may do what on the agent's own server.

A request becomes (identity, verb, subresources of `nodes`); the first subresource the identity
holds lets it in. The identity comes from a client certificate signed by the configured CA; what it
may do is decided here from its user and groups. Nothing is served before this decision.
Rules: the reference agent's path table, fine-grained first, `proxy` as the fallback.
"""

from __future__ import annotations

from dataclasses import dataclass

from orch.wire.errors import ApiError, unauthorized
from orch.wire.identity import Identity
from orch.wire.names import GROUP_MASTERS, GROUP_MONITORING, USER_APISERVER

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch"}
_SUBRESOURCES = (
    ("/stats", ("stats",)),
    ("/metrics", ("metrics",)),
    ("/logs", ("log",)),
    ("/checkpoint", ("checkpoint",)),
    ("/pods", ("pods", "proxy")),
    ("/runningpods", ("pods", "proxy")),
    ("/healthz", ("healthz", "proxy")),
    ("/configz", ("configz", "proxy")),
    ("/statusz", ("statusz", "proxy")),
)
_MONITORING = frozenset({"stats", "metrics", "healthz"})


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request wants of the `nodes` resource."""

    verb: str
    subresources: tuple[str, ...]


def attributes_of(method: str, path: str) -> Attributes:
    """The verb and the subresources to try, in order."""
    verb = _VERBS.get(method, "delete" if method == "DELETE" else "")
    for prefix, subresources in _SUBRESOURCES:
        if path == prefix or path.startswith(prefix + "/"):
            return Attributes(verb, subresources)
    return Attributes(verb, ("proxy",))


def authorize(identity: Identity | None, attributes: Attributes) -> None:
    """Return if the request may go on; ApiError 401 without an identity, 403 without the right."""
    if identity is None:
        raise unauthorized()
    if any(_allowed(identity, attributes.verb, sub) for sub in attributes.subresources):
        return
    listed = " ".join(attributes.subresources)
    raise ApiError(
        403,
        "Forbidden",
        f"Forbidden (user={identity.name}, verb={attributes.verb}, resource=nodes, "
        f"subresource(s)=[{listed}])\n",
    )


def _allowed(identity: Identity, verb: str, subresource: str) -> bool:
    if GROUP_MASTERS in identity.groups or identity.name == USER_APISERVER:
        return verb != ""
    return GROUP_MONITORING in identity.groups and verb == "get" and subresource in _MONITORING
