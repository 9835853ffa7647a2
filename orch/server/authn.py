"""Who sends a request without a client certificate: whoever a token names, or nobody at all.

A chain: each authenticator knows an identity, knows nothing (None), or
finds a credential that is not good (ApiError 401). Who presents nothing is anonymous, which is
enough for asking whether the server is well, if that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from orch.server.tokens import Tokens
from orch.wire.errors import unauthorized
from orch.wire.identity import Identity
from orch.wire.names import GROUP_UNAUTHENTICATED, USER_ANONYMOUS

ANONYMOUS = Identity(USER_ANONYMOUS, (GROUP_UNAUTHENTICATED,))
# What is answered without credentials, unless that is switched off.
HEALTH_PATHS = frozenset(("/healthz", "/livez", "/readyz", "/version"))

Authenticator = Callable[[web.Request], Awaitable[Identity | None]]
Authenticate = Callable[[web.Request], Awaitable[Identity]]


def by_bearer(tokens: Tokens) -> Authenticator:
    """The holder of the bearer token; any other credential that got this far is wrong: 401.

    A secret that came in the clear is refused too: whoever listened has it now.
    """

    async def authenticate(request: web.Request) -> Identity | None:
        sent = request.headers.get("Authorization")
        if sent is None:
            return None
        scheme, _, credential = sent.strip().partition(" ")
        if scheme.lower() != "bearer" or not request.secure:
            raise unauthorized()
        return tokens.authenticate(credential.strip())

    return authenticate


def chain(*authenticators: Authenticator) -> Authenticate:
    """The first identity found; ANONYMOUS when no credential was presented at all."""

    async def authenticate(request: web.Request) -> Identity:
        for authenticator in authenticators:
            identity = await authenticator(request)
            if identity is not None:
                return identity
        return ANONYMOUS

    return authenticate
