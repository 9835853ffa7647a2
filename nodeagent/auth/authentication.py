"""Who asks: the verified client certificate, else a bearer token that the API server knows.

A credential that is presented and bad ends the request, also where anonymous callers are let in;
who presents none is anonymous, if that is switched on.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from nodeagent.auth.reviews import ReviewCache
from orch.component.http.httpd import current_peer
from orch.wire.names import GROUP_UNAUTHENTICATED, USER_ANONYMOUS
from orch.wire.records.authentication import Identity

ANONYMOUS = Identity(USER_ANONYMOUS, (GROUP_UNAUTHENTICATED,))


class TokenReviewer(Protocol):
    async def review_token(self, token: str) -> Identity | None:
        """Whose token it is; None for nobody's. ReviewError when that cannot be told."""


class Tokens:
    """Bearer tokens, reviewed once per `keep_s`, good or bad. Keeps no token, only its digest."""

    def __init__(self, reviewer: TokenReviewer, *, keep_s: Callable[[], float]) -> None:
        self._reviewer = reviewer
        self._cache: ReviewCache[Identity | None] = ReviewCache(lambda _: keep_s())
        self._key = secrets.token_bytes(32)

    async def identify(self, token: str) -> Identity | None:
        digest = hmac.new(self._key, token.encode(), hashlib.sha256).digest()
        return await self._cache.get(digest, lambda: self._reviewer.review_token(token))


class Authentication:
    """The ways in which a caller can be known; `tokens` is None where nobody can review them."""

    def __init__(self, *, tokens: Tokens | None = None, anonymous: bool = False) -> None:
        self._tokens = tokens
        self._anonymous = anonymous

    async def identify(self, request: web.Request) -> Identity | None:
        """The caller; None for nobody or for a bad credential. ReviewError: cannot be told.

        ApiError 401 for a certificate whose time is over since its connection was made.
        """
        identity = current_peer(request)
        if identity is not None:
            return identity
        presented = request.headers.getall("Authorization", [])
        if not presented:
            return ANONYMOUS if self._anonymous else None
        token = bearer_token(presented)
        return await self._tokens.identify(token) if token and self._tokens else None


def bearer_token(headers: list[str]) -> str:
    """The token of `Authorization: Bearer …`; "" for none, another scheme, or two headers."""
    if len(headers) != 1:
        return ""
    scheme, _, token = headers[0].strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and " " not in token else ""
