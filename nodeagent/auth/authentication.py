"""Identifies callers: by a verified client certificate, else by a bearer token.

The API server reviews tokens. A bad credential rejects the request even where anonymous callers are
admitted; only a request without credentials is anonymous. Must not know what callers may do.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import weakref
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from nodeagent.auth.reviews import ReviewCache
from orch.component.http.connection_limit import network_of
from orch.component.http.fair_queue import Bounds, FairQueue, Flow, QueueFull
from orch.component.http.httpd import current_peer
from orch.wire.errors import ApiError
from orch.wire.names import GROUP_UNAUTHENTICATED, USER_ANONYMOUS
from orch.wire.records.authentication import Identity

ANONYMOUS = Identity(USER_ANONYMOUS, (GROUP_UNAUTHENTICATED,))


class TokenReviewer(Protocol):
    async def review_token(self, token: str) -> Identity | None:
        """The owner of the token; None for an unknown token. ReviewError when the review fails."""


_REVIEWS = Bounds(seats=8, seats_per_flow=2, waiting_per_flow=64, wait_s=10.0)
_AFTER_WRONG_S = 0.1


class Tokens:
    """Reviews bearer tokens, valid or not, once per `keep_s`; stores only their digests.

    Whoever reaches the port can send any number of them, and reviews are requests of this node: few
    at once, in fair turns of the networks that they come from, and wrong ones slowly.
    """

    def __init__(self, reviewer: TokenReviewer, *, keep_s: Callable[[], float]) -> None:
        self._reviewer = reviewer
        self._cache: ReviewCache[Identity | None] = ReviewCache(lambda _: keep_s())
        self._key = secrets.token_bytes(32)
        self._turns = FairQueue(_REVIEWS)
        self._flows: weakref.WeakValueDictionary[str, Flow] = weakref.WeakValueDictionary()

    async def identify(self, token: str, network: str = "") -> Identity | None:
        """ApiError 429 when too many tokens from `network` wait for their review."""
        digest = hmac.new(self._key, token.encode(), hashlib.sha256).digest()
        return await self._cache.get(digest, lambda: self._review(token, network))

    async def _review(self, token: str, network: str) -> Identity | None:
        flow = self._flows.setdefault(network, Flow())
        try:
            await self._turns.enter(flow)
        except (QueueFull, TimeoutError):
            text = "too many tokens are being reviewed; please try again in a second"
            raise ApiError(429, "TooManyRequests", text, retry_after_s=1) from None
        try:
            identity = await self._reviewer.review_token(token)
            if identity is None:
                await asyncio.sleep(_AFTER_WRONG_S)
            return identity
        finally:
            self._turns.leave(flow)


class Authenticator:
    """`tokens` is None when nothing can review them."""

    def __init__(self, *, tokens: Tokens | None = None, anonymous: bool = False) -> None:
        self._tokens = tokens
        self._anonymous = anonymous

    async def identify(self, request: web.Request) -> Identity | None:
        """The caller; None without a valid credential. ReviewError when the review fails.

        ApiError 401 for a certificate that has expired since the connection was opened, 429 when
        too many tokens are being reviewed.
        """
        identity = current_peer(request)
        if identity is not None:
            return identity
        headers = request.headers.getall("Authorization", [])
        if not headers:
            return ANONYMOUS if self._anonymous else None
        token = bearer_token(headers)
        if not token or self._tokens is None:
            return None
        return await self._tokens.identify(token, network_of(request.remote or ""))


def bearer_token(headers: list[str]) -> str:
    """The token of `Authorization: Bearer …`; "" for none, another scheme, or two headers."""
    if len(headers) != 1:
        return ""
    scheme, _, token = headers[0].strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and " " not in token else ""
