"""Who sends a request: the identity of its TLS client certificate, or nobody in particular.

A chain that later takes tokens: each authenticator knows an identity, knows nothing (None), or
finds a credential that is not good (ApiError 401). Who presents nothing is anonymous, and whether
that is enough is the authorizer's decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from orch.component import httpd
from orch.wire.errors import unauthorized
from orch.wire.identity import Identity
from orch.wire.names import GROUP_UNAUTHENTICATED, USER_ANONYMOUS

ANONYMOUS = Identity(USER_ANONYMOUS, (GROUP_UNAUTHENTICATED,))

Authenticator = Callable[[web.Request], Awaitable[Identity | None]]


async def by_certificate(request: web.Request) -> Identity | None:
    """CN and O of the verified client certificate."""
    return httpd.peer_identity(request)


async def refuse_unknown_credentials(request: web.Request) -> Identity | None:
    """A credential that nothing before this accepted is wrong, not absent: 401."""
    if "Authorization" in request.headers:
        raise unauthorized()
    return None


def chain(*authenticators: Authenticator) -> Callable[[web.Request], Awaitable[Identity]]:
    """The first identity found; ANONYMOUS when no credential was presented at all."""

    async def authenticate(request: web.Request) -> Identity:
        for authenticator in authenticators:
            identity = await authenticator(request)
            if identity is not None:
                return identity
        return ANONYMOUS

    return authenticate
