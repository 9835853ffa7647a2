"""Decides whether a request may proceed: maps it to (verb, subresources of `nodes`), authorizes it.

Nothing is served before this decision; the right to any of the subresources suffices. The caller
comes from `authentication`, their rights from `authorization`. The path table is the reference
agent's, fine-grained first and `proxy` as the fallback. What acts in a container is `create`, also
by GET, with which WebSockets are opened: whoever may read through the proxy may not run commands.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aiohttp import web

from nodeagent.auth.authentication import Authenticator
from nodeagent.auth.authorization import Authorizer
from nodeagent.auth.reviews import ReviewError
from orch.wire.errors import ApiError, unauthorized
from orch.wire.records.authentication import Identity

log = logging.getLogger(__name__)

IDENTITY = web.RequestKey("identity", Identity)  # of the caller, once the request is allowed
FINE_GRAINED = "NodeAgentFineGrainedAuthz"  # the gate of the subresources below

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch"}
_SUBRESOURCES = (
    ("/stats", "stats"),
    ("/pressure", "stats"),
    ("/metrics", "metrics"),
    ("/logs", "log"),
    ("/checkpoint", "checkpoint"),
)
_FINE_GRAINED = (
    ("/pods", "pods"),
    ("/runningpods", "pods"),
    ("/healthz", "healthz"),
    ("/configz", "configz"),
    ("/statusz", "statusz"),
)
_PROXY = "proxy"
_ACTS = ("/exec", "/attach", "/portForward", "/run")  # in containers, whatever the method


@dataclass(frozen=True, slots=True)
class Attributes:
    """The access to the `nodes` resource that a request needs."""

    verb: str
    subresources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the secure port, and for what."""

    authentication: Authenticator
    authorizer: Authorizer
    fine_grained: bool = True

    async def check(self, request: web.Request) -> None:
        """Return if the request is allowed; ApiError 401, 403, or 500 when the review fails."""
        identity = await self._identity(request)
        needed = attributes_of(request.method, request.path, fine_grained=self.fine_grained)
        if needed.verb:
            for subresource in needed.subresources:
                if await self._allows(identity, needed.verb, subresource):
                    request[IDENTITY] = identity
                    return
        raise _forbidden(identity, needed)

    async def _identity(self, request: web.Request) -> Identity:
        try:
            identity = await self.authentication.identify(request)
        except ReviewError as error:
            log.debug("a token could not be reviewed: %s", error)
            identity = None
        if identity is None:
            raise unauthorized()
        return identity

    async def _allows(self, identity: Identity, verb: str, subresource: str) -> bool:
        try:
            return await self.authorizer.allows(identity, verb, subresource)
        except ReviewError as error:
            log.debug("access of %s could not be reviewed: %s", identity.name, error)
            raise ApiError(
                500,
                "InternalError",
                f"Authorization error (user={identity.name}, verb={verb}, resource=nodes, "
                f"subresource={subresource})\nThe API server gave no answer; /readyz on "
                "healthzPort of this node needs none.\n",
            ) from None


def attributes_of(method: str, path: str, *, fine_grained: bool = True) -> Attributes:
    """The verb ("" when no caller may) and the subresources to check, in order."""
    verb = _VERBS.get(method, "delete" if method == "DELETE" else "")
    if any(_is_below(path, prefix) for prefix in _ACTS):
        return Attributes("create" if verb else "", (_PROXY,))
    for prefix, subresource in _SUBRESOURCES:
        if _is_below(path, prefix):
            return Attributes(verb, (subresource,))
    if fine_grained:
        for prefix, subresource in _FINE_GRAINED:
            if _is_below(path, prefix):
                return Attributes(verb, (subresource, _PROXY))
    return Attributes(verb, (_PROXY,))


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")


def _forbidden(identity: Identity, needed: Attributes) -> ApiError:
    listed = " ".join(needed.subresources)
    return ApiError(
        403,
        "Forbidden",
        f"Forbidden (user={identity.name}, verb={needed.verb}, resource=nodes, "
        f"subresource(s)=[{listed}])\n",
    )
