"""Asking the API server: whose token is this (TokenReview), may they do that (SubjectAccessReview).

A failure is tried again a few times within a few seconds, then it is a ReviewError: nothing is let
in on a guess. The log tells when asking began to fail, and when it works again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.loops import Backoff
from orch.wire.authentication import TokenReview, TokenReviewSpec, UserInfo
from orch.wire.authorization import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from orch.wire.errors import ApiError
from orch.wire.identity import Identity, known

log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_S = 10.0
_TRIES = 5
_FIRST_DELAY_S, _FACTOR, _JITTER = 0.5, 1.5, 0.2


class ReviewError(Exception):
    """The API server gave no answer; the text says why."""


class ApiReviews:
    """Reviews about one node, made with the agent's own credentials."""

    def __init__(self, client: ApiClient, node_name: str) -> None:
        self._client = client
        self._node_name = node_name
        self._failing = False

    async def review_token(self, token: str) -> Identity | None:
        review = TokenReview(spec=TokenReviewSpec(token=token))
        status = (await self._asked(lambda: self._client.create(review))).status
        if status is None or not status.authenticated or status.user is None:
            return None
        return _identity(status.user)

    async def review_access(self, identity: Identity, verb: str, subresource: str) -> bool:
        review = SubjectAccessReview(
            spec=SubjectAccessReviewSpec(
                user=identity.name,
                groups=list(identity.groups),
                uid=identity.uid,
                extra={key: list(values) for key, values in identity.extra.items()},
                resourceAuthorizationAttributes=ResourceAttributes(
                    verb=verb,
                    version="v1",
                    resource="nodes",
                    subresource=subresource,
                    name=self._node_name,
                ),
            )
        )
        status = (await self._asked(lambda: self._client.create(review))).status
        return status is not None and status.allowed and not status.denied

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(DEADLINE_S):
                answer = await _tried(ask)
        except (ApiError, TransportError, TimeoutError) as error:
            cause = str(error) or f"no answer within {DEADLINE_S:g} s"
            if not self._failing:
                self._failing = True
                log.warning("cannot ask the API server who may use this agent: %s", cause)
            raise ReviewError(cause) from error
        if self._failing:
            self._failing = False
            log.info("the API server says again who may use this agent")
        return answer


async def _tried(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of the first try that has one; what another try cannot mend is raised at once."""
    backoff = Backoff(_FIRST_DELAY_S, _FACTOR, DEADLINE_S)
    for _ in range(_TRIES - 1):
        try:
            return await ask()
        except ApiError as error:
            if error.code < 500 and error.code != 429:
                raise
        except TransportError:
            pass
        await asyncio.sleep(backoff.next() * (1 + _JITTER * random.random()))  # noqa: S311
    return await ask()


def _identity(user: UserInfo) -> Identity | None:
    if not user.username:
        return None
    extra = {key.lower(): tuple(values) for key, values in (user.extra or {}).items()}
    return known(Identity(user.username, tuple(user.groups or ()), user.uid or "", extra))
