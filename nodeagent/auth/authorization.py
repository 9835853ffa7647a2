"""Authorizes callers: everything, by the API server's decision, or by built-in groups.

`authorization.mode` chooses. Mode Webhook without an API server uses the groups of the client
certificate, so that a standalone agent is usable without being open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from nodeagent.auth.reviews import ReviewCache
from orch.wire.names import GROUP_MASTERS, GROUP_MONITORING, USER_APISERVER
from orch.wire.records.authentication import Identity

MAX_CACHED_LENGTH = 10_000  # characters of all attributes; longer requests are not cached

_MONITORING = frozenset({"stats", "metrics", "healthz"})


class Authorizer(Protocol):
    async def allows(self, identity: Identity, verb: str, subresource: str) -> bool:
        """Whether the caller may do `verb` on this node's subresource; ReviewError on failure."""


class AccessReviewer(Protocol):
    async def review_access(self, identity: Identity, verb: str, subresource: str) -> bool:
        """The API server's decision; ReviewError when there is none."""


class AlwaysAllow:
    """Every authenticated caller may do everything."""

    async def allows(self, identity: Identity, verb: str, subresource: str) -> bool:
        return True


class BuiltInGroups:
    """Without an API server: administrators may do everything, monitoring may read."""

    async def allows(self, identity: Identity, verb: str, subresource: str) -> bool:
        if GROUP_MASTERS in identity.groups or identity.name == USER_APISERVER:
            return True
        return GROUP_MONITORING in identity.groups and verb == "get" and subresource in _MONITORING


class Reviewed:
    """The API server's decisions; `keep_s` is how long a permission or a refusal is cached."""

    def __init__(self, reviewer: AccessReviewer, *, keep_s: Callable[[bool], float]) -> None:
        self._reviewer = reviewer
        self._cache: ReviewCache[bool] = ReviewCache(keep_s)

    async def allows(self, identity: Identity, verb: str, subresource: str) -> bool:
        review = partial(self._reviewer.review_access, identity, verb, subresource)
        if _length(identity, verb, subresource) >= MAX_CACHED_LENGTH:
            return await review()
        key = (identity, *sorted(identity.extra.items()), verb, subresource)
        return await self._cache.get(key, review)


def _length(identity: Identity, verb: str, subresource: str) -> int:
    extra = (part for key, values in identity.extra.items() for part in (key, *values))
    return sum(map(len, (identity.name, identity.uid, *identity.groups, *extra, verb, subresource)))
