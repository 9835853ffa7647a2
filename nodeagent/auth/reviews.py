"""TokenReviews and SubjectAccessReviews by the API server, and a cache of its answers.

A failed review is retried for some seconds, then raises ReviewError: nothing is admitted on a
guess. The cache shares a review among concurrent callers, never stores errors, and drops the oldest
answers at its limit. Must not know requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity, TokenReview, TokenReviewSpec, UserInfo, known
from orch.wire.records.authorization import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
V = TypeVar("V")

DEADLINE_S = 10.0
MAX_ANSWERS = 4096
_ATTEMPTS = 5
_FIRST_DELAY_S, _FACTOR, _JITTER = 0.5, 1.5, 0.2


class ReviewError(Exception):
    """The API server gave no answer; the text says why."""


class ApiReviews:
    """Reviews about one node, made with the agent's own credentials."""

    def __init__(self, client: ApiClient, node_name: str) -> None:
        self._client = client
        self._node_name = node_name
        self._outage = OnceLog(log)

    async def review_token(self, token: str) -> Identity | None:
        review = TokenReview(spec=TokenReviewSpec(token=token))
        status = (await self._review(lambda: self._client.create(review))).status
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
        status = (await self._review(lambda: self._client.create(review))).status
        return status is not None and status.allowed and not status.denied

    async def _review(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(DEADLINE_S):
                answer = await _retried(call)
        except (ApiError, TransportError, TimeoutError) as error:
            cause = str(error) or f"no answer within {DEADLINE_S:g} s"
            self._outage.failed("the API server cannot review who may use this agent: %s", cause)
            raise ReviewError(cause) from error
        self._outage.recovered("the API server reviews again who may use this agent")
        return answer


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    """The first answer; errors that a retry cannot fix are raised at once."""
    backoff = Backoff(_FIRST_DELAY_S, _FACTOR, DEADLINE_S)
    for _ in range(_ATTEMPTS - 1):
        try:
            return await call()
        except ApiError as error:
            if error.code < 500 and error.code != 429:
                raise
        except TransportError:
            pass
        await asyncio.sleep(backoff.next() * (1 + _JITTER * random.random()))  # noqa: S311
    return await call()


def _identity(user: UserInfo) -> Identity | None:
    if not user.username:
        return None
    extra = {key.lower(): tuple(values) for key, values in (user.extra or {}).items()}
    return known(Identity(user.username, tuple(user.groups or ()), user.uid or "", extra))


class ReviewCache(Generic[V]):
    """`keep_s` is how many seconds an answer is cached; 0 disables caching."""

    def __init__(self, keep_s: Callable[[V], float], *, limit: int = MAX_ANSWERS) -> None:
        self._keep_s = keep_s
        self._limit = limit
        self._answers: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()
        self._in_flight: dict[Hashable, asyncio.Task[V]] = {}

    async def get(self, key: Hashable, review: Callable[[], Awaitable[V]]) -> V:
        """The cached answer, or that of `review`; its error is raised to all who wait."""
        cached = self._answers.get(key)
        if cached is not None and asyncio.get_running_loop().time() < cached[0]:
            return cached[1]
        task = self._in_flight.get(key)
        if task is None:
            task = loops.spawn(self._review(key, review), name="review")
            task.add_done_callback(loops.retrieve_error)
            self._in_flight[key] = task
        try:
            return await asyncio.shield(task)  # a cancelled caller does not cancel it for others
        finally:
            del task  # its error holds this frame: the whole request would stay as garbage

    async def _review(self, key: Hashable, review: Callable[[], Awaitable[V]]) -> V:
        try:
            answer = await review()
        finally:
            del self._in_flight[key]
        self._store(key, answer)
        return answer

    def _store(self, key: Hashable, answer: V) -> None:
        keep_s = self._keep_s(answer)
        self._answers.pop(key, None)
        if keep_s <= 0:
            return
        self._answers[key] = (asyncio.get_running_loop().time() + keep_s, answer)
        if len(self._answers) > self._limit:
            self._answers.popitem(last=False)

    async def close(self) -> None:
        """Cancel the reviews in flight."""
        await loops.cancel(*self._in_flight.values())
