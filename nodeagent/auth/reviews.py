"""Asking the API server: whose token is this (TokenReview), may they do that (SubjectAccessReview).

A failure is tried again a few times within a few seconds, then it is a ReviewError: nothing is let
in on a guess. The log tells when asking began to fail, and when it works again.

Answers of the API server, each kept for its time; who asks the same at once shares one question.

An error is never kept. Bounded: the oldest answers make room. Times are the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

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
        self._outage = OnceLog(log)

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
            self._outage.failed("cannot ask the API server who may use this agent: %s", cause)
            raise ReviewError(cause) from error
        self._outage.recovered("the API server says again who may use this agent")
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


V = TypeVar("V")

MAX_ANSWERS = 4096


class ReviewCache(Generic[V]):
    """`keep_s` says for how many seconds an answer is good; 0 asks every time."""

    def __init__(self, keep_s: Callable[[V], float], *, limit: int = MAX_ANSWERS) -> None:
        self._keep_s = keep_s
        self._limit = limit
        self._answers: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[V]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer that is kept, or the one to `ask`; its error is raised to all who wait."""
        known = self._answers.get(key)
        if known is not None and asyncio.get_running_loop().time() < known[0]:
            return known[1]
        task = self._asking.get(key)
        if task is None:
            task = loops.spawn(self._ask(key, ask), name="review")
            task.add_done_callback(_notice)
            self._asking[key] = task
        return await asyncio.shield(task)  # a caller that gives up does not end it for the others

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._keep(key, answer)
        return answer

    def _keep(self, key: Hashable, answer: V) -> None:
        keep_s = self._keep_s(answer)
        self._answers.pop(key, None)
        if keep_s <= 0:
            return
        self._answers[key] = (asyncio.get_running_loop().time() + keep_s, answer)
        if len(self._answers) > self._limit:
            self._answers.popitem(last=False)

    async def close(self) -> None:
        """End the questions under way."""
        await loops.cancel(*self._asking.values())


def _notice(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waited for."""
    if not task.cancelled():
        task.exception()
