"""What a request wants, and the one decision that lets it in: who asks, for which subresource.

A request becomes (verb, subresources of `nodes`); the first subresource that the caller holds lets
it in. Nothing is served before this decision. Who the caller is comes from `authentication`, what
it holds from `authorization`; the path table is the reference agent's, fine-grained first and
`proxy` as the fallback.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aiohttp import web

from nodeagent.auth.authentication import Authentication
from nodeagent.auth.authorization import Authorizer
from nodeagent.auth.reviews import ReviewError
from orch.wire.errors import ApiError, unauthorized
from orch.wire.records.authentication import Identity

log = logging.getLogger(__name__)

FINE_GRAINED = "NodeAgentFineGrainedAuthz"  # the gate of the subresources below

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch"}
_SUBRESOURCES = (
    ("/stats", "stats"),
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


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request wants of the `nodes` resource."""

    verb: str
    subresources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the secure port, and for what."""

    authentication: Authentication
    authorizer: Authorizer
    fine_grained: bool = True

    async def check(self, request: web.Request) -> None:
        """Return if the request may go on; ApiError 401, 403, or 500 when it cannot be decided."""
        identity = await self._identity(request)
        wanted = attributes_of(request.method, request.path, fine_grained=self.fine_grained)
        if wanted.verb:
            for subresource in wanted.subresources:
                if await self._allows(identity, wanted.verb, subresource):
                    return
        raise _forbidden(identity, wanted)

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
                f"subresource={subresource})\n",
            ) from None


def attributes_of(method: str, path: str, *, fine_grained: bool = True) -> Attributes:
    """The verb ("" for none that can be granted) and the subresources to try, in order."""
    verb = _VERBS.get(method, "delete" if method == "DELETE" else "")
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


def _forbidden(identity: Identity, wanted: Attributes) -> ApiError:
    listed = " ".join(wanted.subresources)
    return ApiError(
        403,
        "Forbidden",
        f"Forbidden (user={identity.name}, verb={wanted.verb}, resource=nodes, "
        f"subresource(s)=[{listed}])\n",
    )
