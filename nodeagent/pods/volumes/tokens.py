"""Tokens of the service accounts that pods run as, each bound to its pod, from the API server.

As the reference agent (pkg/kubelet/token): a token is asked for anew once four fifths of its life
are over, or a day, and the old one serves while that fails. Requests are few at a time, and the
namespaces take turns. The tokens are in memory and in the files of volumes only.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodeagent.pods.spec.references import TOKEN, ObjectData, TokenReference
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.http.fair_queue import Bounds, Turns
from orch.component.process import clock, loops
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog
from orch.component.secret import Secret
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.records.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

AT_ONCE = 8  # requests under way
_REQUESTS = Bounds(seats=AT_ONCE, wait_s=60.0)
_SILENT_S = 5.0  # after a call that took so long and failed, none is begun for as long
PER_S, BURST = 50, 100  # requests that begin, as the reference agent's by default
MAX_BYTES = 1 << 20  # of a token, as of every value in the API
_LIFE_MAX_S = 2**32  # as the API allows
_OLD = timedelta(hours=24)
_JITTER_S = 10.0
_SPENT = 0.8  # of its life


class TokenProblem(Exception):
    """The API server gave no token; the text says why."""


@dataclass(frozen=True, slots=True)
class Token:
    """`life` is what was asked for and granted, which ends at `expires`."""

    text: Secret
    life: timedelta
    expires: datetime

    def is_due(self, now: datetime, jitter_s: float) -> bool:
        """Whether it is time for the next one; `jitter_s` earlier than needed."""
        issued = self.expires - self.life
        next_one = issued + min(self.life * _SPENT, _OLD)
        return now > next_one - timedelta(seconds=jitter_s)


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """`account` is the namespace, name and uid of a service account; () for none."""

    account: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    token: Secret = field(default_factory=lambda: Secret(""))


class Silence:
    """Of a server that does not answer: it is waited for once, not by each pod after the other."""

    def __init__(self) -> None:
        self._why, self._until_s = "", -math.inf

    def why(self) -> str:
        """Why no call is worth its while now; "" when one is."""
        return self._why if asyncio.get_running_loop().time() < self._until_s else ""

    def failed(self, began_s: float, error: Exception) -> None:
        """Note how a call ended that began then, in the loop's time."""
        now_s = asyncio.get_running_loop().time()
        if now_s - began_s >= _SILENT_S:
            self._why, self._until_s = str(error), now_s + _SILENT_S


class PodTokens:
    """`client` None: without an API server there are no tokens."""

    def __init__(
        self,
        client: ApiClient | None,
        *,
        now: Now = clock.utc_now,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`jitter` gives a random number between 0 and 1."""
        self._client = client
        self._now = now
        self._jitter = jitter
        self._known: dict[str, dict[TokenReference, Token]] = {}  # by uid of the pod
        self._turns = Turns(_REQUESTS)
        self._silence = Silence()
        self._rate = loops.RateLimit(PER_S, BURST)
        self._failures = OnceLog(log)  # to renew, by pod and token

    async def of(self, pod: Pod, wanted: TokenReference) -> ObjectData:
        """The token under the key TOKEN, or the problem with it; never raises."""
        uid, now = pod.metadata.uid or "", self._now()
        held = self._known.setdefault(uid, {})
        known = held.get(wanted)
        if known and not known.is_due(now, _JITTER_S * self._jitter()):
            return _data_of(known)
        subject = (uid, wanted)
        try:
            fresh = await self._request(pod, wanted)
        except TokenProblem as error:
            if known is None:
                return ObjectData(problem=f"failed to fetch token: {error}")
            if now > known.expires:
                return ObjectData(problem=f"{wanted} expired and refresh failed: {error}")
            text = "pod %s: the %s is not renewed and serves until %s, retrying: %s"
            until = times.format_time(known.expires)
            self._failures.failed(text, pod.key, wanted, until, error, subject=subject)
            return _data_of(known)
        self._failures.recovered("pod %s: the %s is renewed", pod.key, wanted, subject=subject)
        held[wanted] = fresh  # of nobody, if the pod was forgotten meanwhile
        return _data_of(fresh)

    def forget(self, uid: str) -> None:
        """The pod is gone, and its tokens with it."""
        for wanted in self._known.pop(uid, {}):
            self._failures.recovered(subject=(uid, wanted))

    async def _request(self, pod: Pod, wanted: TokenReference) -> Token:
        """TokenProblem."""
        if self._client is None:
            raise TokenProblem(f"{wanted}: there is no API server")
        meta = pod.metadata
        bound = BoundObjectReference(kind="Pod", apiVersion="v1", name=meta.name, uid=meta.uid)
        spec = TokenRequestSpec(
            audiences=[wanted.audience] if wanted.audience else [],
            expirationSeconds=wanted.expiration_s,
            boundObjectRef=bound,
        )
        namespace, began_s = meta.namespace or "", math.inf
        try:
            async with self._turns.hold(namespace):
                if why := self._silence.why():
                    raise TokenProblem(why)
                await self._rate.begin()
                began_s = asyncio.get_running_loop().time()
                answer = await self._client.create_token(wanted.account, namespace, spec)
        except TimeoutError:
            raise TokenProblem(f"too many tokens are asked for in namespace {namespace}") from None
        except (ApiError, TransportError) as error:
            self._silence.failed(began_s, error)
            raise TokenProblem(str(error)) from error
        return _token_in(answer)


def _token_in(answer: TokenRequest) -> Token:
    """TokenProblem for an answer without a token that can be used."""
    status = answer.status
    text, until = (status.token, status.expirationTimestamp) if status else ("", None)
    if not text or not until or len(text) > MAX_BYTES or not text.isascii():
        raise TokenProblem("the API server answered without a token and the time it expires")
    try:
        expires = times.parse_time(until)
    except ValueError:
        raise TokenProblem("the API server answered with a time that is none") from None
    life_s = answer.spec.expirationSeconds
    if life_s is None or not 0 < life_s <= _LIFE_MAX_S:
        raise TokenProblem("the API server answered without the life of the token")
    return Token(Secret(text), timedelta(seconds=life_s), expires)


def _data_of(token: Token) -> ObjectData:
    return ObjectData({TOKEN: token.text.reveal().encode()})
