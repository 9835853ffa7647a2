"""Bearer tokens that a webhook knows, which is sent TokenReviews as the reference's servers are.

It is asked last, about tokens that no other authenticator knows. What it said is kept for a while
under a digest of the token, never under the token; failures are kept for a second.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from orch.client.kubeconfig import ClientConfig, load_kubeconfig
from orch.component.process.once_log import OnceLog
from orch.server.authn.flags import AuthFlags
from orch.server.authn.tokens import Holder, TokenRefused
from orch.server.webhooks.answers import SHORTEST_S, Answers, CallError, Kept, ReviewServer
from orch.wire.records.authentication import Identity, TokenReviewStatus

log = logging.getLogger(__name__)

API_VERSION = "authentication.k8s.io/v1"
TIMEOUT_S = 10.0
_SIZE = 1024  # that an identity counts for
_VALUES_MAX = 1000  # groups, or values of extra


class TokenWebhook:
    """`holder` is the authenticator that comes last."""

    def __init__(self, config: ClientConfig, kept_s: float) -> None:
        """SetupError."""
        self._server = ReviewServer(config, TIMEOUT_S)
        self._kept_s = kept_s
        self._answers: Answers[Holder | str] = Answers()
        self._secret = secrets.token_bytes(32)
        self._troubles = OnceLog(log)

    @classmethod
    def of(cls, flags: AuthFlags) -> TokenWebhook | None:
        """None without such a flag; SetupError."""
        if flags.token_webhook is None:
            return None
        return cls(load_kubeconfig(str(flags.token_webhook)), flags.token_webhook_s)

    async def holder(self, token: str, audiences: Sequence[str]) -> Holder:
        """TokenRefused says why, in words of this server's own."""
        digest = hashlib.blake2b(token.encode(), key=self._secret).digest()
        key = digest, tuple(audiences)
        found = self._answers.get(key)
        if found is None:
            found = await self._answers.fetch(key, _SIZE, lambda: self._ask(token, audiences))
        if isinstance(found, str):
            raise TokenRefused(found)
        return found

    async def close(self) -> None:
        await self._server.close()

    async def _ask(self, token: str, audiences: Sequence[str]) -> Kept:
        spec = {"token": token, "audiences": list(audiences)}
        review = {"kind": "TokenReview", "apiVersion": API_VERSION, "spec": spec}
        try:
            found = _holder(await self._server.ask(review, "tokens"))
        except CallError as error:
            self._troubles.failed("the token webhook fails: %s", error)
            return Kept("the webhook for tokens fails", SHORTEST_S)
        self._troubles.recovered("the token webhook answers again")
        return Kept(found, self._kept_s)


def _holder(status: dict[str, Any]) -> Holder | str:
    """The holder, or why there is none; CallError for what is no status."""
    try:
        read = TokenReviewStatus.model_validate(status, strict=True)
    except ValidationError:
        raise CallError("its status is not that of a TokenReview") from None
    if not read.authenticated:
        return "invalid bearer token"
    user = read.user
    if user is None or not user.username:
        raise CallError("it authenticates nobody")
    extra = {key: tuple(values) for key, values in (user.extra or {}).items()}
    groups = tuple(user.groups or ())
    if len(groups) + sum(map(len, extra.values())) > _VALUES_MAX:
        raise CallError(f"its user has over {_VALUES_MAX} groups and values")
    identity = Identity(user.username, groups, user.uid or "", extra)
    return Holder(identity, None if read.audiences is None else tuple(read.audiences))
