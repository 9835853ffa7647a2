"""Identifies callers: by a verified client certificate, else by a bearer token.

The API server reviews tokens. A bad credential rejects the request even where anonymous callers are
admitted; only a request without credentials is anonymous. Must not know what callers may do.
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
        """The owner of the token; None for an unknown token. ReviewError when the review fails."""


class Tokens:
    """Reviews bearer tokens, valid or not, once per `keep_s`; stores only their digests."""

    def __init__(self, reviewer: TokenReviewer, *, keep_s: Callable[[], float]) -> None:
        self._reviewer = reviewer
        self._cache: ReviewCache[Identity | None] = ReviewCache(lambda _: keep_s())
        self._key = secrets.token_bytes(32)

    async def identify(self, token: str) -> Identity | None:
        digest = hmac.new(self._key, token.encode(), hashlib.sha256).digest()
        return await self._cache.get(digest, lambda: self._reviewer.review_token(token))


class Authenticator:
    """`tokens` is None when nothing can review them."""

    def __init__(self, *, tokens: Tokens | None = None, anonymous: bool = False) -> None:
        self._tokens = tokens
        self._anonymous = anonymous

    async def identify(self, request: web.Request) -> Identity | None:
        """The caller; None without a valid credential. ReviewError when the review fails.

        ApiError 401 for a certificate that has expired since the connection was opened.
        """
        identity = current_peer(request)
        if identity is not None:
            return identity
        headers = request.headers.getall("Authorization", [])
        if not headers:
            return ANONYMOUS if self._anonymous else None
        token = bearer_token(headers)
        return await self._tokens.identify(token) if token and self._tokens else None


def bearer_token(headers: list[str]) -> str:
    """The token of `Authorization: Bearer …`; "" for none, another scheme, or two headers."""
    if len(headers) != 1:
        return ""
    scheme, _, token = headers[0].strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and " " not in token else ""
